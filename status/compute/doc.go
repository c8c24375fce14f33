// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package compute turns what was observed into status.
//
// It takes an object with its present status, what surrounds it, and the time;
// it gives the conditions and lists that Comity owns, as they should be now. It is
// pure: the same input gives the same bytes, and what cannot be known yet stays as
// it is, so that a restart changes nothing. It follows KEP-1645, "ServiceExport
// status" and "ServiceImport status".
package compute
