// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package model is the vocabulary of package sync: clusters, scopes, exports,
// imports, conflicts, and the names and labels of the objects made of them.
//
// It takes and gives values only: no client, clock, logger, metric or context.
// Every value is safe to copy; slices and maps in it are read-only by agreement.
// It follows KEP-1645 (Multi-Cluster Services API) and KEP-2149 (cluster ids).
package model
