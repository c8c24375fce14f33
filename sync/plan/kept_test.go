// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// served is, for each port of the derived Service, the endpoints that kube-proxy finds:
// those of the slices that have a port of that name and protocol.
func served(w *world) []string {
	var out []string
	for _, o := range w.objects {
		s, is := o.(*corev1.Service)
		if !is {
			continue
		}
		for _, port := range s.Spec.Ports {
			var at []string
			for _, o := range w.objects {
				slice, is := o.(*discoveryv1.EndpointSlice)
				if is && slices.ContainsFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool { return *p.Name == port.Name && *p.Protocol == port.Protocol }) {
					at = append(at, slice.Labels[model.LabelSourceCluster])
				}
			}
			slices.Sort(at)
			out = append(out, fmt.Sprintf("%s:%d %s", port.Name, port.Port, strings.Join(at, " ")))
		}
	}
	slices.Sort(out)
	return out
}

func storedOrder(w *world) string {
	var order []string
	for _, e := range model.ParseSourceExports(w.objects["ServiceImport default/web"].GetAnnotations()[model.AnnotationExports]) {
		order = append(order, string(e.Cluster))
	}
	return strings.Join(order, " ")
}

// of is an export of cluster with these ports, and one slice that serves them.
func (s *clusterset) of(cluster model.ClusterID, declared ...mcsv1beta1.ServicePort) *clusterset {
	var names []string
	for _, p := range declared {
		names = append(names, p.Name)
	}
	return s.export(cluster, declared, copyOf(slice("web-"+string(cluster), names, "10.0.0."+fmt.Sprint(int(cluster[0])))))
}

func headless(e *model.Export) { e.Type = mcsv1beta1.Headless }

// In this cluster, a, exports of b, c and d are imported, b's decides; then some of them
// are not read any more, or their records are missing.
func TestOnlyTheDecidingExportFreezesAnImport(t *testing.T) {
	metrics, more := port("metrics", 90), port("more", 91)
	for name, tc := range map[string]struct {
		before, then *clusterset
		kept         []model.ClusterID
		served       []string
		order        string
	}{
		"b changes the number of its port while c is kept": {
			before: importOf("web").of("b", port("http", 80)).of("c", port("http", 80)),
			then:   importOf("web").of("b", port("http", 8080)), kept: []model.ClusterID{"c"},
			served: []string{"http:8080 b c"}, order: "b c",
		},
		"b does, and is kept itself": {
			before: importOf("web").of("b", port("http", 80)).of("c", port("http", 80)),
			then:   importOf("web").of("c", port("http", 80)), kept: []model.ClusterID{"b"},
			served: []string{"http:80 b c"}, order: "b c",
		},
		"c changes its port while b, which decides, is kept": {
			before: importOf("web").of("b", port("http", 80)).of("c", port("http", 80)),
			then:   importOf("web").of("c", port("http", 8080)), kept: []model.ClusterID{"b"},
			served: []string{"http:80 b"}, order: "b c",
		},
		"b was withdrawn while c, the next one, is kept": {
			before: importOf("web").of("b", port("http", 80)).of("c", port("http", 80)).of("d", port("http", 80)),
			then:   importOf("web").of("d", port("http", 8080)), kept: []model.ClusterID{"c"},
			served: []string{"http:80 c"}, order: "b c d",
		},
		"b was withdrawn while c, the last one, is kept": {
			before: importOf("web").of("b", port("http", 80)).of("d", port("http", 80)).of("c", port("http", 80)),
			then:   importOf("web").of("d", port("http", 8080)), kept: []model.ClusterID{"c"},
			served: []string{"http:8080 c d"}, order: "d c",
		},
		"a port that c alone has stays, and one that b has no more goes after c is read": {
			before: importOf("web").of("b", port("http", 80), more).of("c", port("http", 80), metrics),
			then:   importOf("web").of("b", port("http", 80)), kept: []model.ClusterID{"c"},
			served: []string{"http:80 b c", "metrics:90 c", "more:91 "}, order: "b c",
		},
		"d, behind c, takes neither the name nor the number of c's port": {
			before: importOf("web").of("b", port("http", 80)).of("c", port("http", 80), metrics),
			then:   importOf("web").of("b", port("http", 80)).of("d", port("http", 80), port("metrics", 99), port("x", 90)), kept: []model.ClusterID{"c"},
			served: []string{"http:80 b c d", "metrics:90 c"}, order: "b c d",
		},
		"b, before c, takes the number of c's port": {
			before: importOf("web").of("b", port("http", 80)).of("c", port("http", 80), metrics),
			then:   importOf("web").of("b", port("http", 90)), kept: []model.ClusterID{"c"},
			served: []string{"http:90 b c"}, order: "b c",
		},
		"b gives its unnamed port another number": {
			before: importOf("web").of("b", port("", 80)).of("c", port("", 80)),
			then:   importOf("web").of("b", port("", 8080)), kept: []model.ClusterID{"c"},
			served: []string{":8080 b c"}, order: "b c",
		},
		"b adds a port to an unnamed one, which has another name in the Service then": {
			before: importOf("web").of("b", port("", 80)).of("c", port("", 80)),
			then:   importOf("web").of("b", port("", 80), metrics), kept: []model.ClusterID{"c"},
			served: []string{"metrics:90 b", "unnamed-80:80 b c"}, order: "b c",
		},
		"b turns headless": {
			before: importOf("web").of("b", port("http", 80)).of("c", port("http", 80)),
			then:   importOf("web").of("b", port("http", 80)).edit(headless), kept: []model.ClusterID{"c"},
			served: []string{"http:80 b c"}, order: "b c",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := imported(t, tc.before)
			in := tc.then.notRead(tc.kept...).in()
			for range 2 { // the second time, the first one is what exists
				if _, err := w.converge(in); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.served, served(w)); diff != "" || storedOrder(w) != tc.order {
					t.Errorf("exports %q, want %q; served (-want +got):\n%s", storedOrder(w), tc.order, diff)
				}
			}
			s := w.objects["ServiceImport default/web"].(*mcsv1beta1.ServiceImport)
			if frozen := s.Spec.Type != in.Desired.Type; frozen {
				t.Errorf("the type is %s", s.Spec.Type)
			}
		})
	}
}

