// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"maps"
	"slices"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// Standing are the exports of other clusters of which the import that exists here
// consists, by cluster: those of the annotation of its ServiceImport, and, without a
// UID, the clusters that only its status or the labels of its slices name. A user may
// have removed the annotation, and an earlier version did not write it.
func Standing(current plan.Current, self model.ClusterID) []model.SourceExport {
	found := standing(current)
	delete(found, self)
	return slices.SortedFunc(maps.Values(found), func(a, b model.SourceExport) int { return cmp.Compare(a.Cluster, b.Cluster) })
}

// ownMayBeImported reports whether what the import has under this cluster's id may be
// another cluster's: the id is doubtful, and it is not the export that this cluster has.
// That one is not added under such an id, either.
func (v ImportView) ownMayBeImported() bool {
	own, stands := standing(v.Current)[v.Self]
	switch {
	case !v.IDDoubtful:
		return false
	case v.Local.Export == nil:
		return stands
	default:
		return !stands || own.UID != v.Local.Export.UID
	}
}

// standing is Standing by cluster, this one included.
func standing(current plan.Current) map[model.ClusterID]model.SourceExport {
	found := map[model.ClusterID]model.SourceExport{}
	named := func(id model.ClusterID) {
		if _, has := found[id]; !has && id != "" {
			found[id] = model.SourceExport{Cluster: id}
		}
	}
	for _, e := range recorded(current.Import) {
		if _, has := found[e.Cluster]; !has {
			found[e.Cluster] = e
		}
	}
	if own := current.Import; own != nil && model.IsManaged(own) {
		for _, c := range own.Status.Clusters {
			named(model.ClusterID(c.Cluster))
		}
	}
	for _, s := range current.Slices {
		if model.IsManaged(s) {
			named(model.ClusterID(s.Labels[model.LabelSourceCluster]))
		}
	}
	return found
}

// recorded are the exports that the annotation of a ServiceImport lists, the
// deciding one first; none of one that Comity does not manage.
func recorded(imported *mcsv1beta1.ServiceImport) []model.SourceExport {
	if imported == nil || !model.IsManaged(imported) {
		return nil
	}
	return model.ParseSourceExports(imported.Annotations[model.AnnotationExports])
}

// listed are those of recorded that are no part of the import any more, as long as the
// ServiceImport cannot be changed. Their withdrawals have to stay readable meanwhile:
// without them these exports would count as missing.
func listed(in plan.ImportInput) (out []model.SourceExport) {
	if !plan.IsFrozen(in) {
		return nil
	}
	for _, e := range recorded(in.Current.Import) {
		if !in.Desired.Has(e) && !slices.Contains(in.Unsynced, e.Cluster) {
			out = append(out, e)
		}
	}
	return out
}

// Missing are the clusters, sorted, of which an export is among standing that was
// lost: it is not read although its cluster is, and it was not withdrawn. First
// match wins:
//
//	the cluster was not read                              not missing: unknown
//	no export of that namespace is accepted from it       not missing: not wanted
//	it publishes a valid export of that name              not missing
//	it states the withdrawal of the same ServiceExport,
//	  unless it narrowed the scope of one that was found
//	  where only this cluster reads                       not missing: gone
//	of a ServiceExport created later                      not missing: gone
//	of any, and one of the two has no UID                 not missing: gone
//	of another one                                        missing
//	a record that is not valid, or none                   missing
//
// A withdrawal of an earlier ServiceExport is what a restored store brings back.
// The zero UID of a withdrawal is that of a member that states none, whose absence
// was found to be no accident.
func Missing(
	standing []model.SourceExport, exports []model.Export, withdrawals []model.Withdrawal, members []model.Member, notAccepted []model.ClusterID,
) []model.ClusterID {
	var missing []model.ClusterID
	for _, s := range standing {
		synced := slices.ContainsFunc(members, func(m model.Member) bool { return m.ID == s.Cluster && m.Synced })
		switch {
		case !synced, slices.Contains(notAccepted, s.Cluster):
		case slices.ContainsFunc(exports, func(e model.Export) bool { return e.Cluster == s.Cluster }):
		case slices.ContainsFunc(withdrawals, func(w model.Withdrawal) bool { return withdraws(w, s) }):
		default:
			missing = append(missing, s.Cluster)
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}

// withdraws reports whether w is the withdrawal of s, or of a later export of that
// cluster, before which s was replaced.
func withdraws(w model.Withdrawal, s model.SourceExport) bool {
	switch {
	case w.Cluster != s.Cluster:
		return false
	case w.UID == s.UID:
		return !w.Narrowed || !s.Scoped
	}
	return w.UID == "" || s.UID == "" || w.CreatedAt.After(s.CreatedAt)
}
