// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
)

// FAULT 38: of two clusters with one id, one gets another; then the former id is only
// that of the other cluster.
func TestFault38AnExportUnderAFormerIDOfThisClusterIsNotLost(t *testing.T) {
	type round struct {
		standing []model.SourceExport
		own      types.UID
		exports  []model.Export
		want     []model.ClusterID
	}
	with := func(id model.ClusterID, uid types.UID) model.SourceExport {
		return model.SourceExport{Cluster: id, UID: uid}
	}
	for name, rounds := range map[string][]round{
		"the ServiceImport lists it, then only the status does, then nothing": {
			{[]model.SourceExport{with("x", "own"), with("z", "of-z")}, "own", nil, []model.ClusterID{"z"}},
			{[]model.SourceExport{with("x", ""), with("z", "of-z")}, "own", nil, []model.ClusterID{"z"}},
			{[]model.SourceExport{with("z", "of-z")}, "own", nil, []model.ClusterID{"z"}},
			{[]model.SourceExport{with("x", "")}, "own", nil, []model.ClusterID{"x"}},
		},
		"the other cluster exports it, and then loses it": {
			{[]model.SourceExport{with("x", "own")}, "own", []model.Export{{Cluster: "x", UID: "of-x"}}, []model.ClusterID{"x"}},
			{[]model.SourceExport{with("x", "of-x")}, "own", nil, []model.ClusterID{"x"}},
		},
		"the other cluster exported it meanwhile": {
			{[]model.SourceExport{with("x", "own")}, "own", nil, nil},
			{[]model.SourceExport{with("x", "")}, "own", []model.Export{{Cluster: "x", UID: "of-x"}}, []model.ClusterID{"x"}},
			{[]model.SourceExport{with("x", "")}, "own", nil, []model.ClusterID{"x"}},
		},
		"this cluster exports nothing of that name": {
			{[]model.SourceExport{with("x", "of-x"), with("z", "")}, "", nil, []model.ClusterID{"x", "z"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var f formerIDs
			for n, r := range rounds {
				var got []model.ClusterID
				for _, s := range f.others(key("web"), r.standing, r.own, r.exports) {
					got = append(got, s.Cluster)
				}
				if diff := cmp.Diff(r.want, got); diff != "" {
					t.Errorf("round %d (-want +got):\n%s", n, diff)
				}
			}
			if f.others(key("web"), nil, "own", nil); len(f.of) > 0 {
				t.Errorf("remembered: %v", f.of)
			}
		})
	}
}
