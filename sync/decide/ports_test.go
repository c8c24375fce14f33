// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// twoPorts gives the Service and its slice the ports http and admin, and the export a
// list of ports unless that is empty.
func twoPorts(list string) func(*ExportView) {
	return func(v *ExportView) {
		v.MaintainSelectors = true
		v.Local.Service = &corev1.Service{Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}, {Name: "admin", Port: 90, TargetPort: intstr.FromInt32(9090)},
			},
		}}
		http, admin := "http", "admin"
		slice := v.Local.Slices[0].DeepCopy()
		slice.Ports = []discoveryv1.EndpointPort{{Name: &http}, {Name: &admin}}
		v.Local.Slices = []*discoveryv1.EndpointSlice{slice}
		if list != "" {
			v.Local.Export = v.Local.Export.DeepCopy()
			v.Local.Export.Annotations = map[string]string{model.AnnotationExportPorts: list}
		}
	}
}

// visible are the ports that a plan publishes: of record, targets and slices.
func visible(d ExportDecision) map[string][]string {
	if d.Plan.Record == nil {
		return nil
	}
	out := map[string][]string{}
	numbers := map[int32]string{80: "http", 90: "admin"}
	for _, p := range d.Plan.Record.Ports {
		out["record"] = append(out["record"], p.Name)
	}
	for _, t := range d.Plan.Record.Targets {
		out["targets"] = append(out["targets"], numbers[t.Port])
	}
	for _, s := range d.Plan.Slices {
		for _, p := range s.Ports {
			out["slices"] = append(out["slices"], *p.Name)
		}
	}
	return out
}

func everywhere(names ...string) map[string][]string {
	return map[string][]string{"record": names, "targets": names, "slices": names}
}

func TestOnlySharedPortsArePublished(t *testing.T) {
	headless := func(v *ExportView) { v.Local.Service.Spec.ClusterIP = corev1.ClusterIPNone }
	for name, tc := range map[string]struct {
		view        ExportView
		want        map[string][]string
		publication model.Publication
		says        string
	}{
		"all":                     {exported(twoPorts("")), everywhere("http", "admin"), model.Published, ""},
		"one":                     {exported(twoPorts("http")), everywhere("http"), model.Published, ""},
		"one of a headless one":   {exported(twoPorts("http"), headless), everywhere("http"), model.Published, ""},
		"one, and one not there":  {exported(twoPorts("http,metrics")), everywhere("http"), model.Published, ""},
		"none that is there":      {exported(twoPorts("metrics")), nil, model.PublicationWithheld, `has no port named "metrics"`},
		"a list that is not read": {exported(twoPorts("http,,admin")), nil, model.PublicationWithheld, `item 2 of "http,,admin" is empty`},
		"a list that is not read, while policies cannot be evaluated": {exported(twoPorts("http,,admin"), func(v *ExportView) { v.Local.Verdict = decision.Verdict{} }),
			nil, model.PublicationWithheld, "is empty"},
		"no Service, and a list that is not read": {exported(twoPorts(","), func(v *ExportView) { v.Local.Service = nil }), nil, model.PublicationNone, "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			d := Export(tc.view)
			if diff := cmp.Diff(tc.want, visible(d)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if d.Finding.Publication != tc.publication || !strings.Contains(d.Finding.Detail, tc.says) {
				t.Errorf("publication %v, says %q", d.Finding.Publication, d.Finding.Detail)
			}
			if tc.want == nil && outcome(d)["comity-a"] != "withdrawn" {
				t.Errorf("the record stands: %v", outcome(d))
			}
		})
	}
}

// What is shared no longer goes at once, and what policies did not evaluate does not come.
func TestPortsWhilePoliciesCannotBeEvaluated(t *testing.T) {
	published := func(names ...string) func(*ExportView) {
		return func(v *ExportView) {
			numbers := map[string]int32{"http": 80, "admin": 90}
			for _, name := range names {
				v.Records[0].Spec.Ports = append(v.Records[0].Spec.Ports, mcsv1beta1.ServicePort{Name: name, Port: numbers[name], Protocol: corev1.ProtocolTCP})
				v.Records[0].Spec.Targets = append(v.Records[0].Spec.Targets, model.Target{Port: numbers[name], Protocol: corev1.ProtocolTCP})
			}
			v.Local.Verdict = decision.Verdict{Problem: "deadline"}
		}
	}
	for name, tc := range map[string]struct {
		view ExportView
		want map[string][]string
	}{
		"nothing changed":                                  {exported(twoPorts("http"), published("http")), everywhere("http")},
		"the list was shortened":                           {exported(twoPorts("http"), published("http", "admin")), everywhere("http")},
		"the list was extended":                            {exported(twoPorts("http,admin"), published("http")), everywhere("http")},
		"the annotation was removed":                       {exported(twoPorts(""), published("http")), everywhere("http")},
		"the list names another port: nothing may be left": {exported(twoPorts("admin"), published("http")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.view.Records[0].DeepCopy()
			d := Export(tc.view)
			if diff := cmp.Diff(tc.want, visible(d)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if tc.want == nil && outcome(d)["comity-a"] != "withdrawn" {
				t.Errorf("the record stands: %v", outcome(d))
			}
			if diff := cmp.Diff(before, tc.view.Records[0]); diff != "" {
				t.Errorf("the record that was read is changed:\n%s", diff)
			}
		})
	}
}

func TestTheExporterImportsWhatItShares(t *testing.T) {
	for name, tc := range map[string]struct {
		list    string
		want    []string // ports of the import and of its slices
		problem string
	}{
		"one port":                {"http", []string{"http"}, ""},
		"one port and one gone":   {"http,metrics", []string{"http"}, `has no port named "metrics"`},
		"no port that is there":   {"metrics", nil, ""},
		"a list that is not read": {",", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			local := exported(twoPorts(tc.list)).Local
			d := Import(ImportView{Self: "a", Local: local, Own: OwnSource{State: model.SourcePublished}})
			var ports, served []string
			if d.Plan.Desired != nil {
				for _, p := range d.Plan.Desired.Ports {
					ports = append(ports, p.Name)
				}
			}
			for _, s := range d.Plan.Sources["a"] {
				for _, p := range s.Ports {
					served = append(served, *p.Name)
				}
			}
			if diff := cmp.Diff(tc.want, ports); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, served); diff != "" {
				t.Errorf("slices (-want +got):\n%s", diff)
			}
			var problems []string
			for _, p := range d.Finding.Problems {
				problems = append(problems, p.Reason+": "+p.Message)
			}
			if got := strings.Join(problems, "; "); (got == "") != (tc.problem == "") || !strings.Contains(got, tc.problem) {
				t.Errorf("problems %q, want %q", got, tc.problem)
			}
			if planned := plan.Import(d.Plan); d.Write && len(tc.want) == 0 && len(planned.Actions) > 0 {
				t.Errorf("it is imported: %v", planned.Actions)
			}
		})
	}
}
