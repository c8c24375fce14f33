// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import "fmt"

// SourceState is the row of the import table that applies to one source of an import: to
// the export of one cluster. The words are those of docs/imports.md, conditions and metrics.
type SourceState int

// The zero value is invalid, so that a forgotten field is noticed. The first row that
// matches applies.
const (
	// SourceRemoved: an administrator removed the member (spec.removed of its Peer).
	SourceRemoved SourceState = iota + 1
	// SourceEnded: the cluster states that this export, or one created later, was
	// withdrawn, and that its ServiceExport is gone.
	SourceEnded
	// SourceSuspended: the cluster states that it was withdrawn, and that its
	// ServiceExport exists still.
	SourceSuspended
	// SourceRefused: accepted namespaces, an import policy, or the identity of the
	// namespace keep it out here.
	SourceRefused
	// SourceNotRead: the cluster was not read, or what it publishes cannot be decided.
	SourceNotRead
	// SourceConfirmed: it is missing, and an administrator confirmed that it is gone.
	SourceConfirmed
	// SourceMissing: the cluster was read completely, and states nothing of it.
	SourceMissing
	// SourcePublished: the export of the list is published.
	SourcePublished
	// SourceReplaced: another export of that cluster is published, or the one of the list
	// is published again after it was suspended or refused.
	SourceReplaced
	// SourceJoined: an export is published of a cluster that the list does not have.
	SourceJoined
)

var sourceStates = map[SourceState]string{
	SourceRemoved: "Removed", SourceEnded: "Ended", SourceSuspended: "Suspended", SourceRefused: "Refused", SourceNotRead: "NotRead",
	SourceConfirmed: "MissingConfirmed", SourceMissing: "Missing", SourcePublished: "Published", SourceReplaced: "Replaced", SourceJoined: "Joined",
}

// String is the word of the table.
func (s SourceState) String() string {
	if name, ok := sourceStates[s]; ok {
		return name
	}
	return fmt.Sprintf("SourceState(%d)", int(s))
}

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

// MarshalText is the word of the table.
func (s SourceState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the states of an Entry that is absent.
func (s *SourceState) UnmarshalText(text []byte) error {
	for _, state := range []SourceState{SourceEnded, SourceSuspended, SourceRefused, SourceMissing} {
		if state.String() == string(text) {
			*s = state
			return nil
		}
	}
	return fmt.Errorf("absent is %s; expected Ended, Suspended, Refused or Missing", Quote(string(text)))
}
