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

// exclude finds the clusters that policies exclude, but for those that read the export and
// that only violations name whose grace period has not ended; grace is that of these.
func (e *exporting) exclude() {
	recorded, _ := deniedSince(e.Local, e.Records)
	e.grace.since = map[string]time.Time{}
	for _, id := range e.Local.Verdict.Excluded {
		named := slices.DeleteFunc(slices.Clone(e.Local.Verdict.Violations), func(n decision.Violation) bool { return !slices.Contains(n.Clusters, id) })
		if g, in := graceFor(named, recorded, e.Now); in && e.isReadBy(model.ClusterID(id)) {
			e.grace = e.grace.and(g)
		} else {
			e.excluded = append(e.excluded, id)
		}
	}
}

// isReadBy reports whether a member can read a live record of the export now.
func (e *exporting) isReadBy(id model.ClusterID) bool {
	isMember := slices.ContainsFunc(e.Members, func(m model.Member) bool { return m.ID == id })
	shared, scoped := model.ExchangeNamespace(e.Self), model.ScopedExchangeNamespace(e.Self, id)
	for _, record := range e.Records {
		if isMember && isLive(record) && record.Spec.ExportUID == e.Local.Export.UID && (record.Namespace == shared || record.Namespace == scoped) {
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
		return model.Scope{}, errors.New("policies forbid the export to every cluster in its scope: " + joinViolations(local.Verdict.Violations, "; "))
	}
	return model.Scope{}, fmt.Errorf("policies forbid the export of %s to %d of %d members, and each of the others would need a record of its own, "+
		"of which at most %d are written; name the clusters in annotation %s, or select them with %s: %s",
		local.Key, len(lost), len(members), decision.MaxInsteadOfAll, model.AnnotationExportTo, model.AnnotationExportToSelector, joinViolations(local.Verdict.Violations, "; "))
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
