// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"

	"github.com/comity-mcs/comity/sync/model"
)

// ExchangeNamespaces are those in which an export is published: the one that
// every member reads, or one for each cluster of a narrower scope. None if the
// scope cannot be read or if there is no export.
func ExchangeNamespaces(self model.ClusterID, local LocalExport, members []model.Member) []string {
	if local.Export == nil {
		return nil
	}
	scope, err := effectiveScope(local, members)
	if err != nil {
		return nil
	}
	namespaces, _ := audience(self, scope, members)
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

// effectiveScope is the part of the scope of an export that its selector and its
// namespace allow. A scope that cannot be read is never taken for a wider one.
func effectiveScope(local LocalExport, members []model.Member) (model.Scope, error) {
	const unreadable = "%s, annotation %s: %w; it is exported nowhere until that is corrected"
	export, namespace := "ServiceExport "+local.Key.String(), "Namespace "+local.Key.Namespace
	scope, err := model.ScopeOfExport(local.Export)
	if err != nil {
		return model.Scope{}, fmt.Errorf(unreadable, export, model.AnnotationExportTo, err)
	}
	if text, set := local.Export.Annotations[model.AnnotationExportToSelector]; set {
		selected, err := model.ScopeOfSelector(text, members)
		if err != nil {
			return model.Scope{}, fmt.Errorf(unreadable, export, model.AnnotationExportToSelector, err)
		}
		both := scope.Intersect(selected)
		if both.Empty() {
			return both, fmt.Errorf("%s, annotation %s: %q selects %s of the members, annotation %s allows %s, and no cluster is in both; "+
				"change the selector, or the labels of a peer's Secret", export, model.AnnotationExportToSelector, text, orNone(selected), model.AnnotationExportTo, scope)
		}
		scope = both
	}
	if local.Namespace == nil {
		return scope, nil
	}
	limit, err := model.ScopeOfNamespace(local.Namespace)
	if err != nil {
		return model.Scope{}, fmt.Errorf(unreadable, namespace, model.AnnotationExportTo, err)
	}
	both := scope.Intersect(limit)
	if both.Empty() {
		return both, fmt.Errorf("%s: names %s, annotation %s of its Namespace allows %s, and no cluster is in both; change one of the two",
			export, scope, model.AnnotationExportTo, limit)
	}
	return both, nil
}

func orNone(scope model.Scope) string {
	if scope.Empty() {
		return "none"
	}
	return scope.String()
}
