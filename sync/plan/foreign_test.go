// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

func TestForeignObjectsAreReportedAndLeftAlone(t *testing.T) {
	web := derived("web")
	marked := foreignService(web)
	marked.Labels = map[string]string{
		model.LabelServiceName: "web", model.LabelServiceImported: "true", "app.kubernetes.io/managed-by": "comity",
	}
	cases := []struct {
		name    string
		foreign []plan.Object
		named   string
		problem []string // reason and a part of the message
	}{
		{"a Service has the derived name", []plan.Object{foreignService(web)}, model.AlternateDerivedName("web"),
			[]string{"NameTaken", `"` + model.AlternateDerivedName("web") + `" is used instead`}},
		{"a Service has the derived name and all our labels", []plan.Object{marked}, model.AlternateDerivedName("web"),
			[]string{"NameTaken", web + ", which Comity did not create"}},
		{"Services have both names", []plan.Object{foreignService(web), foreignService(model.AlternateDerivedName("web"))}, "",
			[]string{"NameTaken", "what it stands for is not imported"}},
		{"a slice has the plain name", []plan.Object{foreignSlice(web+"-b", "web", "b")}, web,
			[]string{"NameTaken", `"` + model.SliceName(web, false, "b", "web-x") + `" is used instead`}},
		{"slices have both names of a slice", []plan.Object{
			foreignSlice(web+"-b", "web", "b"), foreignSlice(model.SliceName(web, false, "b", "web-x"), "web", "b"),
		}, web, []string{"NameTaken", "EndpointSlice default/" + model.SliceName(web, false, "b", "web-x")}},
		{"a ServiceImport has the name", []plan.Object{foreignImport("web")}, "", []string{"ForeignImport", "ServiceImport default/web"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			for _, o := range c.foreign {
				w.put(o.DeepCopyObject().(plan.Object))
			}
			isForeign := func(o plan.Object) bool { return !model.IsManaged(o) }
			before := w.snapshot(isForeign)
			p, err := w.converge(twoClusters().in())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, w.snapshot(isForeign)); diff != "" {
				t.Errorf("a foreign object changed:\n%s", diff)
			}
			if p.DerivedName != c.named {
				t.Errorf("derived name %q, want %q", p.DerivedName, c.named)
			}
			if len(c.problem) == 0 != (len(p.Problems) == 0) {
				t.Fatalf("problems %v, want %v", p.Problems, c.problem)
			}
			for _, problem := range p.Problems[:min(1, len(p.Problems))] {
				if problem.Reason != c.problem[0] || !strings.Contains(p.Problems[len(p.Problems)-1].Message+problem.Message, c.problem[1]) {
					t.Errorf("problems %v, want %v", p.Problems, c.problem)
				}
			}
			if _, err := w.converge(importOf("web").in()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, w.snapshot(func(plan.Object) bool { return true })); diff != "" {
				t.Errorf("after the end of the import (-foreign +left):\n%s", diff)
			}
		})
	}
}

// Both names go to Services of users while the import stands: nothing may lead
// their clients to our endpoints, and the import has no address any more.
func TestAnImportThatLosesItsNamesHasNoAddress(t *testing.T) {
	set := twoClusters()
	w := imported(t, set)
	delete(w.objects, "Service default/"+derived("web"))
	w.put(foreignService(derived("web")))
	w.put(foreignService(model.AlternateDerivedName("web")))
	set.notRead("b")
	if _, err := w.converge(set.in()); err != nil {
		t.Fatal(err)
	}
	left := func() map[string]plan.Object {
		return w.snapshot(func(o plan.Object) bool { _, is := o.(*discoveryv1.EndpointSlice); return is })
	}
	if got := left(); len(got) != 1 || got["EndpointSlice default/"+derived("web")+"-b"] == nil {
		t.Errorf("left %v, want the slice of b alone, which was not read", got)
	}
	p, err := w.converge(twoClusters().in())
	if err != nil || len(left()) > 0 {
		t.Errorf("left %v, error %v", left(), err)
	}
	imp, _ := w.objects["ServiceImport default/web"].(*mcsv1beta1.ServiceImport)
	if imp == nil || len(imp.Spec.IPs) > 0 || imp.Annotations[model.AnnotationDerivedName] != "" {
		t.Errorf("want an import without address, got %v", imp)
	}
	if len(p.Problems) != 2 || p.Problems[1].Reason != model.ReasonNameTaken {
		t.Errorf("problems %v, want both names", p.Problems)
	}
	delete(w.objects, "Service default/"+derived("web")) // as the message asks
	if p, err = w.converge(twoClusters().in()); err != nil || p.DerivedName != derived("web") || len(left()) != 2 {
		t.Errorf("got %q and slices %v, error %v", p.DerivedName, left(), err)
	}
}

