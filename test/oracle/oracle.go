// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package oracle says what becomes of an import, in the words of docs/imports.md and in the
// simplest way.
//
// It takes a stored list and what was read of each cluster; it gives the next list, the row
// of each source, who decides, what freezes, and which objects exist. It shares no line with
// sync/decide and sync/plan, with which its tests compare it. It knows three properties of
// an import: the type, one port and the session affinity.
package oracle

import (
	"cmp"
	"slices"
)

// Properties are those of an export or of an import.
type Properties struct {
	Headless bool
	Port     int
	Affinity bool // of a headless one, it does not count
}

func (p Properties) equal(q Properties) bool {
	return p.Headless == q.Headless && p.Port == q.Port && (p.Headless || p.Affinity == q.Affinity)
}

// Export is what a cluster publishes. Times are in seconds.
type Export struct {
	UID     string
	Created int
	Scoped  bool // only this cluster reads it
	Properties
}

// Statement is that of a withdrawal.
type Statement struct {
	UID       string
	Created   int
	Suspended bool // the ServiceExport exists still
	Narrowed  bool // others still read it
}

// Source is what is known of one cluster. Own is set of this cluster: "Published", "Ended",
// "Suspended" or "NotRead".
type Source struct {
	Own     string
	Removed bool
	Read    bool
	Export  *Export
	// Statements are those that it makes to all members, and to this one alone.
	Statements []Statement
	// Refused: an administrator keeps it out here. Undecided: whether he does is not known.
	Refused, Undecided bool
	// Confirmed is spec.confirmMissingBefore of the Peer; 0 for none.
	Confirmed int
}

// Entry is one of a list. Out is why it is not published: "Ended", "Suspended", "Refused"
// or "Missing", since Since; empty if it is.
type Entry struct {
	Cluster, UID string
	Created      int
	Scoped       bool
	Out          string
	Since        int
}

// List is what is stored of an import. Formed is 0 if there is none.
type List struct {
	Formed  int
	Entries []Entry
}

// View is all that an answer depends on.
type View struct {
	Now, FormsAt int
	// Members are the clusters of which each must have been read before a list forms.
	Members []string
	List    List
	Sources map[string]Source
	// Found are the clusters of which there are slices.
	Found []string
	// Stands is what the import is now; nil if there is none. Service is true if there is
	// a derived Service.
	Stands  *Properties
	Service bool
	// Takeover is what an administrator confirmed: "<cluster>/<uid>".
	Takeover string
}

// Answer is what becomes of an import.
type Answer struct {
	Waits bool // for members; nothing changes
	List  List
	Rows  map[string]string
	// Decider is the cluster that decides; FrozenBy the same while nothing changes.
	Decider, FrozenBy string
	// Held are the clusters whose takeover waits, sorted.
	Held []string
	// Import is what the ServiceImport is; nil if there is none. Service is true if there
	// is a derived Service.
	Import  *Properties
	Service bool
	// Follow, Keep: clusters whose endpoints are those of now, or stay as they are. Those
	// of all others go.
	Follow, Keep []string
}

const minute = 60

// Import is the answer.
func Import(v View) Answer {
	list := v.List
	forms := list.Formed == 0
	if forms {
		if v.waits() {
			return Answer{Waits: true}
		}
		list = List{Formed: v.Now}
		for _, id := range v.Found { // what they export is not known
			if s := v.Sources[id]; s.Own == "NotRead" || s.Own == "" && s.Export == nil {
				list.Entries = append(list.Entries, Entry{Cluster: id, Created: -1 << 40})
			}
		}
	}
	for _, id := range v.Found { // what is not listed, and was not read
		s := v.Sources[id]
		if !forms && list.of(id) == nil && !s.Removed && (s.Own == "NotRead" || s.Own == "" && !s.Read && !s.Refused) {
			list.Entries = append(slices.Clone(list.Entries), Entry{Cluster: id, Created: -1 << 40})
		}
	}
	a := Answer{Rows: map[string]string{}, List: List{Formed: list.Formed}}
	for id, s := range v.Sources {
		if row := v.row(list.of(id), s); row != "" {
			a.Rows[id] = row
		}
	}
	v.stays(&a, list)
	v.comes(&a, forms)
	v.confirm(&a)
	v.say(&a)
	return a
}

