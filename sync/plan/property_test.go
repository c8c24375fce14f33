// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// services holds two names that collide in adler32, and one that does not.
var services = []string{"svc-adb", "svc-bbc", "web"}

// drawSet draws what three clusters export under one name.
func drawSet(t *rapid.T, name string) *clusterset {
	set := importOf(name)
	for _, cluster := range []model.ClusterID{"a", "b", "c"} {
		if rapid.IntRange(0, 2).Draw(t, "exports") == 0 {
			continue
		}
		var declared []mcsv1beta1.ServicePort
		var names []string
		for _, n := range []string{"", "http", "admin"}[rapid.IntRange(0, 2).Draw(t, "first port"):] {
			declared = append(declared, port(n, rapid.Int32Range(80, 82).Draw(t, "number")+int32(10*len(names))))
			names = append(names, n)
		}
		var sources []*discoveryv1.EndpointSlice
		for i := range rapid.IntRange(0, 3).Draw(t, "slices") {
			s := slice(fmt.Sprintf("%s-%d", name, (i+rapid.IntRange(0, 1).Draw(t, "shift")*3)), names, fmt.Sprintf("10.0.0.%d", rapid.IntRange(1, 3).Draw(t, "address")))
			s.AddressType = rapid.SampledFrom([]discoveryv1.AddressType{"IPv4", "IPv4", "IPv6", "FQDN"}).Draw(t, "family")
			if cluster != "a" {
				s = copyOf(s)
			}
			sources = append(sources, s)
		}
		set.export(cluster, declared, sources...).edit(func(e *model.Export) {
			if rapid.IntRange(0, 4).Draw(t, "headless") == 0 {
				e.Type = mcsv1beta1.Headless
			}
			if rapid.Bool().Draw(t, "dual") {
				e.IPFamilies = append(e.IPFamilies, corev1.IPv6Protocol)
			}
			if rapid.Bool().Draw(t, "affinity") {
				e.SessionAffinity = corev1.ServiceAffinityClientIP
			}
			if rapid.Bool().Draw(t, "labels") {
				e.Labels = map[string]string{"team": rapid.SampledFrom([]string{"red", "blue"}).Draw(t, "team")}
			}
			if rapid.Bool().Draw(t, "selector") {
				e.Selector = map[string]string{"app": name}
			}
			if rapid.IntRange(0, 4).Draw(t, "v6 only") == 0 {
				e.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
			}
			if rapid.Bool().Draw(t, "distribution") {
				e.TrafficDistribution = ptr("PreferSameZone")
			}
		})
	}
	return set
}

// drawForeign puts objects of others in the way.
func drawForeign(t *rapid.T, w *world, name string) {
	d := model.DerivedName(name)
	candidates := []plan.Object{
		foreignService(d), foreignService(model.AlternateDerivedName(name)), foreignImport(name),
		foreignSlice(d+"-b", name, "b"), foreignSlice("hand-made", name, "c"),
	}
	for _, o := range candidates {
		if rapid.IntRange(0, 9).Draw(t, "foreign") == 0 && w.objects[refOf(o)] == nil {
			w.put(o)
		}
	}
}

// drawEdit lets a user meddle with one of our objects.
func drawEdit(t *rapid.T, w *world) {
	ours := slices.Sorted(maps.Keys(w.snapshot(func(o plan.Object) bool { return model.IsManaged(o) })))
	if len(ours) == 0 {
		return
	}
	o := w.objects[rapid.SampledFrom(ours).Draw(t, "object")]
	edited, _ := o.DeepCopyObject().(plan.Object)
	switch rapid.IntRange(0, 8).Draw(t, "edit") {
	case 0:
		delete(w.objects, refOf(o))
		delete(w.applied, refOf(o))
		return
	case 1:
		edited.GetLabels()["mine"] = "yes"
	case 2:
		edited.GetAnnotations()[model.AnnotationSourceSlice] = "nonsense"
	case 3:
		delete(edited.GetAnnotations(), model.AnnotationApplied)
	case 4:
		if s, is := edited.(*corev1.Service); is {
			s.Spec.SessionAffinity = "ClientIP"
		}
		delete(edited.GetLabels(), model.LabelSourceCluster)
	case 5:
		delete(edited.GetLabels(), model.LabelServiceName)
	case 6:
		edited.GetLabels()["service.kubernetes.io/service-proxy-name"] = "mine"
	case 7:
		if s, is := edited.(*corev1.Service); is {
			s.Spec.Ports = []corev1.ServicePort{{Name: "mine", Port: 99, Protocol: "TCP"}}
			s.Spec.Selector = map[string]string{"app": "mine"}
		}
	case 8:
		if s, is := edited.(*corev1.Service); is {
			s.Spec.ExternalIPs, s.Spec.TrafficDistribution = []string{"192.0.2.1"}, ptr("PreferSameNode")
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "more", Port: 98, Protocol: "TCP"})
		}
	}
	w.put(edited)
}

