// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package status tells users what came of their exports and imports.
//
// It takes what the sync loop observed and what policy says, reads the objects
// concerned, and writes conditions, source clusters and events: on the leader
// only, by server-side apply on the status subresource, only what is Comity's, and
// nothing without a change. What it writes is decided in status/compute, and when in
// status/pace. It follows KEP-1645. ServiceImports that Comity did not make are left
// alone, or given only what nobody else says (Options.ForeignImports).
package status
