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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	for _, e := range plan.StoredList(w.current(keyOf("web")), keyOf("web")).Entries {
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
			served: []string{"http:80 c"}, order: "c d",
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

// After a restart a cluster is not read yet, and has no endpoint that says which ports are its.
func TestPortsStayInTheirOrderWhileAClusterIsNotRead(t *testing.T) {
	metrics, x, y := port("metrics", 90), port("x", 91), port("y", 92)
	w := imported(t, importOf("web").of("b", port("http", 80)).export("c", ports(metrics)).of("d", x))
	w.writes = nil
	if _, err := w.converge(importOf("web").of("b", port("http", 80)).of("d", x).notRead("c").in()); err != nil || len(w.writes) > 0 {
		t.Fatalf("writes %v, error %v", w.writes, err)
	}
	if _, err := w.converge(importOf("web").of("b", port("http", 80), y).of("d", port("x", 99)).notRead("c").in()); err != nil {
		t.Fatal(err)
	}
	s := w.objects["ServiceImport default/web"].(*mcsv1beta1.ServiceImport)
	if diff := cmp.Diff(ports(port("http", 80), metrics, port("x", 99), y), s.Spec.Ports); diff != "" {
		t.Errorf("a new port is the last one, and a new number moves none (-want +got):\n%s", diff)
	}
}

// While an import is frozen, users delete parts of it.
func TestAFrozenImportIsMadeAgainFromWhatIsLeft(t *testing.T) {
	affinity := func(e *model.Export) {
		e.SessionAffinity, e.SessionAffinityConfig = "ClientIP", &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr(int32(10))}}
	}
	for name, tc := range map[string]struct {
		set    *clusterset
		delete []string
	}{
		"the ServiceImport":                         {importOf("web").of("b", port("http", 80)), []string{"ServiceImport default/web"}},
		"the Service":                               {importOf("web").of("b", port("http", 80)), []string{"Service default/" + web}},
		"the ServiceImport of a headless one":       {importOf("web").of("b", port("http", 80)).edit(headless), []string{"ServiceImport default/web"}},
		"the Service of a headless one":             {importOf("web").of("b", port("http", 80)).edit(headless), []string{"Service default/" + web}},
		"the ServiceImport of one with affinity":    {importOf("web").of("b", port("http", 80)).edit(affinity), []string{"ServiceImport default/web"}},
		"the Service of one with affinity":          {importOf("web").of("b", port("http", 80)).edit(affinity), []string{"Service default/" + web}},
		"the ServiceImport of one of several ports": {importOf("web").of("b", port("", 80), port("metrics", 90)), []string{"ServiceImport default/web"}},
		"the Service of one of several ports":       {importOf("web").of("b", port("", 80), port("metrics", 90)), []string{"Service default/" + web}},
		"both, but not the slices":                  {importOf("web").of("b", port("http", 80)), []string{"ServiceImport default/web", "Service default/" + web}},
	} {
		t.Run(name, func(t *testing.T) {
			w := imported(t, tc.set.of("c", port("http", 80)))
			service, before := w.objects["Service default/"+web].(*corev1.Service), w.objects["ServiceImport default/web"].(*mcsv1beta1.ServiceImport)
			for _, ref := range tc.delete {
				delete(w.objects, ref)
				delete(w.applied, ref)
			}
			in := importOf("web").of("c", port("http", 8080)).notRead("b").in()
			if _, err := w.converge(in); err != nil {
				t.Fatal(err)
			}
			if len(tc.delete) > 1 { // nothing says what it was: c decides
				if got := w.objects["ServiceImport default/web"].(*mcsv1beta1.ServiceImport); got.Spec.Ports[0].Port != 8080 || storedOrder(w) != "b c" {
					t.Errorf("list %s, ports %v", storedOrder(w), got.Spec.Ports)
				}
				return
			}
			again, after := w.objects["Service default/"+web].(*corev1.Service), w.objects["ServiceImport default/web"].(*mcsv1beta1.ServiceImport)
			before, service = before.DeepCopy(), service.DeepCopy()
			if again.UID != service.UID { // it has another address
				before.Spec.IPs, service.Spec.ClusterIP, service.Spec.ClusterIPs = after.Spec.IPs, again.Spec.ClusterIP, again.Spec.ClusterIPs
			}
			if diff := cmp.Diff(before.Spec, after.Spec); diff != "" {
				t.Errorf("ServiceImport (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(service.Spec, again.Spec); diff != "" || storedOrder(w) != "b c" {
				t.Errorf("list %q, Service (-before +after):\n%s", storedOrder(w), diff)
			}
		})
	}
}

