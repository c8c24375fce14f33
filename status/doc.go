// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package status reports to users what happened to their exports and imports.
//
// It takes what the sync loop observed and the answer of the policies, reads the
// objects concerned, and writes conditions, source clusters and events: on the
// leader only, by server-side apply on the status subresource, only fields that
// Comity owns, and only on change. What it writes is decided in status/compute; how
// often is limited in write.go. It follows KEP-1645. ServiceImports that Comity
// did not make are left alone, or get only what no other field owner sets
// (Options.ForeignImports).
package status
