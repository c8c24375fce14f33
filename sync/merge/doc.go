// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package merge resolves the exports of one Service into one import.
//
// It takes the exports that reach a cluster, at most one of each, in any order, and
// returns the import and the conflicts among them, in the order of the reasons in
// KEP-1645. The same exports always give the same result, byte for byte. It validates nothing: package
// exchange did when it read the records. It is pure. It follows KEP-1645, "Constraints
// and Conflict Resolution": oldest ServiceExport first, ties by cluster id.
package merge
