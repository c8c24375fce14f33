// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// pipelined are the objects that the Sveltos pipeline makes of web, for a and b.
func pipelined() []plan.Object {
	service := foreignService(web)
	service.Labels = map[string]string{
		model.LabelServiceName: "web", model.LabelServiceImported: "true", "app.kubernetes.io/managed-by": "sveltos",
		"projectsveltos.io/reference-name": "x",
	}
	service.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.9.9", ClusterIPs: []string{"10.0.9.9"},
		IPFamilies: []corev1.IPFamily{"IPv4"}, IPFamilyPolicy: ptr(corev1.IPFamilyPolicySingleStack), SessionAffinity: "None",
		Ports: []corev1.ServicePort{{Name: "http", Port: 8000, Protocol: "TCP"}}, Selector: map[string]string{"app": "web"},
	}
	imp := foreignImport("web")
	imp.Annotations = map[string]string{model.AnnotationDerivedName: web}
	imp.Spec = mcsv1beta1.ServiceImportSpec{Type: "ClusterSetIP", Ports: http(), IPs: []string{"10.0.9.9"}}
	objects := []plan.Object{service, imp}
	for _, id := range []string{"a", "b"} {
		s := foreignSlice(web+"-"+id, "web", id)
		delete(s.Labels, model.LabelSourceCluster)
		s.Labels[discoveryv1.LabelServiceName], s.Labels[discoveryv1.LabelManagedBy] = web, "sveltos"
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "config.projectsveltos.io/v1beta1", Kind: "ClusterSummary", Name: "mcs"}}
		objects = append(objects, s)
	}
	return objects
}

func pipelineWorld() *world {
	w := newWorld()
	for _, o := range pipelined() {
		w.put(o)
	}
	return w
}

func takingOver(set *clusterset) plan.ImportInput {
	in := set.in()
	in.Takeover = true
	return in
}

func TestWhatThePipelineMadeIsAdoptedInPlace(t *testing.T) {
	w := pipelineWorld()
	p, err := w.converge(takingOver(twoClusters()))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"adopt EndpointSlice default/" + web + "-a", "adopt EndpointSlice default/" + web + "-b", "adopt Service default/" + web,
		"adopt ServiceImport default/web", "update Service default/" + web, // the selector goes in two steps
	}
	if diff := cmp.Diff(want, w.writes); diff != "" || len(p.Problems) > 0 {
		t.Errorf("problems %v, writes (-want +got):\n%s", p.Problems, diff)
	}
	service, _ := w.objects["Service default/"+web].(*corev1.Service)
	if service.Spec.ClusterIP != "10.0.9.9" || len(service.Spec.Selector) > 0 || len(service.Spec.Ports) != 1 || service.Spec.Ports[0].Port != 80 {
		t.Errorf("the Service became %+v", service.Spec)
	}
	for ref, o := range w.objects {
		if o.GetLabels()["projectsveltos.io/reference-name"] != "" || len(o.GetOwnerReferences()) > 0 || o.GetAnnotations()[model.AnnotationAdopting] != "" {
			t.Errorf("%s still has a mark: %v %v %v", ref, o.GetLabels(), o.GetAnnotations(), o.GetOwnerReferences())
		}
	}
}

func TestAnAdoptionThatStoppedGoesOn(t *testing.T) {
	w := pipelineWorld()
	w.crash = true
	in := w.sees(takingOver(twoClusters()))
	for _, a := range plan.Import(in).Actions {
		if err := w.do(a); err != nil {
			t.Fatal(err)
		}
	}
	w.crash = false
	in.Takeover = false // the option was taken off meanwhile: what was begun is finished
	in = w.sees(in)
	want := []string{
		"adopt EndpointSlice default/" + web + "-a", "adopt EndpointSlice default/" + web + "-b", "adopt Service default/" + web,
		"adopt ServiceImport default/web",
	}
	if diff := cmp.Diff(want, verbs(plan.Import(in).Actions)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := w.converge(in); err != nil {
		t.Error(err)
	}
}

// TestWhatDiffersInOneMarkIsForeign changes one thing of one object of the
// pipeline: that object is not touched, whatever else is.
func TestWhatDiffersInOneMarkIsForeign(t *testing.T) {
	label := func(ref, key, value string) func(*world) string {
		return func(w *world) string { w.objects[ref].GetLabels()[key] = value; return ref }
	}
	service, slice := "Service default/"+web, "EndpointSlice default/"+web+"-b"
	for name, change := range map[string]func(w *world) string{
		"a Service managed by someone else":       label(service, "app.kubernetes.io/managed-by", "helm"),
		"a Service of another import":             label(service, model.LabelServiceName, "other"),
		"a Service that is no import's":           label(service, model.LabelServiceImported, "false"),
		"a headless Service":                      func(w *world) string { w.objects[service].(*corev1.Service).Spec.ClusterIP = "None"; return service },
		"a slice managed by someone else":         label(slice, discoveryv1.LabelManagedBy, "someone"),
		"a slice of another Service":              label(slice, discoveryv1.LabelServiceName, "derived-1"),
		"a slice of another cluster by its label": label(slice, model.LabelSourceCluster, "c"),
		"an import that names another Service": func(w *world) string {
			w.objects["ServiceImport default/web"].GetAnnotations()[model.AnnotationDerivedName] = "derived-1"
			return "ServiceImport default/web"
		},
		"an import whose Service is not the pipeline's": func(w *world) string {
			w.objects[service].GetLabels()["app.kubernetes.io/managed-by"] = "helm"
			return "ServiceImport default/web"
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := pipelineWorld()
			ref := change(w)
			before := w.objects[ref].DeepCopyObject()
			if _, err := w.converge(takingOver(twoClusters())); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, w.objects[ref].DeepCopyObject()); diff != "" {
				t.Errorf("%s was touched (-before +after):\n%s", ref, diff)
			}
		})
	}
}

