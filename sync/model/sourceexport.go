// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SourceExport is one export of which an import that exists here consists.
type SourceExport struct {
	Cluster ClusterID
	// UID and CreatedAt are those of the ServiceExport; empty if they are not known.
	UID       types.UID
	CreatedAt time.Time
	// Scoped is that of Export.
	Scoped bool
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
	var out []ClusterID
	for _, e := range list.Entries {
		out = append(out, e.Cluster)
	}
	return out
}
