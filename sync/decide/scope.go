// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/comity-mcs/comity/policies/decision"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// ExchangeNamespaces are those in which an export may be published: the one that
// every member reads, or one for each cluster of a narrower scope; all of them if policies
// exclude clusters from a scope of every member. None if the scope cannot be read or if
// there is no export.
func ExchangeNamespaces(v ExportView) []string {
	if v.Local.Export == nil {
		return nil
	}
	scope, err := model.EffectiveScope(v.Local.Key, v.Local.Export, v.Local.Namespace, v.Members)
	if err != nil {
		return nil
	}
	namespaces, _ := audience(v.Self, scope, v.Members)
	if scope.All() && len(v.Local.Verdict.Excluded)+len(recordedExclusions(v.Records)) > 0 {
		namespaces = append(namespaces, model.Map(v.Members, func(m model.Member) string { return model.ScopedExchangeNamespace(v.Self, m.ID) })...)
	}
	return namespaces
}

// audience lists the exchange namespaces of a scope, and the clusters of the
// scope that are no members.
func audience(self model.ClusterID, scope model.Scope, members []model.Member) (namespaces []string, unknown []model.ClusterID) {
	if scope.All() {
		return []string{model.ExchangeNamespace(self)}, nil
	}
	for _, id := range scope.Clusters() {
		switch {
		case id == self: // a cluster imports its own export without an exchange
		case !isMember(id, members):
			unknown = append(unknown, id)
		default:
			namespaces = append(namespaces, model.ScopedExchangeNamespace(self, id))
		}
	}
	return namespaces, unknown
}

// leaveUnknown leaves what is published for a cluster that is no member now as it is,
// unless a list or a policy leaves that cluster out, or an administrator removed it. The
// labels of a cluster without a Peer are unknown, so that no selector decides about it.
func (e *exporting) leaveUnknown() {
	listed, err := model.ListedScope(e.Local.Key, e.Local.Export, e.Local.Namespace)
	if err != nil || e.d.Plan.Moved {
		return
	}
	of := func(id model.ClusterID) string { return model.ScopedExchangeNamespace(e.Self, id) }
	known := slices.Concat(e.Removed, model.Map(e.excluded, idOf), model.Map(e.Members, func(m model.Member) model.ClusterID { return m.ID }))
	unknown := sets.KeySet(e.published).Delete(model.ExchangeNamespace(e.Self)).Delete(model.Map(known, of)...)
	if !listed.All() {
		unknown = unknown.Intersection(sets.New(model.Map(listed.Clusters(), of)...))
	}
	e.leave(sets.List(unknown)...)
}

// exclude finds the clusters that policies exclude, but for those that read the export and
// that only violations name whose grace period has not ended; grace is that of these.
func (e *exporting) exclude() {
	recorded := deniedSince(e.publishing)
	e.grace.since = map[string]time.Time{}
	for _, id := range e.Local.Verdict.Excluded {
		named := model.Without(e.Local.Verdict.Violations, func(n decision.Violation) bool { return !slices.Contains(n.Clusters, id) })
		member := model.ClusterID(id)
		isRead := isMember(member, e.Members) && (e.published[model.ExchangeNamespace(e.Self)] || e.published[model.ScopedExchangeNamespace(e.Self, member)])
		if g, in := graceFor(named, recorded, e.Now); in && isRead {
			e.grace = e.grace.and(g)
		} else {
			e.excluded = append(e.excluded, id)
		}
	}
	// A cluster that is no member now is not known to the policies, but may still read what is for
	// every member. Nor do they know what was excluded before if they could not be evaluated.
	for _, id := range recordedExclusions(e.publishing) {
		if !isMember(idOf(id), e.Members) || e.Local.Verdict.Outcome != decision.Allowed {
			e.remembered = append(e.remembered, id)
		}
	}
	e.excluded = append(e.excluded, e.remembered...)
}

// recordedExclusions are the clusters to which policies forbade the export of some records.
func recordedExclusions(records []*exchangev1alpha1.ExportRecord) (excluded []string) {
	for _, r := range records {
		if text := r.Annotations[model.AnnotationExcluded]; text != "" {
			excluded = append(excluded, strings.Split(text, ",")...)
		}
	}
	return excluded
}

// idOf is the id of a cluster that policies name.
func idOf(cluster string) model.ClusterID { return model.ClusterID(cluster) }

func isMember(id model.ClusterID, members []model.Member) bool {
	return slices.ContainsFunc(members, func(m model.Member) bool { return m.ID == id })
}

