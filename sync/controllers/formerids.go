// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// formerIDs knows which imports list this cluster's own export under an id that this
// cluster had before. What was imported of that export is in the import under the id
// of now as well. Under the former id it was not lost, whichever cluster has that id
// now, and there is nothing to hold.
//
// The ServiceImport lists the UID of the ServiceExport until it is written with the id
// of now. Its status and its slices name the former id, without a UID, a little longer.
type formerIDs struct {
	mu sync.Mutex
	of map[types.NamespacedName]map[model.ClusterID]bool
}

// others returns the exports of standing that are of other clusters. own is the UID of
// this cluster's ServiceExport of that name, empty if there is none; exports are those
// that the members publish under that name now.
func (f *formerIDs) others(key types.NamespacedName, standing []model.SourceExport, own types.UID, exports []model.Export) []model.SourceExport {
	f.mu.Lock()
	defer f.mu.Unlock()
	former := map[model.ClusterID]bool{}
	var out []model.SourceExport
	for _, s := range standing {
		isOwn := s.UID == "" && f.of[key][s.Cluster] || s.UID != "" && s.UID == own
		if isOwn && !slices.ContainsFunc(exports, func(e model.Export) bool { return e.Cluster == s.Cluster }) {
			former[s.Cluster] = true
			continue
		}
		out = append(out, s)
	}
	switch {
	case len(former) == 0:
		delete(f.of, key)
	case f.of == nil:
		f.of = map[types.NamespacedName]map[model.ClusterID]bool{key: former}
	default:
		f.of[key] = former
	}
	return out
}

// uidOf is the UID of a ServiceExport; empty if there is none.
func uidOf(export *mcsv1beta1.ServiceExport) types.UID {
	if export == nil {
		return ""
	}
	return export.UID
}