// TestPlansHoldTheInvariants drives random changes of exports, reachability,
// foreign objects and users' edits through plans, and asks after each step:
//
//	I1 no foreign object was changed;
//	I2 nothing that came from an unread cluster was changed, but for the
//	   readiness of its endpoints while it is lost;
//	I3 what was planned was enough: the next plan is empty;
//	   no two imports of the namespace share a derived Service, and none is
//	   renamed while its Service lives; one that is made again, since its type
//	   changed, has a new address anyway.
func TestPlansHoldTheInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		names := map[string]string{}
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			name := rapid.SampledFrom(services).Draw(t, "service")
			drawForeign(t, w, name)
			if rapid.Bool().Draw(t, "edit at all") {
				drawEdit(t, w)
			}
			set := drawSet(t, name)
			if rapid.IntRange(0, 2).Draw(t, "unread at all") == 0 {
				set.notRead(rapid.SampledFrom([]model.ClusterID{"b", "c"}).Draw(t, "unread"))
			}
			step(t, w, set, names)
		}
	})
}

func step(t *rapid.T, w *world, set *clusterset, names map[string]string) {
	name := set.key.Name
	in := set.in()
	drawHome(t, &in)
	for other, derived := range names { // a name without its Service is free
		if s := w.objects["Service default/"+derived]; s == nil || s.GetLabels()[model.LabelServiceName] != other {
			delete(names, other)
		}
	}
	foreign := func(o plan.Object) bool { return !model.IsManaged(o) }
	unread := func(o plan.Object) bool {
		_, is := o.(*discoveryv1.EndpointSlice)
		return is && o.GetLabels()[model.LabelServiceName] == name &&
			slices.Contains(set.unread, model.ClusterID(o.GetLabels()[model.LabelSourceCluster]))
	}
	seen := w.sees(in)
	listed := slices.ContainsFunc(seen.List.Entries, func(e model.Entry) bool { return slices.Contains(set.unread, e.Cluster) })
	whole := w.objects["ServiceImport default/"+name] != nil && w.objects["Service default/"+plan.Import(seen).DerivedName] != nil
	kept := func(o plan.Object) bool {
		_, isSlice := o.(*discoveryv1.EndpointSlice)
		return seen.Frozen && whole && !isSlice && (o.GetName() == name || o.GetLabels()[model.LabelServiceName] == name)
	}
	untouched := func(o plan.Object) bool { return foreign(o) || unread(o) || kept(o) }
	before, had := w.snapshot(untouched), w.snapshot(func(o plan.Object) bool { _, is := o.(*corev1.Service); return is && model.IsManaged(o) })
	again := slices.ContainsFunc(plan.Import(seen).Problems, func(p model.Problem) bool { return p.Reason == model.ReasonTypeChanged })
	p, err := w.converge(in)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for ref, o := range before {
		after := w.objects[ref]
		if unread(o) && model.IsManaged(o) && after != nil {
			o, after = withoutReadiness(o), withoutReadiness(after)
		}
		if model.IsManaged(o) && kept(o) && after != nil {
			o, after = withoutList(o), withoutList(after)
		}
		if unread(o) && model.IsManaged(o) && (!seen.Frozen || !agree(seen.Current)) && after != nil {
			o, after = withoutPortNames(o), withoutPortNames(after)
		}
		if diff := cmp.Diff(o, after); diff != "" {
			t.Fatalf("%s must not be touched (-before +after):\n%s", ref, diff)
		}
	}
	// What comes from a cluster that was not read may add ports.
	checkService(t, w, in, p, len(before) > 0 || listed)
	if old := names[name]; !again && old != "" && p.DerivedName != "" && p.DerivedName != old && had["Service default/"+old] != nil &&
		had["Service default/"+old].GetLabels()[model.LabelServiceName] == name {
		t.Fatalf("%s was renamed from %s to %s", name, old, p.DerivedName)
	}
	names[name] = p.DerivedName
	for other, derived := range names {
		if other != name && derived != "" && derived == p.DerivedName {
			t.Fatalf("%s and %s share %s", name, other, derived)
		}
	}
}

