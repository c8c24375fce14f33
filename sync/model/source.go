// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

// SourceState is the row of the import table that applies to one source of an import: to
// the export of one cluster. The words are those of docs/imports.md, conditions and metrics.
type SourceState string

// The zero value is invalid, so that a forgotten field is noticed. The first row that
// matches applies.
const (
	// SourceRemoved: an administrator removed the member (spec.removed of its Peer).
	SourceRemoved SourceState = "Removed"
	// SourceEnded: the cluster states that this export, or one created later, was
	// withdrawn, and that its ServiceExport is gone.
	SourceEnded SourceState = "Ended"
	// SourceSuspended: the cluster states that it was withdrawn, and that its
	// ServiceExport exists still.
	SourceSuspended SourceState = "Suspended"
	// SourceRefused: accepted namespaces, an import policy, or the identity of the
	// namespace keep it out here.
	SourceRefused SourceState = "Refused"
	// SourceNotRead: the cluster was not read, or what it publishes cannot be decided.
	SourceNotRead SourceState = "NotRead"
	// SourceConfirmed: it is missing, and an administrator confirmed that it is gone.
	SourceConfirmed SourceState = "MissingConfirmed"
	// SourceMissing: the cluster was read completely, and states nothing of it.
	SourceMissing SourceState = "Missing"
	// SourcePublished: the export of the list is published.
	SourcePublished SourceState = "Published"
	// SourceReplaced: another export of that cluster is published, or the one of the list
	// is published again after it was suspended or refused.
	SourceReplaced SourceState = "Replaced"
	// SourceJoined: an export is published of a cluster that the list does not have.
	SourceJoined SourceState = "Joined"
)

// String is the word of the table.
func (s SourceState) String() string { return string(s) }

// IsServed reports whether endpoints of a source in this state are served, or kept.
func (s SourceState) IsServed() bool { return s.IsKept() || s.IsRead() }

// IsKept reports whether what exists of a source in this state stays as it is.
func (s SourceState) IsKept() bool { return s == SourceNotRead || s == SourceMissing }

// IsOut reports whether nothing of a source in this state is served, though its entry
// may keep its place.
func (s SourceState) IsOut() bool {
	return s == SourceEnded || s == SourceSuspended || s == SourceRefused
}

// IsRead reports whether an export is published, and used.
func (s SourceState) IsRead() bool {
	return s == SourcePublished || s == SourceReplaced || s == SourceJoined
}
