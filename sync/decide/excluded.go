// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// exclusion is what policies forbid of an export to some clusters, though not to all.
type exclusion struct {
	// clusters are those to which the export is not published.
	clusters []string
	// grace is that of clusters that read the export still; its until is zero if there
	// is none.
	grace grace
}

// exclusionOf is the exclusion of a view: all clusters that policies exclude, but for
// those that read the export and that only violations name whose grace period has not
// ended.
func exclusionOf(v ExportView) exclusion {
	out := exclusion{grace: grace{since: map[string]time.Time{}}}
	recorded, _ := deniedSince(v.Local, v.Records)
	since := func(violation decision.Violation) time.Time {
		if at, known := recorded[violation.Policy]; known && !at.After(v.Now) { // a clock that went back prolongs nothing
			return at
		}
		return v.Now.UTC().Truncate(time.Second)
	}
	for _, id := range v.Local.Verdict.Excluded {
		named := slices.DeleteFunc(slices.Clone(v.Local.Verdict.Violations), func(n decision.Violation) bool { return !slices.Contains(n.Clusters, id) })
		isOver := func(n decision.Violation) bool { return n.Grace <= 0 || !v.Now.Before(since(n).Add(n.Grace)) }
		if len(named) == 0 || slices.ContainsFunc(named, isOver) || !v.isReadBy(model.ClusterID(id)) {
			out.clusters = append(out.clusters, id)
			continue
		}
		for _, n := range named {
			out.grace.since[n.Policy] = since(n)
			if end := since(n).Add(n.Grace); out.grace.until.IsZero() || end.Before(out.grace.until) {
				out.grace.until = end
			}
		}
	}
	return out
}

// announce keeps in the record since when clusters lose the export that read it still,
// and decides again when the first of them does.
func (e exclusion) announce(d *ExportDecision, now time.Time) {
	if e.grace.until.IsZero() {
		return
	}
	d.Plan.Annotations = sinceAnnotations(e.grace.since)
	d.Again, d.Finding.WithdrawnAt = e.grace.until.Sub(now), e.grace.until
}

// isReadBy reports whether a member can read a live record of the export now.
func (v ExportView) isReadBy(id model.ClusterID) bool {
	isMember := slices.ContainsFunc(v.Members, func(m model.Member) bool { return m.ID == id })
	shared, scoped := model.ExchangeNamespace(v.Self), model.ScopedExchangeNamespace(v.Self, id)
	for _, record := range v.Records {
		if isMember && isLive(record) && record.Spec.ExportUID == v.Local.Export.UID && (record.Namespace == shared || record.Namespace == scoped) {
			return true
		}
	}
	return false
}

// publishedScope is where an export is published: its effective scope without some
// clusters that policies exclude. A scope of every member becomes the list of the
// others. The error, which comes with a scope that holds no cluster, says why the
// export is published nowhere.
func publishedScope(self model.ClusterID, local LocalExport, members []model.Member, without []string) (model.Scope, error) {
	scope, err := model.EffectiveScope(local.Key, local.Export, local.Namespace, members)
	if err != nil || len(without) == 0 {
		return scope, err
	}
	left, lost, published := audienceOf(self, scope, members).Without(without)
	switch {
	case len(lost) == 0:
		return scope, nil
	case published:
		ids := make([]model.ClusterID, len(left))
		for i, id := range left {
			ids[i] = model.ClusterID(id)
		}
		return model.ScopeOf(ids...), nil
	case len(left) == 0:
		return model.Scope{}, errors.New("policies forbid the export to every cluster in its scope: " + violations(local.Verdict))
	}
	return model.Scope{}, fmt.Errorf("policies forbid the export of %s to %d of %d members, and each of the others would need a record of its own, "+
		"of which at most %d are written; name the clusters in annotation %s, or select them with %s: %s",
		local.Key, len(lost), len(members), decision.MaxInsteadOfAll, model.AnnotationExportTo, model.AnnotationExportToSelector, violations(local.Verdict))
}

// audienceOf are the clusters of a scope, which are all members if nothing narrows it.
func audienceOf(self model.ClusterID, scope model.Scope, members []model.Member) decision.Audience {
	out := decision.Audience{Self: string(self), All: scope.All()}
	for _, id := range scope.Clusters() {
		out.Clusters = append(out.Clusters, string(id))
	}
	for i := 0; out.All && i < len(members); i++ {
		out.Clusters = append(out.Clusters, string(members[i].ID))
	}
	return out
}
