// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// A peer that is being read when its exports are asked for seems to export
// nothing. To believe that would delete its endpoints.
func TestAMemberIsSyncedOnlyIfBothReadsFoundItSo(t *testing.T) {
	before := []model.Member{{ID: "b", Synced: true}, {ID: "c"}, {ID: "d", Synced: true}, {ID: "gone"}, {ID: "left", Synced: true}}
	after := []model.Member{{ID: "b", Synced: true}, {ID: "c", Synced: true}, {ID: "d"}, {ID: "new"}}
	want := []model.Member{{ID: "b", Synced: true}, {ID: "c"}, {ID: "d"}, {ID: "new"}, {ID: "gone"}, {ID: "left", Synced: true}}
	if diff := cmp.Diff(want, ReadTwice(before, after)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatIsImported(t *testing.T) {
	local := LocalExport{
		Key:       web,
		Export:    &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}},
		Service:   &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		Slices:    []*discoveryv1.EndpointSlice{{AddressType: "IPv4"}, {AddressType: "FQDN"}},
		Verdict:   decision.Verdict{Outcome: decision.Allowed},
	}
	fromB := []model.Export{{Cluster: "b", Key: web, Type: mcsv1beta1.ClusterSetIP}}
	synced := []model.Member{{ID: "b", Synced: true}}
	view := func(change func(*ImportView)) ImportView {
		v := ImportView{Self: "a", ComityNamespace: "comity-system", Local: local, Members: synced, Exports: fromB}
		change(&v)
		return v
	}
	for name, tc := range map[string]struct {
		view     ImportView
		write    bool
		resolved []model.ClusterID // the constituents
		unsynced []model.ClusterID // what the plan must keep
	}{
		"the exports of both":                 {view(func(*ImportView) {}), true, []model.ClusterID{"b", "a"}, nil},
		"a peer that was not read":            {view(func(v *ImportView) { v.Members, v.Exports = []model.Member{{ID: "b"}}, nil }), true, []model.ClusterID{"a"}, []model.ClusterID{"b"}},
		"an export that policies deny":        {view(func(v *ImportView) { v.Local.Verdict.Outcome = decision.Denied }), true, []model.ClusterID{"b"}, nil},
		"policies that were not asked":        {view(func(v *ImportView) { v.Local.Verdict.Outcome = decision.NotEvaluated }), true, []model.ClusterID{"b"}, []model.ClusterID{"a"}},
		"a deletion that is held":             {view(func(v *ImportView) { v.Exports, v.Held = nil, []model.Hold{{Cluster: "b"}} }), true, []model.ClusterID{"a"}, []model.ClusterID{"b"}},
		"no namespace":                        {view(func(v *ImportView) { v.Local.Namespace = nil }), false, nil, nil},
		"a namespace of the cluster's":        {view(func(v *ImportView) { v.Local.Key.Namespace = "kube-system" }), false, nil, nil},
		"another implementation imports":      {view(func(v *ImportView) { v.ImportDisabled = true }), false, []model.ClusterID{"b", "a"}, nil},
		"nothing is exported any more":        {view(func(v *ImportView) { v.Exports, v.Local.Export = nil, nil }), true, nil, nil},
		"a Service that is gone is no export": {view(func(v *ImportView) { v.Local.Service = nil }), true, []model.ClusterID{"b"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := Import(tc.view)
			var resolved []model.ClusterID
			if d.Finding.Resolved != nil {
				for _, c := range d.Finding.Resolved.Constituents {
					resolved = append(resolved, c.Cluster)
				}
			}
			if diff := cmp.Diff(tc.resolved, resolved); diff != "" || d.Write != tc.write {
				t.Errorf("write is %v; constituents (-want +got):\n%s", d.Write, diff)
			}
			if diff := cmp.Diff(tc.unsynced, d.Plan.Unsynced); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			if len(d.Plan.Sources["a"]) > 1 {
				t.Error("a slice of host names is imported")
			}
		})
	}
}

func TestTheFindingSaysWhatWasPlannedAndRefused(t *testing.T) {
	f := ImportFinding{Problems: []model.Problem{{Message: "left out"}}, Sources: []model.Source{{Cluster: "a"}, {Cluster: "b"}}}
	planned := plan.ImportPlan{DerivedName: "derived-1", Withdrawn: []model.ClusterID{"b"}, Problems: []model.Problem{{Message: "planned"}}}
	got := f.AfterPlan(web, planned, []model.Problem{{Reason: model.ReasonRefused, Message: "refused"}}, []Contested{{Kind: "Service", Name: "derived-1", By: "argocd"}})
	var messages []string
	for _, p := range got.Problems {
		messages = append(messages, p.Reason+" "+p.Message[:min(len(p.Message), 25)])
	}
	want := []string{" planned", "Refused refused", " left out", "Contested Service shop/derived-1 is"}
	if diff := cmp.Diff(want, messages); diff != "" || !got.Exists || !got.Sources[1].Withdrawn || got.Sources[0].Withdrawn {
		t.Errorf("got %+v; problems (-want +got):\n%s", got, diff)
	}
	if f.Sources[1].Withdrawn || len(f.Problems) != 1 {
		t.Error("the finding that was given changed")
	}
}
