// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package conflict predicts the conflicts that a ServiceExport would have.
//
// It takes a ServiceExport as it would be stored, reads its Service, Namespace and
// ServiceImport from a cache and what the other members export from memory, and gives
// warnings: those of the condition Conflict, with the values of each cluster. It
// never refuses, never calls an API server, and says nothing as long as a member was not
// read. Which export decides it asks sync/decide (KEP-1645, "Constraints and Conflict
// Resolution", and takeovers that are held), as the import in this cluster will. It is
// apart from package webhook, which needs nothing else of how an import is decided.
package conflict
