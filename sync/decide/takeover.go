// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"maps"
	"slices"
	"strings"
	"time"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
)

// maxFormer is how many former deciding exports a ServiceImport lists.
const maxFormer = 3

// precedence is the order in which the exports of one import are resolved, and what
// follows from it.
type precedence struct {
	ordered []model.Export
	held    []model.Takeover
	// until is when the hold of each export that waits ends by itself, if it does.
	until    map[ExportID]time.Time
	problems []model.Problem
	// joined are exports of which the import did not consist, and that do not wait.
	joined []Joined
	// history are the annotations of the ServiceImport about the past.
	history map[string]string
}

// precedence orders exports. KEP-1645 says oldest first. That lets any member, by a
// creation time in the past, decide the properties of an import that others serve.
// So an export that is not among those of which the import consists (the stored
// ones, which its annotation lists) comes behind all of these, whatever its age, and
// the stored ones keep their order, whatever age they claim now. First match wins:
//
//	--takeover-hold=0, or no export is stored           oldest first
//	the import is young (see Settling)                  oldest first
//	the deciding export is gone: withdrawn, replaced,
//	  not accepted, or its deletion was confirmed       oldest first
//	otherwise the stored ones in their order, then the others, oldest first; and at
//	the place that its age gives it
//	  a former deciding export that is back, unchanged in UID and age
//	  an export of a member that had never been read when the import formed
//	  one that an administrator confirmed, or whose hold has ended
//
// While the deciding export is only missing or unread, nothing of the import
// changes, and the order counts for nothing.
//
// An export at another place than its age gives it is held if its own place would
// change the import. One that agrees is not: it serves, and decides nothing. If it
// were made the deciding one because it agrees, it could change its mind later.
func (v ImportView) precedence(exports []model.Export, unsynced []model.ClusterID) precedence {
	byAge, stored := merge.OldestFirst(exports), recorded(v.imported())
	p := v.order(byAge, stored, unsynced)
	if len(stored) > 0 && !v.isYoung() {
		p.joined = p.newcomers(byAge, stored)
	}
	return v.remember(p, stored)
}

// order is precedence without what is remembered of it.
func (v ImportView) order(byAge []model.Export, stored []model.SourceExport, unsynced []model.ClusterID) precedence {
	if v.TakeoverHold == 0 || len(stored) == 0 || v.isYoung() || isGone(stored[0], byAge, unsynced) {
		return v.confirmedNothing(precedence{ordered: byAge})
	}
	ordered := v.storedFirst(byAge, stored)
	if slices.Contains(unsynced, stored[0].Cluster) {
		return precedence{ordered: ordered, until: v.running(func(id ExportID) bool {
			return slices.Contains(unsynced, id.Cluster) || slices.ContainsFunc(byAge, id.isOf)
		})}
	}
	p := v.hold(ordered, byAge)
	maps.Copy(p.until, v.running(func(id ExportID) bool { return slices.Contains(unsynced, id.Cluster) }))
	return p
}

func (v ImportView) isYoung() bool { return v.Now.Before(v.SettlesAt) }

// isGone reports whether an export is not read although its cluster was.
func isGone(decider model.SourceExport, exports []model.Export, unsynced []model.ClusterID) bool {
	return !slices.Contains(unsynced, decider.Cluster) && !slices.ContainsFunc(exports, func(e model.Export) bool { return isSame(e, decider) })
}

func isSame(e model.Export, s model.SourceExport) bool {
	return e.Cluster == s.Cluster && e.UID == s.UID
}

// storedFirst is the order without any confirmation.
func (v ImportView) storedFirst(byAge []model.Export, stored []model.SourceExport) []model.Export {
	var ordered, others, exempt []model.Export
	for _, s := range stored {
		at := slices.IndexFunc(byAge, func(e model.Export) bool { return isSame(e, s) })
		if at >= 0 && position(ordered, s.Cluster) < 0 {
			ordered = append(ordered, byAge[at])
		}
	}
	former := v.former()
	for _, e := range byAge {
		switch {
		case slices.ContainsFunc(stored, func(s model.SourceExport) bool { return isSame(e, s) }):
		case slices.Contains(v.FormedWithout, e.Cluster),
			slices.ContainsFunc(former, func(s model.SourceExport) bool { return isSame(e, s) && e.CreatedAt.Unix() == s.CreatedAt.Unix() }):
			exempt = append(exempt, e)
		default:
			others = append(others, e)
		}
	}
	ordered = append(ordered, others...)
	for _, e := range exempt {
		ordered = moved(append(ordered, e), byAge, e)
	}
	return ordered
}

// position is that of the export of cluster in list.
func position(list []model.Export, cluster model.ClusterID) int {
	return slices.IndexFunc(list, func(e model.Export) bool { return e.Cluster == cluster })
}

// isBehindYounger reports whether a younger export comes before e.
func isBehindYounger(ordered, byAge []model.Export, e model.Export) bool {
	return slices.ContainsFunc(ordered[:position(ordered, e.Cluster)], func(other model.Export) bool {
		return position(byAge, other.Cluster) > position(byAge, e.Cluster)
	})
}

// moved is ordered with e before the first export that is younger.
func moved(ordered, byAge []model.Export, e model.Export) []model.Export {
	out := slices.DeleteFunc(slices.Clone(ordered), func(other model.Export) bool { return other.Cluster == e.Cluster })
	at := slices.IndexFunc(out, func(other model.Export) bool {
		return position(byAge, other.Cluster) > position(byAge, e.Cluster)
	})
	if at < 0 {
		return append(out, e)
	}
	return slices.Insert(out, at, e)
}