// agree reports whether the derived Service has the ports of the import. It is not changed to have
// them while the import is of an IP family that this cluster has not.
func agree(current plan.Current) bool {
	if current.Import == nil {
		return false
	}
	return slices.ContainsFunc(current.Services, func(s *corev1.Service) bool {
		return model.IsManaged(s) && slices.EqualFunc(s.Spec.Ports, current.Import.Spec.Ports, func(a corev1.ServicePort, b mcsv1beta1.ServicePort) bool { return a.Port == b.Port })
	})
}

// withoutList is an object without the list, which is written in any case.
func withoutList(o plan.Object) plan.Object {
	c, _ := o.DeepCopyObject().(plan.Object)
	c.SetResourceVersion("")
	delete(c.GetAnnotations(), model.AnnotationList)
	return c
}

// withoutPortNames is a slice without what follows the names of the Service's ports.
func withoutPortNames(o plan.Object) plan.Object {
	s, _ := withoutReadiness(o).(*discoveryv1.EndpointSlice)
	for i := range s.Ports {
		s.Ports[i].Name = nil
	}
	return s
}

// drawHome draws what the cluster is like and how endpoints may be used.
func drawHome(t *rapid.T, in *plan.ImportInput) {
	in.LocalCluster.Families = rapid.SampledFrom([][]corev1.IPFamily{nil, {"IPv4"}, {"IPv6"}, {"IPv4", "IPv6"}}).Draw(t, "home families")
	in.LocalCluster.Zones = rapid.SampledFrom([][]string{nil, {"z1"}, {"z1", "z2"}}).Draw(t, "zones")
	in.Traffic = map[model.ClusterID]model.Traffic{}
	for _, id := range rapid.SampledFrom([][]model.ClusterID{nil, nil, {"b"}, {"c"}, {"b", "c"}}).Draw(t, "not served") {
		in.Traffic[id] = rapid.SampledFrom([]model.Traffic{model.Preferred, last, unanswered, withheld}).Draw(t, "traffic")
	}
	in.MaintainSelectors = rapid.Bool().Draw(t, "maintain selectors")
}

// withoutReadiness is a slice without what Traffic may change.
func withoutReadiness(o plan.Object) plan.Object {
	s, _ := o.DeepCopyObject().(*discoveryv1.EndpointSlice)
	s.ResourceVersion = ""
	delete(s.Annotations, model.AnnotationApplied)
	delete(s.Annotations, model.AnnotationPublished)
	for i := range s.Endpoints {
		s.Endpoints[i].Conditions, s.Endpoints[i].Hints = discoveryv1.EndpointConditions{}, nil
	}
	return s
}

