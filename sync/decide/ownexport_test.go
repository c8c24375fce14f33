// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// FAULT 27: cluster a is started with the id of its peer b. What it imported from b is no
// export of its own that was withdrawn.
func TestWhatWasImportedFromAClusterWhoseIDThisOneHasNowIsKept(t *testing.T) {
	imported := &mcsv1beta1.ServiceImport{ObjectMeta: ours("web", nil)}
	imported.Annotations = map[string]string{model.AnnotationExports: model.FormatSourceExports([]model.SourceExport{{Cluster: "b", UID: "theirs", CreatedAt: at(5)}})}
	export := func(uid types.UID) *mcsv1beta1.ServiceExport {
		return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name, UID: uid}}
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 80}}}}
	both := plan.Current{Import: imported, Slices: []*discoveryv1.EndpointSlice{derivedSlice("b")}}
	for name, tc := range map[string]struct {
		doubtful bool
		export   *mcsv1beta1.ServiceExport
		current  plan.Current
		kept     bool
	}{
		"the id is doubtful":                                      {true, nil, both, true},
		"the id is doubtful, and there is no slice":               {true, nil, plan.Current{Import: imported}, true},
		"the id is doubtful, and there is no ServiceImport":       {true, nil, plan.Current{Slices: both.Slices}, true},
		"the id is doubtful, and this cluster exports it as well": {true, export("ours"), both, true},
		"the id is doubtful, and this cluster exports exactly it": {true, export("theirs"), both, false},
		"the id is doubtful, and only this cluster exports it":    {true, export("ours"), plan.Current{}, true},
		"the id is doubtful, and nothing is here":                 {true, nil, plan.Current{}, false},
		"the id is this cluster's":                                {false, nil, both, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := ImportView{
				Self: "b", IDDoubtful: tc.doubtful, ComityNamespace: "comity-system", Definition: Definition{Created: at(0)}, Current: tc.current,
				Local: LocalExport{Key: web, Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, Export: tc.export, Service: service, Verdict: decision.Verdict{Outcome: decision.Allowed}},
			}
			d := Import(v)
			if kept := slices.Contains(d.Plan.Unsynced, "b"); kept != tc.kept {
				t.Errorf("kept is %v, want %v", kept, tc.kept)
			}
			if again := d.Again(at(7)); (again > 0) != tc.kept {
				t.Errorf("decided again after %s", again)
			}
			changed := slices.ContainsFunc(plan.Import(d.Plan).Actions, func(a plan.Action) bool { return a.Verb == plan.Delete || a.Verb == plan.Create })
			if tc.kept && changed {
				t.Errorf("changed: %+v", plan.Import(d.Plan).Actions)
			}
		})
	}
}

// The exporter is an importer of its own export, too: who deletes the definition of
// ServiceExports takes no endpoint from it.
func TestTheOwnImportKeepsAnExportThatWasLost(t *testing.T) {
	imported := &mcsv1beta1.ServiceImport{ObjectMeta: ours("web", nil)}
	imported.Annotations = map[string]string{model.AnnotationExports: model.FormatSourceExports([]model.SourceExport{{Cluster: "a", UID: "own", CreatedAt: at(5)}})}
	for name, tc := range map[string]struct {
		definition Definition
		slices     []*discoveryv1.EndpointSlice
		kept       bool
	}{
		"it was deleted":                                 {Definition{Created: at(0)}, []*discoveryv1.EndpointSlice{derivedSlice("a")}, false},
		"the definition is missing":                      {Definition{Problem: "missing"}, []*discoveryv1.EndpointSlice{derivedSlice("a")}, true},
		"the definition was made again":                  {Definition{Created: at(6)}, []*discoveryv1.EndpointSlice{derivedSlice("a")}, true},
		"the definition is missing, and nothing is here": {Definition{Problem: "missing"}, []*discoveryv1.EndpointSlice{derivedSlice("b")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := ImportView{
				Self: "a", ComityNamespace: "comity-system", Definition: tc.definition, Current: plan.Current{Import: imported, Slices: tc.slices},
				Local: LocalExport{Key: web, Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}},
			}
			d := Import(v)
			if kept := slices.Contains(d.Plan.Unsynced, "a"); kept != tc.kept || d.OwnExportLost != tc.kept || (d.Again(at(7)) > 0) != tc.kept {
				t.Errorf("kept is %v, lost %v, again after %s; want %v", kept, d.OwnExportLost, d.Again(at(7)), tc.kept)
			}
		})
	}
}
