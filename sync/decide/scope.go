// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"slices"

	"github.com/comity-mcs/comity/sync/model"
)

// ExchangeNamespaces are those in which an export may be published: the one that
// every member reads, or one for each cluster of a narrower scope; all of them if policies
// exclude clusters from a scope of every member. None if the scope cannot be read or if
// there is no export.
func ExchangeNamespaces(self model.ClusterID, local LocalExport, members []model.Member) []string {
	if local.Export == nil {
		return nil
	}
	scope, err := model.EffectiveScope(local.Key, local.Export, local.Namespace, members)
	if err != nil {
		return nil
	}
	namespaces, _ := audience(self, scope, members)
	if scope.All() && len(local.Verdict.Excluded) > 0 {
		for _, m := range members {
			namespaces = append(namespaces, model.ScopedExchangeNamespace(self, m.ID))
		}
	}
	return namespaces
}

// audience lists the exchange namespaces of a scope, and the clusters of the
// scope that are no members.
func audience(self model.ClusterID, scope model.Scope, members []model.Member) (namespaces []string, unknown []model.ClusterID) {
	if scope.All() {
		return []string{model.ExchangeNamespace(self)}, nil
	}
	known := make(map[model.ClusterID]bool, len(members))
	for _, m := range members {
		known[m.ID] = true
	}
	for _, id := range scope.Clusters() {
		switch {
		case id == self: // a cluster imports its own export without an exchange
		case !known[id]:
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
	of := func(ids []model.ClusterID) map[string]bool {
		out := map[string]bool{}
		for _, id := range ids {
			out[model.ScopedExchangeNamespace(e.Self, id)] = true
		}
		return out
	}
	known := slices.Clone(e.Removed)
	for _, m := range e.Members {
		known = append(known, m.ID)
	}
	for _, id := range e.excluded {
		known = append(known, model.ClusterID(id))
	}
	left, in := of(known), of(listed.Clusters())
	left[model.ExchangeNamespace(e.Self)] = true
	for namespace := range e.published {
		if !left[namespace] && (listed.All() || in[namespace]) {
			e.leave(namespace)
		}
	}
}