// checkService compares the derived Service with the import, field by field and
// not as package plan does.
func checkService(t *rapid.T, w *world, in plan.ImportInput, p plan.ImportPlan, kept bool) {
	s, _ := w.objects["Service default/"+p.DerivedName].(*corev1.Service)
	if s == nil || in.Desired == nil || kept || slices.ContainsFunc(p.Problems, func(p model.Problem) bool { return p.Reason == model.ReasonIPFamilyNotSupported }) {
		return
	}
	if len(s.Spec.Ports) != len(in.Desired.Ports) || len(s.Spec.ExternalIPs) > 0 || s.Labels["service.kubernetes.io/service-proxy-name"] != "" {
		t.Fatalf("something of a user's is left in %+v", s)
	}
	want := map[string]string(nil)
	if in.MaintainSelectors {
		want = in.Desired.Selector
	}
	if !maps.Equal(want, s.Spec.Selector) {
		t.Fatalf("selector %v, want %v", s.Spec.Selector, want)
	}
	for _, f := range s.Spec.IPFamilies {
		if len(in.LocalCluster.Families) > 0 && !slices.Contains(in.LocalCluster.Families, f) || len(in.Desired.IPFamilies) > 0 && !slices.Contains(in.Desired.IPFamilies, f) && len(in.LocalCluster.Families) > 0 {
			t.Fatalf("families %v; the import has %v, the cluster %v", s.Spec.IPFamilies, in.Desired.IPFamilies, in.LocalCluster.Families)
		}
	}
	imp, _ := w.objects["ServiceImport default/"+in.Key.Name].(*mcsv1beta1.ServiceImport)
	if !slices.Equal(imp.Spec.IPFamilies, s.Spec.IPFamilies) || s.Spec.ClusterIP != corev1.ClusterIPNone && !slices.Equal(imp.Spec.IPs, s.Spec.ClusterIPs) {
		t.Fatalf("the import says %v of %v, the Service has %v of %v", imp.Spec.IPs, imp.Spec.IPFamilies, s.Spec.ClusterIPs, s.Spec.IPFamilies)
	}
}

// TestPlansAreDeterministic plans one input a thousand times, its lists shuffled.
func TestPlansAreDeterministic(t *testing.T) {
	set := importOf("web")
	for _, c := range []model.ClusterID{"a", "b", "c"} {
		set.export(c, http(), slice("s-1", []string{"http"}, "10.0.0.1"), slice("s-2", []string{"http"}, "10.0.0.2"), slice("s-3", []string{"http"}, "10.0.0.3"))
	}
	w := imported(t, set)
	for _, name := range []string{"s-2", "s-3"} {
		w.put(foreignSlice("foreign-"+name, "web", "b"))
	}
	set.slices["b"] = []*discoveryv1.EndpointSlice{slice("s-4", []string{"http"}, "10.0.0.4"), slice("s-5", []string{"http"}, "10.0.0.5"), slice("s-2", []string{"http"}, "10.0.0.9")}
	in := set.in()
	in.Current = w.current(in.Key)
	want := ""
	for range 1000 {
		for _, list := range append(slices.Collect(maps.Values(in.Sources)), in.Current.Slices) {
			rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		}
		p := plan.Import(in)
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = string(text)
		}
		if string(text) != want {
			t.Fatalf("the order of the input changes the plan:\n%s", cmp.Diff(want, string(text)))
		}
	}
	if strings.Count(want, `"Verb"`) < 3 {
		t.Fatalf("the plan is too small to say anything: %s", want)
	}
}

// TestOneChangedEndpointIsOneWrite: in a service of 1,000 endpoints.
func TestOneChangedEndpointIsOneWrite(t *testing.T) {
	var sources []*discoveryv1.EndpointSlice
	for i := range 10 {
		var addresses []string
		for j := range 100 {
			addresses = append(addresses, fmt.Sprintf("10.1.%d.%d", i, j+1))
		}
		sources = append(sources, copyOf(slice(fmt.Sprintf("web-%d", i), []string{"http"}, addresses...)))
	}
	set := importOf("web").export("b", http(), sources...)
	w := imported(t, set)
	set.slices["b"][7] = set.slices["b"][7].DeepCopy()
	set.slices["b"][7].Endpoints[42].Conditions.Ready = ptr(false)
	if _, err := w.converge(set.in()); err != nil {
		t.Fatal(err)
	}
	if len(w.writes) != 1 || !strings.HasPrefix(w.writes[0], "update EndpointSlice") {
		t.Errorf("writes: %v, want one update of one slice", w.writes)
	}
}