// hold finds the exports that wait, and gives those their place that may have it.
func (v ImportView) hold(ordered, byAge []model.Export) precedence {
	confirmed, wasConfirmed, isAmbiguous := v.confirmation(), false, false
	known := slices.Concat(recorded(v.imported()), v.former(), sourceExports(byAge))
	p := precedence{until: map[ExportID]time.Time{}}
	for _, e := range byAge {
		if !isBehindYounger(ordered, byAge, e) {
			wasConfirmed = wasConfirmed || confirmed.isOf(e)
			continue
		}
		own := moved(ordered, byAge, e)
		changes := merge.Changes(ordered, own)
		until, ended := v.holdEnds(e)
		switch {
		case len(changes) == 0:
		case confirmed.isOf(e) && !confirmed.isAmbiguous(e, known):
			ordered, wasConfirmed = own, true
		case ended:
			ordered = own
			p.until[ExportID{e.Cluster, e.UID}] = until // the order is stored only if nothing of the import is kept
		default:
			isAmbiguous = isAmbiguous || confirmed.isOf(e)
			p.wait(sourceExport(ordered[position(own, e.Cluster)]), sourceExport(e), until, changes)
		}
	}
	p.ordered = ordered
	switch {
	case confirmed.text == "" || wasConfirmed:
	case isAmbiguous:
		p.problems = append(p.problems, v.ambiguous(confirmed))
	default:
		p.problems = append(p.problems, v.notHeld(confirmed))
	}
	return p
}

// Joined is an export that serves from now on.
type Joined struct {
	model.SourceExport
	// IsOlder is true if it is older than one that comes before it: it agrees, but does
	// not decide as KEP-1645 would let it.
	IsOlder bool
}

// newcomers are the exports that are not stored, and do not wait.
func (p precedence) newcomers(byAge []model.Export, stored []model.SourceExport) (out []Joined) {
	for _, e := range p.ordered {
		isStored := slices.ContainsFunc(stored, func(s model.SourceExport) bool { return isSame(e, s) })
		waits := slices.ContainsFunc(p.held, func(t model.Takeover) bool { return isSame(e, t.By) })
		if !isStored && !waits {
			out = append(out, Joined{sourceExport(e), isBehindYounger(p.ordered, byAge, e)})
		}
	}
	return out
}

// wait adds the takeover by an export that waits.
func (p *precedence) wait(decider, by model.SourceExport, until time.Time, changes []merge.Change) {
	if !until.IsZero() {
		p.until[ExportID{by.Cluster, by.UID}] = until
	}
	held := model.Takeover{Decider: decider, By: by, Until: until}
	held.Fields, held.Changes = describe(changes)
	p.held = append(p.held, held)
}

// formedWithout are the members that had never been read when the import was made,
// nor since. One that was read once has no such place any more, even if its exports could
// not be given theirs then, because the import was kept: it could stay unread, and
// publish later what is to decide every import that formed meanwhile.
func (v ImportView) formedWithout() []model.ClusterID {
	isMade := v.imported() != nil
	var out []model.ClusterID
	for _, m := range v.Members {
		if !m.Synced && !m.Read && !slices.Contains(v.NotAccepted, m.ID) && (!isMade || slices.Contains(v.FormedWithout, m.ID)) {
			out = append(out, m.ID)
		}
	}
	return out
}

// former are the exports that decided the import before, the last one first.
func (v ImportView) former() []model.SourceExport {
	if own := v.imported(); own != nil {
		return model.ParseSourceExports(own.Annotations[model.AnnotationFormerDeciders])
	}
	return nil
}

// imported is the ServiceImport, or what it was when somebody deleted it; nil if Comity
// does not manage it.
func (v ImportView) imported() *mcsv1beta1.ServiceImport {
	switch own := v.Current.Import; {
	case own == nil:
		return v.Deleted
	case model.IsManaged(own):
		return own
	}
	return nil
}

// remember adds the deciding export to the former ones if another one is to decide.
func (v ImportView) remember(p precedence, stored []model.SourceExport) precedence {
	former := v.former()
	if v.TakeoverHold != 0 && len(stored) > 0 && len(p.ordered) > 0 && !isSame(p.ordered[0], stored[0]) {
		former = append([]model.SourceExport{stored[0]}, former...)
	}
	seen := map[ExportID]bool{}
	former = slices.DeleteFunc(former, func(s model.SourceExport) bool {
		id := ExportID{s.Cluster, s.UID}
		drop := seen[id] || len(p.ordered) > 0 && isSame(p.ordered[0], s)
		seen[id] = true
		return drop
	})
	if len(former) > 0 {
		p.history = map[string]string{model.AnnotationFormerDeciders: model.FormatSourceExports(former[:min(len(former), maxFormer)])}
	}
	return p
}

func sourceExports(exports []model.Export) []model.SourceExport {
	out := make([]model.SourceExport, len(exports))
	for i, e := range exports {
		out[i] = sourceExport(e)
	}
	return out
}

func sourceExport(e model.Export) model.SourceExport {
	return model.SourceExport{Cluster: e.Cluster, UID: e.UID, CreatedAt: e.CreatedAt, Scoped: e.Scoped}
}

// maxChanges bounds how much of the changes is shown, in bytes: the values are text
// of a member.
const maxChanges = 300

func describe(changes []merge.Change) (fields []string, text string) {
	parts := make([]string, len(changes))
	for i, c := range changes {
		parts[i] = model.OneLine(c.String(), 120)
		if !slices.Contains(fields, c.Field) {
			fields = append(fields, c.Field)
		}
	}
	return fields, model.Bound(strings.Join(parts, "; "), maxChanges)
}