func (v View) waits() bool {
	for _, id := range v.Members {
		if !v.Sources[id].Read && v.Now < v.FormsAt {
			return true
		}
	}
	return false
}

func (l List) of(cluster string) *Entry {
	for _, e := range l.Entries {
		if e.Cluster == cluster {
			return &e
		}
	}
	return nil
}

func isOut(row string) bool  { return row == "Ended" || row == "Suspended" || row == "Refused" }
func isKept(row string) bool { return row == "NotRead" || row == "Missing" }
func isRead(row string) bool { return row == "Published" || row == "Replaced" || row == "Joined" }

// row is the first row of the table that applies; empty if it is no source.
func (v View) row(e *Entry, s Source) string {
	if s.Removed {
		return "Removed"
	}
	published := s.Export != nil && !s.Refused && !s.Undecided && (s.Own == "" || s.Own == "Published")
	if e == nil {
		if published {
			return "Joined"
		}
		return ""
	}
	switch {
	case s.Own == "Ended", s.Own == "Suspended":
		return s.Own
	case s.Export == nil && s.states(*e) != "":
		return s.states(*e)
	case s.Refused:
		return "Refused"
	case published && e.UID != s.Export.UID, published && isOut(e.Out) && v.Now-e.Since >= minute:
		return "Replaced"
	case published:
		return "Published"
	case isOut(e.Out) && s.Own == "" && s.Read && s.Export == nil && e.Since <= s.Confirmed:
		return "MissingConfirmed"
	case isOut(e.Out): // nothing is left of it that could be kept
		return e.Out
	case s.Own == "NotRead", !s.Read, s.Undecided && s.Export != nil:
		return "NotRead"
	case e.Out == "Missing" && e.Since <= s.Confirmed:
		return "MissingConfirmed"
	}
	return "Missing"
}

// states is what the statements say of an entry: of this export, or of one created later.
// That it ended counts before that it is suspended, as in the table. A scope that was
// narrowed to this cluster withdraws nothing from it.
func (s Source) states(e Entry) string {
	found := ""
	for _, w := range s.Statements {
		switch {
		case !s.Read:
		case e.UID != "" && w.UID != e.UID && w.Created <= e.Created:
		case w.Narrowed && e.Scoped && w.UID == e.UID:
		case !w.Suspended && !w.Narrowed:
			found = "Ended"
		case found == "":
			found = "Suspended"
		}
	}
	return found
}

// stays is what becomes of the entries that there are.
func (v View) stays(a *Answer, list List) {
	for _, e := range list.Entries {
		row := a.Rows[e.Cluster]
		switch {
		case row == "Removed" || row == "MissingConfirmed":
			continue
		case isOut(row):
			if !isOut(e.Out) || e.Since > v.Now { // the clock was wrong
				e.Since = v.Now
			}
			if e.Out = row; row == "Ended" && v.Now-e.Since >= minute {
				continue
			}
		case row == "Missing" && (e.Out != "Missing" || e.Since > v.Now):
			e.Out, e.Since = row, v.Now
		case row == "Published":
			e.Out, e.Since, e.Scoped = "", 0, v.Sources[e.Cluster].Export.Scoped
		case row == "Replaced":
			x := v.Sources[e.Cluster].Export
			e = Entry{Cluster: e.Cluster, UID: x.UID, Created: x.Created, Scoped: x.Scoped}
		}
		a.List.Entries = append(a.List.Entries, e)
	}
}