// What stood before somebody's ServiceImport came follows its clusters, but not
// while one is unsynced: no import of ours says whether it is one of them.
func TestBesideAForeignImportNothingChangesWhileAClusterIsUnsynced(t *testing.T) {
	set := importOf("web").
		export("a", ports(port("", 80)), slice("web-1", []string{""}, "10.1.0.1")).
		export("b", ports(port("http", 81)))
	w := imported(t, set)
	delete(w.objects, "ServiceImport default/web")
	w.put(foreignImport("web"))
	if p, err := w.converge(set.in()); err != nil || len(w.writes) > 0 {
		t.Fatalf("writes %v, error %v, plan %v", w.writes, err, p)
	}
	alone := importOf("web").export("a", ports(port("", 80)), slice("web-1", []string{""}, "10.1.0.1"))
	alone.notRead("b")
	if p, err := w.converge(alone.in()); err != nil || len(w.writes) > 0 {
		t.Errorf("writes %v, error %v, plan %v", w.writes, err, p)
	}
}

func TestPortsAreStrict(t *testing.T) {
	cases := []struct {
		name string
		set  *clusterset
		want map[string][]string // derived slice of cluster -> its port names
	}{
		{"same name, other number: no traffic to the younger", importOf("web").
			export("a", ports(port("tcp", 42)), slice("s", []string{"tcp"}, "10.1.0.1")).
			export("b", ports(port("tcp", 4242)), copyOf(slice("s", []string{"tcp"}, "10.2.0.1"))),
			map[string][]string{"a": {"tcp"}}},
		{"other name: each gets its own", importOf("web").
			export("a", ports(port("tcp", 42)), slice("s", []string{"tcp"}, "10.1.0.1")).
			export("b", ports(port("tcp2", 4242)), copyOf(slice("s", []string{"tcp2"}, "10.2.0.1"))),
			map[string][]string{"a": {"tcp"}, "b": {"tcp2"}}},
		{"a slice with a port too many loses it", importOf("web").
			export("a", http(), slice("s", []string{"metrics", "http"}, "10.1.0.1")),
			map[string][]string{"a": {"http"}}},
		{"a slice that has no ports is kept: nothing was taken from it", importOf("web").
			export("a", http(), slice("s", nil, "10.1.0.1")), map[string][]string{"a": nil}},
		{"an unnamed port beside a named one gets a name, as Kubernetes demands", importOf("web").
			export("a", ports(port("", 80)), slice("s", []string{""}, "10.1.0.1")).
			export("b", ports(port("unnamed-80", 90)), copyOf(slice("s", []string{"unnamed-80"}, "10.2.0.1"))),
			map[string][]string{"a": {"unnamed-80-2"}, "b": {"unnamed-80"}}},
		{"an unnamed port alone stays unnamed", importOf("web").
			export("a", ports(port("", 80)), slice("s", []string{""}, "10.1.0.1")), map[string][]string{"a": {""}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := imported(t, c.set)
			got := map[string][]string{}
			for _, o := range w.objects {
				s, is := o.(*discoveryv1.EndpointSlice)
				if !is {
					continue
				}
				var names []string
				for _, p := range s.Ports {
					names = append(names, *p.Name)
				}
				got[s.Labels[model.LabelSourceCluster]] = names
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSlicesThatAreNotCarried(t *testing.T) {
	fqdn, v6 := slice("f", []string{"http"}, "example.com"), slice("v6", []string{"http"}, "fd00::1")
	fqdn.AddressType, v6.AddressType = discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv6
	count := func(set *clusterset) int {
		return len(imported(t, set).snapshot(func(o plan.Object) bool { _, is := o.(*discoveryv1.EndpointSlice); return is }))
	}
	if got := count(importOf("web").export("a", http(), fqdn, v6)); got != 1 {
		t.Errorf("ClusterSetIP: %d slices, want the IPv6 one only", got)
	}
	headless := importOf("web").export("a", http(), fqdn, v6).edit(func(e *model.Export) { e.Type = mcsv1beta1.Headless })
	if got := count(headless); got != 0 {
		t.Errorf("headless IPv4 import: %d slices; another family's endpoints would show in DNS", got)
	}
}

func TestTheLoserOfAnAdler32CollisionGetsItsOwnName(t *testing.T) {
	w := newWorld()
	adb, bbc := importOf("svc-adb").export("b", http()), importOf("svc-bbc").export("b", http())
	first, err := w.converge(adb.in())
	if err != nil {
		t.Fatal(err)
	}
	second, err := w.converge(bbc.in())
	if err != nil {
		t.Fatal(err)
	}
	if first.DerivedName != derived("svc-adb") || second.DerivedName != model.AlternateDerivedName("svc-bbc") || len(second.Problems) > 0 {
		t.Fatalf("names %q and %q, problems %v", first.DerivedName, second.DerivedName, second.Problems)
	}
	// Neither is renamed when the other ends: its clusterset IP would change.
	if _, err := w.converge(importOf("svc-adb").in()); err != nil {
		t.Fatal(err)
	}
	if again, err := w.converge(bbc.in()); err != nil || again.DerivedName != second.DerivedName {
		t.Errorf("renamed to %q, error %v", again.DerivedName, err)
	}
}

func TestAnAnnouncedNameIsKeptWhenItsServiceIsLost(t *testing.T) {
	w := newWorld()
	adb, bbc := importOf("svc-adb").export("b", http()), importOf("svc-bbc").export("b", http())
	for _, in := range []plan.ImportInput{adb.in(), bbc.in(), importOf("svc-adb").in()} {
		if _, err := w.converge(in); err != nil {
			t.Fatal(err)
		}
	}
	delete(w.objects, "Service default/"+model.AlternateDerivedName("svc-bbc"))
	p, err := w.converge(bbc.in()) // svc-adb is gone, so the plain name is free
	if err != nil || p.DerivedName != model.AlternateDerivedName("svc-bbc") {
		t.Errorf("got %q, error %v; slices and clients still have the announced name", p.DerivedName, err)
	}
}

func TestAnAnnouncedNameIsGivenUpOnceAnotherImportHasIt(t *testing.T) {
	w := newWorld()
	adb, bbc := importOf("svc-adb").export("b", http()), importOf("svc-bbc").export("b", http())
	if _, err := w.converge(adb.in()); err != nil {
		t.Fatal(err)
	}
	delete(w.objects, "Service default/"+derived("svc-adb"))
	first, err := w.converge(bbc.in())
	if err != nil || first.DerivedName != derived("svc-adb") {
		t.Fatalf("got %q, error %v", first.DerivedName, err)
	}
	second, err := w.converge(adb.in())
	if err != nil || second.DerivedName != model.AlternateDerivedName("svc-adb") {
		t.Errorf("got %q, error %v; the Service is svc-bbc's now", second.DerivedName, err)
	}
}

func TestACopyInTwoAudiencesIsMirroredOnce(t *testing.T) {
	everyone, scoped := copyOf(slice("web-x", []string{"http"}, "10.2.0.1")), copyOf(slice("web-x", []string{"http"}, "10.2.0.1"))
	scoped.Namespace = "comity-b-to-a"
	w := imported(t, importOf("web").export("b", http(), everyone, scoped))
	if got := w.snapshot(func(o plan.Object) bool { _, is := o.(*discoveryv1.EndpointSlice); return is }); len(got) != 1 {
		t.Errorf("%d slices, want 1: %v", len(got), got)
	}
}

func TestASliceOfAnImportWithACollidingNameIsNotTakenOver(t *testing.T) {
	w := imported(t, importOf("svc-bbc").export("b", http(), copyOf(slice("s", []string{"http"}, "10.2.0.1"))))
	in := importOf("svc-adb").export("b", http(), copyOf(slice("s", []string{"http"}, "10.2.0.9"))).in()
	in.Current.Slices = w.current(keyOf("svc-bbc")).Slices // as if a Create had met it
	want := []string{
		"create Service default/" + derived("svc-adb"),
		"create EndpointSlice default/" + model.SliceName(derived("svc-adb"), false, "b", "s"),
	}
	if diff := cmp.Diff(want, verbs(plan.Import(in).Actions)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheAnswerIsAwaitedWhenAnAddressIsAdded(t *testing.T) {
	w := imported(t, twoClusters())
	set := twoClusters()
	set.exports[0].IPFamilies = []corev1.IPFamily{"IPv4", "IPv6"}
	in := set.in()
	in.Current = w.current(in.Key)
	if p := plan.Import(in); !p.AwaitsService {
		t.Errorf("the ServiceImport would keep the old addresses until something else happens: %v", verbs(p.Actions))
	}
}