func TestAnEndedImportLeavesThePipelinesObjectsAlone(t *testing.T) {
	w := pipelineWorld()
	before := w.snapshot(func(plan.Object) bool { return true })
	if _, err := w.converge(takingOver(importOf("web"))); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, w.objects); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestWhileAClusterIsUnsyncedOnlySlicesOfTheOthersAreAdopted(t *testing.T) {
	set := importOf("web").export("a", http(), slice("web-1", []string{"http"}, "10.1.0.1")).notRead("b")
	in := pipelineWorld().sees(takingOver(set))
	if diff := cmp.Diff([]string{"adopt EndpointSlice default/" + web + "-a"}, verbs(plan.Import(in).Actions)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// maintained is twoClusters where selectors are maintained.
func maintained() plan.ImportInput {
	in := twoClusters().in()
	in.MaintainSelectors = true
	in.Desired.Selector = map[string]string{"app": "web"}
	in.Desired.Targets = []model.Target{{Port: 80, Protocol: "TCP", TargetPort: intstr.FromString("web")}}
	return in
}

// bySelector is the slice that Kubernetes makes of the derived Service's selector.
func bySelector(addresses ...string) *discoveryv1.EndpointSlice {
	s := foreignSlice(web+"-x7k2p", "web", "a")
	s.Labels[discoveryv1.LabelServiceName], s.Labels[discoveryv1.LabelManagedBy] = web, "endpointslice-controller.k8s.io"
	s.Endpoints = []discoveryv1.Endpoint{{Addresses: addresses}}
	if len(addresses) == 0 {
		s.Endpoints = nil
	}
	return s
}

func TestAMaintainedSelectorTakesThePlaceOfThisClustersSlices(t *testing.T) {
	w := imported(t, twoClusters())
	on, off := maintained(), twoClusters().in()
	expect := func(what string, in plan.ImportInput, want ...string) {
		t.Helper()
		w.writes = nil
		if _, err := w.converge(in); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, w.writes); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	expect("on: the Service first, and what is there stays until Kubernetes made its own", on, "update Service default/"+web)
	service, _ := w.objects["Service default/"+web].(*corev1.Service)
	if service.Spec.Selector["app"] != "web" || service.Spec.Ports[0].TargetPort.StrVal != "web" || service.Labels[model.LabelSourceCluster] != "a" {
		t.Errorf("the Service became %+v with labels %v", service.Spec, service.Labels)
	}
	w.put(bySelector("10.1.0.1"))
	expect("Kubernetes made its own: ours goes", on, "delete EndpointSlice default/"+web+"-a")
	expect("nothing is left to do", on)
	expect("off: ours comes first, then the selector selects nothing", off, "create EndpointSlice default/"+web+"-a", "update Service default/"+web)
	w.put(bySelector())
	expect("off: Kubernetes emptied its slices, so the selector goes", off, "update Service default/"+web)
	service, _ = w.objects["Service default/"+web].(*corev1.Service)
	if len(service.Spec.Selector) > 0 || service.Labels[model.LabelSourceCluster] != "" || service.Spec.Ports[0].TargetPort.IntVal != 80 {
		t.Errorf("the Service became %+v with labels %v", service.Spec, service.Labels)
	}
}

func TestAPipelinesSliceOfThisClusterGoesWhereTheSelectorTakesItsPlace(t *testing.T) {
	w := pipelineWorld()
	w.put(bySelector("10.1.0.1"))
	in := maintained()
	in.Takeover = true
	if _, err := w.converge(in); err != nil {
		t.Fatal(err)
	}
	if w.objects["EndpointSlice default/"+web+"-a"] != nil {
		t.Errorf("still there; writes: %v", w.writes)
	}
}

// TestTakingOverTouchesNothingElse draws which objects of the pipeline exist,
// which of them lack a mark, who was read and whether it stops in between.
func TestTakingOverTouchesNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		spoiled := map[string]bool{}
		for _, o := range pipelined() {
			switch rapid.IntRange(0, 3).Draw(t, "object") {
			case 0:
				continue
			case 1:
				spoiled[refOf(o)] = true
				o.SetAnnotations(nil)
				o.SetLabels(map[string]string{model.LabelServiceName: "web"})
			}
			w.put(o)
		}
		before := w.snapshot(func(o plan.Object) bool { return spoiled[refOf(o)] })
		uids := map[string]string{}
		for ref, o := range w.objects {
			uids[ref] = string(o.GetUID())
		}
		set := twoClusters()
		if rapid.Bool().Draw(t, "unread") {
			set = set.notRead("b")
		}
		w.crash = rapid.Bool().Draw(t, "crash")
		in := takingOver(set)
		for _, a := range plan.Import(w.sees(in)).Actions {
			_ = w.do(a) // a Create may meet a spoiled slice
		}
		w.crash = false
		if _, err := w.converge(in); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, w.snapshot(func(o plan.Object) bool { return spoiled[refOf(o)] })); diff != "" {
			t.Fatalf("a foreign object changed:\n%s", diff)
		}
		for ref, uid := range uids {
			if o := w.objects[ref]; o == nil || string(o.GetUID()) != uid {
				t.Fatalf("%s was deleted or made anew", ref)
			}
		}
	})
}
