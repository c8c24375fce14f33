// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package compute turns what was observed into status.
//
// It takes an object with its current status, the related objects, and the time;
// it gives the conditions and lists that Comity owns, as they should be now. It is
// pure: the same input gives the same bytes. It follows KEP-1645, "ServiceExport
// status" and "ServiceImport status".
//
// A process that starts has not read every cluster yet, and what it does not know
// must not be shown as gone. So each condition is computed from what is known, and
// a rule in hold.go then says whether it may replace the stored one. The stored
// condition stays while a cluster that it may be about is unsynced. Which clusters
// those are comes from structured state, never from the words of a message:
//
//	condition           may be about
//	export: Ready       this cluster, until its policies are loaded
//	export: Conflict    each cluster in Observation.Unsynced
//	export: Admitted    this cluster until its policies are loaded, or any unsynced cluster if it warns
//	export: Available   the clusters in scope, by Destination.Unsynced
//	import: Ready       status.clusters
//	import: Available   the sources that were as bad as the stored reason
//	import: Frozen      the export that decides, while Source.Starting is true of it
//	import: TakeoverHeld  each source, while Starting is true of it
package compute