// Which export decides is not known without the annotation: a user removed it, or the
// ServiceImport as a whole.
func TestAnImportWhoseDecidingExportIsNotKnownIsFrozen(t *testing.T) {
	set := importOf("web").of("b", port("http", 80)).of("c", port("http", 80))
	for name, spoil := range map[string]func(w *world){
		"without the annotation": func(w *world) {
			delete(w.objects["ServiceImport default/web"].GetAnnotations(), model.AnnotationExports)
		},
		"without the ServiceImport": func(w *world) {
			delete(w.objects, "ServiceImport default/web")
			delete(w.applied, "ServiceImport default/web")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := imported(t, set)
			spoil(w)
			in := importOf("web").of("c", port("http", 8080)).notRead("b").in()
			for range 2 {
				in.Current = w.current(in.Key)
				if !plan.IsFrozen(in) {
					t.Error("the import is not frozen")
				}
				if _, err := w.converge(in); err != nil {
					t.Fatal(err)
				}
			}
			if s := w.objects["Service default/"+web].(*corev1.Service); s.Spec.Ports[0].Port != 80 {
				t.Errorf("the Service has %v", s.Spec.Ports)
			}
		})
	}
}

// The own export was lost, and b decides. Kubernetes serves the pods of this cluster by
// the selector, and nothing else could.
func TestTheSelectorStaysWhileTheOwnExportIsKept(t *testing.T) {
	set := importOf("web").of("b", port("http", 80)).edit(func(e *model.Export) { e.Selector = map[string]string{"app": "web"} }).
		export("a", http(), slice("web-1", []string{"http"}, "10.1.0.1"))
	in := set.in()
	in.MaintainSelectors = true
	w := newWorld()
	if _, err := w.converge(in); err != nil {
		t.Fatal(err)
	}
	in = importOf("web").of("b", port("http", 8080)).notRead("a").in()
	in.MaintainSelectors = true
	if _, err := w.converge(in); err != nil {
		t.Fatal(err)
	}
	s := w.objects["Service default/"+web].(*corev1.Service)
	if s.Spec.Selector["app"] != "web" || s.Spec.Ports[0].Port != 8080 {
		t.Errorf("selector %v, ports %v", s.Spec.Selector, s.Spec.Ports)
	}
}

// b decides and is not read any more; c, the next one, has other preferences, and its
// endpoints change.
func TestHintsStayWhileTheDecidingExportIsKept(t *testing.T) {
	prefers := func(local bool, distribution *string) func(*model.Export) {
		return func(e *model.Export) { e.PreferLocal, e.TrafficDistribution = local, distribution }
	}
	for name, rule := range map[string]struct{ stored, next func(*model.Export) }{
		"local endpoints were preferred":     {prefers(true, nil), prefers(false, nil)},
		"with a distribution":                {prefers(true, ptr("PreferSameZone")), prefers(false, ptr("PreferSameZone"))},
		"the same zone was preferred":        {prefers(false, ptr("PreferSameZone")), prefers(false, nil)},
		"none were, and the next one's are":  {prefers(false, nil), prefers(true, nil)},
		"none were, and the next one's zone": {prefers(false, nil), prefers(false, ptr("PreferClose"))},
	} {
		t.Run(name, func(t *testing.T) {
			hinted := func(w *world) map[string][]string {
				out := map[string][]string{}
				for ref, o := range w.objects {
					if s, is := o.(*discoveryv1.EndpointSlice); is {
						for _, e := range s.Endpoints {
							zones := []string{}
							if e.Hints != nil {
								for _, z := range e.Hints.ForZones {
									zones = append(zones, z.Name)
								}
							}
							out[ref] = append(out[ref], strings.Join(zones, " "))
						}
					}
				}
				return out
			}
			set := importOf("web").of("b", port("http", 80)).edit(rule.stored).of("c", port("http", 80)).edit(rule.next)
			in := set.in()
			in.LocalCluster.Zones = []string{"z1", "z2"}
			w := newWorld()
			if _, err := w.converge(in); err != nil {
				t.Fatal(err)
			}
			before := hinted(w)
			in = importOf("web").of("c", port("http", 80)).edit(rule.next).notRead("b").in()
			in.LocalCluster.Zones = []string{"z1", "z2"}
			in.Sources["c"][0].Endpoints[0].Conditions.Ready = ptr(false)
			if _, err := w.converge(in); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, hinted(w)); diff != "" {
				t.Errorf("hints (-before +after):\n%s", diff)
			}
		})
	}
}