// publishedScope is where an export is published: its effective scope without the
// clusters that policies exclude. A scope of every member becomes the list of the
// others. The error, which comes with a scope that holds no cluster, says why the
// export is published nowhere.
func (e *exporting) publishedScope() (model.Scope, error) {
	local := e.Local
	scope, err := model.EffectiveScope(local.Key, local.Export, local.Namespace, e.Members)
	if err != nil || len(e.excluded) == 0 {
		return scope, err
	}
	left, lost, published := e.audienceOf(scope).Without(e.excluded)
	switch {
	case len(lost) == 0:
		return scope, nil
	case published:
		return model.ScopeOf(model.Map(left, idOf)...), nil
	case len(left) == 0:
		return model.Scope{}, errors.New("policies forbid the export to every cluster in its scope: " + joinViolations(local.Verdict.Violations, "; "))
	}
	err = fmt.Errorf("policies forbid the export of %s to %d of %d members, and at most %d records for single clusters are written; name the clusters "+
		"in annotation %s, or select them with %s: %s",
		local.Key, len(lost), len(e.Members), decision.MaxInsteadOfAll, model.AnnotationExportTo, model.AnnotationExportToSelector, joinViolations(local.Verdict.Violations, "; "))
	// One member more takes the export from none that has it.
	kept := model.Without(left, func(id string) bool { return !e.published[model.ScopedExchangeNamespace(e.Self, idOf(id))] })
	if len(kept) == 0 {
		return model.Scope{}, err
	}
	e.problems = append(e.problems, err.Error())
	return model.ScopeOf(model.Map(kept, idOf)...), nil
}

// audienceOf are the clusters of a scope. If nothing narrows it, these are all members, and
// who was excluded when it was one.
func (e *exporting) audienceOf(scope model.Scope) decision.Audience {
	out := decision.Audience{Self: string(e.Self), All: scope.All(), Clusters: model.Map(scope.Clusters(), func(id model.ClusterID) string { return string(id) })}
	if out.All {
		out.Clusters = sets.List(sets.New(e.remembered...).Insert(model.Map(e.Members, func(m model.Member) string { return string(m.ID) })...))
	}
	return out
}

// grace is the time for which an export that policies deny stays published. It is
// announced in the conditions of the ServiceExport, so that its owner can act first.
type grace struct {
	// since is when each policy that denies the export was first found to, to the
	// second; recorded in the exchange, so that a restart does not begin it again.
	since map[string]time.Time
	// until is when the export is withdrawn: when the first grace period ends.
	until time.Time
}

// graceOf is the grace of a denied export; false if it is withdrawn now: it is not
// published, a violation of it has no grace period, or one has ended. Records are what
// the exchange holds of the export.
func graceOf(local LocalExport, records []*exchangev1alpha1.ExportRecord, now time.Time) (grace, bool) {
	live := publishing(local.Export, records)
	g, in := graceFor(local.Verdict.Violations, deniedSince(live), now)
	return g, in && len(live) > 0
}

// graceFor is the grace that violations leave; false if one of them leaves none, or if there
// are none.
func graceFor(violations []decision.Violation, recorded map[string]time.Time, now time.Time) (grace, bool) {
	g := grace{since: map[string]time.Time{}}
	for _, v := range violations {
		since, known := recorded[v.Policy]
		if !known || since.After(now) { // a clock that went back prolongs nothing
			since = now.UTC().Truncate(time.Second)
		}
		g = g.and(grace{since: map[string]time.Time{v.Policy: since}, until: since.Add(v.Grace)})
	}
	return g, now.Before(g.until)
}

// and is what ends with the first of both.
func (g grace) and(other grace) grace {
	maps.Copy(g.since, other.since)
	if g.until.IsZero() || other.until.Before(g.until) {
		g.until = other.until
	}
	return g
}

// deniedSince is what the records that publish an export say about its grace. Of two times
// of one policy the earlier counts.
func deniedSince(live []*exchangev1alpha1.ExportRecord) map[string]time.Time {
	since := map[string]time.Time{}
	for _, record := range live {
		recorded := map[string]time.Time{}
		if json.Unmarshal([]byte(record.Annotations[model.AnnotationDeniedSince]), &recorded) != nil {
			continue // there is none, or somebody changed it
		}
		for policy, at := range recorded {
			if known, has := since[policy]; !has || at.Before(known) {
				since[policy] = at
			}
		}
	}
	return since
}

// announce decides again when the grace ends.
func (e *exporting) announce() {
	e.d.Again = model.Sooner(e.d.Again, e.grace.until.Sub(e.Now))
	e.d.Finding.WithdrawnAt = e.grace.until
}

// annotate has the record that publishes the export say since when policies deny it, which
// violations they keep, or what it says of that already, and to which clusters they forbid it.
func (e *exporting) annotate() {
	if e.d.Plan.Record == nil {
		return
	}
	kept := e.Local.Verdict.Kept
	for _, record := range e.publishing {
		kept = cmp.Or(kept, record.Annotations[model.AnnotationKept])
	}
	excluded := sets.New(model.Without(e.excluded, func(id string) bool { return !isMember(idOf(id), e.Members) })...).Insert(e.remembered...)
	since, _ := json.Marshal(e.grace.since) // names and times, which JSON can express
	if len(e.grace.since) == 0 {
		since = nil
	}
	for key, text := range map[string]string{
		model.AnnotationDeniedSince: string(since), model.AnnotationKept: kept, model.AnnotationExcluded: strings.Join(sets.List(excluded), ","),
	} {
		if text != "" {
			e.d.Plan.Annotations[key] = text
		}
	}
}