// comes places what replaced an export, in the order of the list, and then what joined, the
// oldest first.
func (v View) comes(a *Answer, forms bool) {
	for _, e := range slices.Clone(a.List.Entries) {
		if a.Rows[e.Cluster] != "Replaced" {
			continue
		}
		at := a.List.at(e.Cluster)
		last := append(slices.Delete(slices.Clone(a.List.Entries), at, at+1), a.List.Entries[at])
		here, there := v.resolve(a, a.List.Entries), v.resolve(a, last)
		changes := !here.equal(*there) && (v.Stands == nil || !here.equal(*v.Stands))
		if changes && v.freezes(a) == "" {
			a.List.Entries = last
		}
	}
	for _, id := range v.byAge(a.Rows, "Joined") {
		x, at := v.Sources[id].Export, len(a.List.Entries)
		if forms || v.Now >= a.List.Formed && v.Now-a.List.Formed < 2*minute && x.Created >= a.List.Formed-2*minute {
			for i, e := range a.List.Entries {
				if x.Created < e.Created || x.Created == e.Created && id < e.Cluster {
					at = i
					break
				}
			}
		}
		a.List.Entries = slices.Insert(a.List.Entries, at, Entry{Cluster: id, UID: x.UID, Created: x.Created, Scoped: x.Scoped})
	}
}

func (l List) at(cluster string) int {
	return slices.IndexFunc(l.Entries, func(e Entry) bool { return e.Cluster == cluster })
}

func (v View) byAge(rows map[string]string, row string) (out []string) {
	for id := range rows {
		if rows[id] == row {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, func(x, y string) int {
		return cmp.Or(cmp.Compare(v.Sources[x].Export.Created, v.Sources[y].Export.Created), cmp.Compare(x, y))
	})
	return out
}

// resolve is what the exports make of the import, in the order of entries; nil if none is
// published.
func (v View) resolve(a *Answer, entries []Entry) *Properties {
	for _, e := range entries {
		if isRead(a.Rows[e.Cluster]) {
			p := v.Sources[e.Cluster].Export.Properties
			p.Affinity = p.Affinity && !p.Headless
			return &p
		}
	}
	return nil
}

// confirm makes the export the first one that an administrator confirmed.
func (v View) confirm(a *Answer) {
	for i, e := range a.List.Entries {
		if e.UID != "" && e.Cluster+"/"+e.UID == v.Takeover && isRead(a.Rows[e.Cluster]) {
			a.List.Entries = slices.Insert(slices.Delete(a.List.Entries, i, i+1), 0, e)
			return
		}
	}
}

// freezes is the entry that decides while it is kept, or out for less than a minute.
func (v View) freezes(a *Answer) string {
	for _, e := range a.List.Entries {
		switch row := a.Rows[e.Cluster]; {
		case isKept(row), isOut(row) && v.Now-e.Since < minute:
			return e.Cluster
		case isRead(row):
			return ""
		}
	}
	return ""
}

// say fills in all but the list.
func (v View) say(a *Answer) {
	served := false
	for _, e := range a.List.Entries {
		row := a.Rows[e.Cluster]
		switch {
		case isKept(row):
			a.Keep = append(a.Keep, e.Cluster)
		case isRead(row):
			a.Follow = append(a.Follow, e.Cluster)
		case row == "Suspended" || row == "Refused":
			a.Service = v.Service
		}
		served = served || isKept(row) || isRead(row)
	}
	if served {
		a.FrozenBy, a.Import = v.freezes(a), v.resolve(a, a.List.Entries)
		for _, e := range a.List.Entries {
			if a.Decider = a.FrozenBy; a.Decider == "" && isRead(a.Rows[e.Cluster]) {
				a.Decider = e.Cluster
			}
			if a.Decider != "" {
				break
			}
		}
		if a.FrozenBy != "" && v.Stands != nil {
			a.Import = v.Stands
		}
		a.Service = a.Service || a.Import != nil // else nothing says what it would be
	}
	a.Held = v.held(a)
	slices.Sort(a.Keep)
	slices.Sort(a.Follow)
}

// held are the exports that would change the import at the place of their age.
func (v View) held(a *Answer) (out []string) {
	var used []Entry
	for _, e := range a.List.Entries {
		if isRead(a.Rows[e.Cluster]) {
			used = append(used, e)
		}
	}
	for i, e := range used {
		for n, other := range used[:i] {
			if e.Created < other.Created || e.Created == other.Created && e.Cluster < other.Cluster {
				moved := slices.Insert(slices.Delete(slices.Clone(used), i, i+1), n, e)
				if !v.resolve(a, moved).equal(*v.resolve(a, used)) {
					out = append(out, e.Cluster)
				}
				break
			}
		}
	}
	slices.Sort(out)
	return out
}