// A process stopped after it made another derived Service, and the export that decides is not
// read any more: clients use the Service.
func TestAFrozenImportIsWhatItsServiceIs(t *testing.T) {
	w := imported(t, importOf("web").of("b", port("http", 80)).of("c", port("http", 80)))
	behind := w.objects["ServiceImport default/web"].(*mcsv1beta1.ServiceImport)
	want := behind.DeepCopy()
	behind.Spec.Ports[0].Port, behind.Spec.SessionAffinity, behind.Spec.IPs = 70, corev1.ServiceAffinityClientIP, []string{"10.96.9.9"}
	if _, err := w.converge(importOf("web").of("c", port("http", 90)).notRead("b").in()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Spec, w.objects["ServiceImport default/web"].(*mcsv1beta1.ServiceImport).Spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What is written follows from the list that was read: a newer object may have another one.
func TestTheObjectsWithTheListAreWrittenAsTheyWereRead(t *testing.T) {
	w := imported(t, importOf("web").of("b", port("http", 80)))
	in := w.sees(importOf("web").of("b", port("http", 81)).in())
	for _, a := range plan.Import(in).Actions {
		ref := fmt.Sprintf("%s %s/%s", a.Object.GetObjectKind().GroupVersionKind().Kind, a.Object.GetNamespace(), a.Object.GetName())
		if o := w.objects[ref]; a.Verb == plan.Update && !strings.HasPrefix(ref, "EndpointSlice") && (o.GetResourceVersion() == "" || a.ResourceVersion != o.GetResourceVersion()) {
			t.Errorf("%s is written at version %q, and was read at %q", ref, a.ResourceVersion, o.GetResourceVersion())
		}
	}
}

// The list is written where nothing else is: to what is frozen, and beside a foreign import.
func TestTheListIsWrittenAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(*world)
		then  *clusterset
		want  []string
	}{
		"of a frozen import": {func(*world) {}, importOf("web").notRead("b"), []string{"annotate Service default/" + web, "annotate ServiceImport default/web", "delete EndpointSlice default/" + web + "-c"}},
		"beside a foreign ServiceImport": {func(w *world) {
			delete(w.objects, "ServiceImport default/web")
			w.put(foreignImport("web"))
		}, importOf("web").of("b", port("http", 80)), []string{"annotate Service default/" + web, "delete EndpointSlice default/" + web + "-c"}},
		"without a name for the Service": {func(w *world) {
			delete(w.objects, "Service default/"+web)
			w.put(foreignService(web))
			w.put(foreignService(model.AlternateDerivedName("web")))
			delete(w.objects["ServiceImport default/web"].GetAnnotations(), model.AnnotationDerivedName)
		}, importOf("web").notRead("b"), []string{"update ServiceImport default/web", "delete EndpointSlice default/" + web + "-c"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := imported(t, importOf("web").of("b", port("http", 80)).of("c", port("http", 80)))
			tc.spoil(w)
			w.writes = nil
			if _, err := w.converge(tc.then.in()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, w.writes); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// No Service was made, as this cluster has no address of that family; the ServiceImport does
// not say which one that is.
func TestAFrozenImportOfAFamilyThatIsNotSupportedGetsNoService(t *testing.T) {
	set := importOf("web").of("b", port("http", 80)).edit(func(e *model.Export) { e.IPFamilies = []corev1.IPFamily{"IPv6"} })
	in := set.in()
	in.LocalCluster.Families = []corev1.IPFamily{"IPv4"}
	w := newWorld()
	first, err := w.converge(in)
	if err != nil {
		t.Fatal(err)
	}
	in = importOf("web").of("c", port("http", 80)).notRead("b").in()
	in.LocalCluster.Families = []corev1.IPFamily{"IPv4"}
	p, err := w.converge(in)
	if err != nil || p.DerivedName != first.DerivedName || w.objects["Service default/"+web] != nil || w.objects["ServiceImport default/web"] == nil || storedOrder(w) != "b c" {
		t.Errorf("list %q, writes %v, error %v", storedOrder(w), w.writes, err)
	}
	if diff := cmp.Diff(first.Problems, p.Problems); diff != "" || len(p.Problems) != 1 {
		t.Errorf("problems (-before +after):\n%s", diff)
	}
}

// What was suspended or refused keeps the derived Service, with its address and list.
func TestAnImportThatMayComeBackKeepsItsAddress(t *testing.T) {
	set := importOf("web").of("b", port("http", 80))
	w := imported(t, set)
	ip := w.objects["Service default/"+web].(*corev1.Service).Spec.ClusterIP
	out := importOf("web").in()
	out.KeepAddress = true
	p, err := w.converge(out)
	if err != nil || p.DerivedName != web || len(w.objects) != 1 || w.objects["Service default/"+web] == nil {
		t.Fatalf("named %q, left %v, error %v", p.DerivedName, w.objects, err)
	}
	if diff := cmp.Diff([]string{"delete ServiceImport default/web", "delete EndpointSlice default/" + web + "-b"}, w.writes[1:]); diff != "" || w.writes[0] != "annotate Service default/"+web {
		t.Errorf("writes %v", w.writes)
	}
	if _, err := w.converge(set.in()); err != nil || w.objects["Service default/"+web].(*corev1.Service).Spec.ClusterIP != ip {
		t.Errorf("error %v, objects %v", err, w.objects)
	}
	if _, err := w.converge(importOf("web").in()); err != nil || len(w.objects) > 0 {
		t.Errorf("error %v, left %v", err, w.objects)
	}
}

func TestWhichListIsTheStoredOne(t *testing.T) {
	const good, copied = `{"formed":"2026-11-22T09:00:00Z","exports":[{"cluster":"b"}]}`, `{"formed":"2026-11-22T09:00:00Z","exports":[{"cluster":"c"}]}`
	change := func(ref string, do func(plan.Object)) func(*world) { return func(w *world) { do(w.objects[ref]) } }
	service := "Service default/" + web
	list := func(text string) func(plan.Object) {
		return func(o plan.Object) { o.GetAnnotations()[model.AnnotationList] = text }
	}
	for name, tc := range map[string]struct {
		change []func(*world)
		want   string
	}{
		"that of the Service":                {nil, "b"},
		"the Service has none":               {[]func(*world){change(service, func(o plan.Object) { delete(o.GetAnnotations(), model.AnnotationList) })}, "c"},
		"that of the Service cannot be read": {[]func(*world){change(service, list("rubbish"))}, "c"},
		"neither can be read":                {[]func(*world){change(service, list("{}")), change("ServiceImport default/web", list("[]"))}, ""},
		"the Service is being deleted":       {[]func(*world){change(service, func(o plan.Object) { o.SetDeletionTimestamp(ptr(metav1.Unix(1, 0))) })}, "c"},
		"the Service is somebody else's":     {[]func(*world){change(service, func(o plan.Object) { o.SetManagedFields(nil) })}, "c"},
		"both are":                           {[]func(*world){change(service, func(o plan.Object) { o.SetManagedFields(nil) }), change("ServiceImport default/web", func(o plan.Object) { o.SetManagedFields(nil) })}, ""},
		"there are two, of which the ServiceImport names the other": {[]func(*world){func(w *world) {
			second := w.objects[service].DeepCopyObject().(*corev1.Service)
			second.Name, second.UID = model.AlternateDerivedName("web"), "second"
			second.Annotations[model.AnnotationList] = copied
			w.put(second)
			w.objects["ServiceImport default/web"].GetAnnotations()[model.AnnotationDerivedName] = second.Name
		}}, "c"},
		"a user removed the label":             {[]func(*world){change(service, func(o plan.Object) { delete(o.GetLabels(), model.LabelServiceName) })}, "b"},
		"the Service is of a colliding import": {[]func(*world){change(service, func(o plan.Object) { o.GetLabels()[model.LabelServiceName] = "other" }), change("ServiceImport default/web", func(o plan.Object) { delete(o.GetAnnotations(), model.AnnotationDerivedName) })}, "c"},
	} {
		t.Run(name, func(t *testing.T) {
			w := imported(t, importOf("web").of("b", port("http", 80)))
			list(good)(w.objects[service])
			list(copied)(w.objects["ServiceImport default/web"])
			for _, do := range tc.change {
				do(w)
			}
			if got := storedOrder(w); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
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
	prefers := func(distribution *string) func(*model.Export) {
		return func(e *model.Export) { e.TrafficDistribution = distribution }
	}
	inTiers := map[model.ClusterID]model.Traffic{"b": model.Preferred}
	for name, rule := range map[string]struct {
		stored, next func(*model.Export)
		traffic      map[model.ClusterID]model.Traffic
	}{
		"those of a tier were preferred":        {prefers(nil), prefers(nil), inTiers},
		"those of a tier, with a distribution":  {prefers(ptr("PreferSameZone")), prefers(nil), inTiers},
		"the same zone was preferred":           {prefers(ptr("PreferSameZone")), prefers(nil), nil},
		"none were, and the next one's zone is": {prefers(nil), prefers(ptr("PreferClose")), nil},
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
			in.LocalCluster.Zones, in.Traffic = []string{"z1", "z2"}, rule.traffic
			w := newWorld()
			if _, err := w.converge(in); err != nil {
				t.Fatal(err)
			}
			before := hinted(w)
			in = importOf("web").of("c", port("http", 80)).edit(rule.next).notRead("b").in()
			in.LocalCluster.Zones, in.Traffic = []string{"z1", "z2"}, rule.traffic
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
