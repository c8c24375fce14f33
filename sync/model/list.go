// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// List says which exports an import consists of, in the order of their precedence: the
// first one decides. It is the only memory of an import. It is stored in AnnotationList
// of the derived Service; the ServiceImport has a copy. The zero value is no list.
type List struct {
	// Formed is when the list formed, in this cluster's time and whole seconds.
	Formed  time.Time
	Entries []Entry
}

// Entry is one export of a List.
type Entry struct {
	Cluster ClusterID
	// UID and CreatedAt are those of the ServiceExport. UID is empty if nothing but the
	// cluster is known, of endpoints that were found without a list.
	UID       types.UID
	CreatedAt time.Time
	// Scoped is that of Export.
	Scoped bool
	// Absent says why the export is not used, or is missing, and Since since when, in this
	// cluster's time and whole seconds: SourceEnded, SourceSuspended, SourceRefused or
	// SourceMissing; SourcePublished, with a zero time, if it is used. While its cluster is
	// not read, both stay as they are.
	Absent SourceState
	Since  time.Time
}

// Export is what names the export of the entry.
func (e Entry) Export() SourceExport {
	return SourceExport{Cluster: e.Cluster, UID: e.UID, CreatedAt: e.CreatedAt, Scoped: e.Scoped}
}

// Exists reports whether l is a list, which may have no entries.
func (l List) Exists() bool { return !l.Formed.IsZero() }

// Find is the entry of a cluster; false if there is none.
func (l List) Find(cluster ClusterID) (Entry, bool) {
	if at := slices.IndexFunc(l.Entries, func(e Entry) bool { return e.Cluster == cluster }); at >= 0 {
		return l.Entries[at], true
	}
	return Entry{}, false
}

// Older are the entries behind one that is younger: exports that would come first by age.
// KEP-1645 says oldest first, then by cluster id.
func (l List) Older() []Entry {
	var out []Entry
	for i, e := range l.Entries {
		if slices.ContainsFunc(l.Entries[:i], func(before Entry) bool {
			return cmp.Or(cmp.Compare(e.CreatedAt.Unix(), before.CreatedAt.Unix()), cmp.Compare(e.Cluster, before.Cluster)) < 0
		}) {
			out = append(out, e)
		}
	}
	return out
}

// storedList and storedEntry are the form of AnnotationList.
type storedList struct {
	Formed  time.Time     `json:"formed"`
	Exports []storedEntry `json:"exports"`
}

type storedEntry struct {
	Cluster   ClusterID  `json:"cluster"`
	UID       types.UID  `json:"uid,omitempty"`
	CreatedAt *time.Time `json:"createdAt,omitempty"`
	Scoped    bool       `json:"scoped,omitempty"`
	Absent    string     `json:"absent,omitempty"`
	Since     *time.Time `json:"since,omitempty"`
}

// String is the value of AnnotationList. It is the same for equal lists.
func (l List) String() string {
	stored := storedList{Formed: l.Formed.UTC(), Exports: []storedEntry{}}
	for _, e := range l.Entries {
		s := storedEntry{Cluster: e.Cluster, UID: e.UID, CreatedAt: stamp(e.CreatedAt), Scoped: e.Scoped}
		if e.Absent != SourcePublished && e.Absent != 0 {
			s.Absent, s.Since = e.Absent.String(), stamp(e.Since)
		}
		stored.Exports = append(stored.Exports, s)
	}
	text, _ := json.Marshal(stored) // holds nothing that JSON cannot express
	return string(text)
}

// stamp is t in UTC; nil if it is zero.
func stamp(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// ParseList reads the value of AnnotationList. The error says what cannot be read; then
// there is no list.
func ParseList(text string) (List, error) {
	var stored storedList
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return List{}, fmt.Errorf("annotation %s: %w", AnnotationList, err)
	}
	if stored.Formed.IsZero() {
		return List{}, fmt.Errorf("annotation %s: formed is missing; expected an RFC 3339 time", AnnotationList)
	}
	out := List{Formed: stored.Formed.UTC()}
	for i, s := range stored.Exports {
		e := Entry{Cluster: s.Cluster, UID: s.UID, Scoped: s.Scoped, Absent: SourcePublished}
		if _, repeated := out.Find(s.Cluster); repeated || len(validation.IsDNS1123Label(string(s.Cluster))) > 0 {
			return List{}, fmt.Errorf("annotation %s: exports[%d].cluster is %s; expected the id of a cluster, once", AnnotationList, i, Quote(string(s.Cluster)))
		}
		if s.CreatedAt != nil {
			e.CreatedAt = s.CreatedAt.UTC()
		}
		if s.Absent != "" {
			state, ok := parseSourceState(s.Absent)
			if !ok || s.Since == nil {
				return List{}, fmt.Errorf("annotation %s: exports[%d].absent is %s; expected Ended, Suspended, Refused or Missing, with a time in since", AnnotationList, i, Quote(s.Absent))
			}
			e.Absent, e.Since = state, s.Since.UTC()
		}
		out.Entries = append(out.Entries, e)
	}
	return out, nil
}
