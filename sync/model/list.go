// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// List says which exports an import consists of, in the order of their precedence: the
// first one decides. It is the only memory of an import. It is stored in AnnotationList
// of the derived Service; the ServiceImport has a copy. The zero value is no list.
type List struct {
	// Formed is when the list formed, in this cluster's time and whole seconds.
	Formed  time.Time `json:"formed"`
	Entries []Entry   `json:"exports"`
}

// Entry is one export of a List. Its UID is empty if nothing but the cluster is known, of
// endpoints that were found without a list.
type Entry struct {
	SourceExport
	// Absent says why the export is not used, or is missing, and Since since when, in this
	// cluster's time and whole seconds: SourceEnded, SourceSuspended, SourceRefused or
	// SourceMissing; empty, with a zero time, if it is used. While its cluster is not read,
	// both stay as they are.
	Absent SourceState `json:"absent,omitempty"`
	Since  time.Time   `json:"since,omitzero"`
}

// Exists reports whether l is a list, which may have no entries.
func (l List) Exists() bool { return !l.Formed.IsZero() }

// Find is the entry of a cluster; false if there is none.
func (l List) Find(cluster ClusterID) (Entry, bool) {
	return Find(l.Entries, func(e Entry) bool { return e.Cluster == cluster })
}

// Older are the entries behind one that is younger: exports that would come first by age.
func (l List) Older() []Entry {
	var out []Entry
	for i, e := range l.Entries {
		if slices.ContainsFunc(l.Entries[:i], func(before Entry) bool { return e.CompareAge(before.SourceExport) < 0 }) {
			out = append(out, e)
		}
	}
	return out
}

// String is the value of AnnotationList. It is the same for equal lists.
func (l List) String() string {
	stored := List{Formed: l.Formed.UTC(), Entries: append([]Entry{}, l.Entries...)}
	for i := range stored.Entries {
		e := &stored.Entries[i]
		e.CreatedAt, e.Since = e.CreatedAt.UTC(), e.Since.UTC()
	}
	text, _ := json.Marshal(stored) // holds nothing that JSON cannot express
	return string(text)
}

// ParseList reads the value of AnnotationList. The error says what cannot be read; then
// there is no list.
func ParseList(text string) (List, error) {
	var out List
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return List{}, fmt.Errorf("annotation %s: %w", AnnotationList, err)
	}
	if out.Formed.IsZero() {
		return List{}, fmt.Errorf("annotation %s: formed is missing; expected an RFC 3339 time", AnnotationList)
	}
	out.Formed = out.Formed.UTC()
	for i := range out.Entries {
		e := &out.Entries[i]
		_, repeated := (List{Entries: out.Entries[:i]}).Find(e.Cluster)
		isAbsent := e.Absent.IsOut() || e.Absent == SourceMissing
		if repeated || len(validation.IsDNS1123Label(string(e.Cluster))) > 0 || isAbsent && e.Since.IsZero() || !isAbsent && e.Absent != "" {
			return List{}, fmt.Errorf("annotation %s: exports[%d] is of cluster %s, absent %s since %s; expected the id of a cluster, once, and since with absent: Ended, Suspended, Refused or Missing",
				AnnotationList, i, Quote(string(e.Cluster)), Quote(string(e.Absent)), e.Since)
		}
		e.CreatedAt, e.Since = e.CreatedAt.UTC(), e.Since.UTC()
	}
	return out, nil
}

// SourceExport names one export of a Service.
type SourceExport struct {
	Cluster ClusterID `json:"cluster"`
	// UID and CreatedAt are those of the ServiceExport; empty if they are not known. CreatedAt
	// decides conflicts (oldest first, ties by cluster id) and has one second granularity.
	UID       types.UID `json:"uid,omitempty"`
	CreatedAt time.Time `json:"createdAt,omitzero"`
	// Scoped is true if the export was read where only this cluster reads it.
	Scoped bool `json:"scoped,omitempty"`
}

// ID is "<cluster>/<uid>", as AnnotationConfirmTakeover names an export.
func (e SourceExport) ID() string { return string(e.Cluster) + "/" + string(e.UID) }

// CompareAge orders exports as KEP-1645 does: oldest first, in whole seconds as the API has
// them, then by cluster id.
func (e SourceExport) CompareAge(other SourceExport) int {
	return cmp.Or(cmp.Compare(e.CreatedAt.Unix(), other.CreatedAt.Unix()), cmp.Compare(e.Cluster, other.Cluster))
}

// Listed are the clusters that the list on an object names; none of an object that Comity
// does not manage.
func Listed(object metav1.Object) []ClusterID {
	if !IsManaged(object) {
		return nil
	}
	list, err := ParseList(object.GetAnnotations()[AnnotationList])
	if err != nil {
		return nil
	}
	return Map(list.Entries, func(e Entry) ClusterID { return e.Cluster })
}

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

// IsServed reports whether endpoints of a source in this state are served, or kept.
func (s SourceState) IsServed() bool { return s.IsKept() || s.IsRead() }

// IsKept reports whether what exists of a source in this state stays as it is.
func (s SourceState) IsKept() bool { return s == SourceNotRead || s == SourceMissing }

// IsOut reports whether nothing of a source in this state is served, though its entry
// may keep its place.
func (s SourceState) IsOut() bool {
	return s.IsWithdrawn() || s == SourceRefused
}

// IsWithdrawn reports whether the cluster of a source in this state states that it does not
// publish it any more.
func (s SourceState) IsWithdrawn() bool { return s == SourceEnded || s == SourceSuspended }

// IsRead reports whether an export is published, and used.
func (s SourceState) IsRead() bool {
	return s == SourcePublished || s == SourceReplaced || s == SourceJoined
}
