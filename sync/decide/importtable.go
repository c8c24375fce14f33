// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"github.com/comity-mcs/comity/sync/model"
)

// ImportRow is one row of the table that says what becomes of one source of an import.
// The code, docs/imports.md, conditions and metrics use its words.
type ImportRow struct {
	State model.SourceState
	// When says which source the row is for, Entry what becomes of its entry in the list,
	// Slices of its EndpointSlices.
	When, Entry, Slices string
}

// ImportTable is the table. The first row that matches a source applies.
func ImportTable() []ImportRow {
	return []ImportRow{
		{model.SourceRemoved, "an administrator removed the member: `spec.removed` of its Peer is true", "dropped", "removed"},
		{model.SourceEnded, "a record states that this export, or one created later, was withdrawn, and its ServiceExport is gone", "dropped after a minute", "removed"},
		{model.SourceSuspended, "a record states that it was withdrawn, and its ServiceExport exists", "keeps its place", "removed"},
		{model.SourceRefused, "the accepted namespaces of the Peer, an import policy, the annotation `comity.dev/import-from` or the identity of the namespace refuse it here", "keeps its place", "removed"},
		{model.SourceNotRead, "its cluster was not read; or it cannot be decided: a policy was not evaluated, the identity of the namespace or of this cluster is not known", "kept", "kept"},
		{model.SourceConfirmed, "missing, and `spec.confirmMissingBefore` of its Peer is not before the time since when it is missing", "dropped", "removed"},
		{model.SourceMissing, "its cluster was read completely, and states nothing of it", "kept", "kept"},
		{model.SourcePublished, "published, and the UID is that of the entry", "kept", "follow"},
		{model.SourceReplaced, "published with another UID, or again after it was ended, suspended or refused for more than a minute", "keeps its place if no property of the import changes, else last", "follow"},
		{model.SourceJoined, "published, and the list has no entry of its cluster", "last; when the list forms, by age", "follow"},
	}
}
