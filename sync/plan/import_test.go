// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// twoClusters is web, exported by a (where the tests look) and by b.
func twoClusters() *clusterset {
	return importOf("web").
		export("a", http(), slice("web-1", []string{"http"}, "10.1.0.1")).
		export("b", http(), copyOf(slice("web-x", []string{"http"}, "10.2.0.1", "10.2.0.2")))
}

// imported is a world in which that is imported.
func imported(t *testing.T, s *clusterset) *world {
	t.Helper()
	w := newWorld()
	if _, err := w.converge(s.in()); err != nil {
		t.Fatal(err)
	}
	w.writes = nil
	return w
}

func derived(name string) string { return model.DerivedName(name) }

func TestAnImportIsMadeInOrder(t *testing.T) {
	w := newWorld()
	in := twoClusters().in()
	first := plan.Import(in)
	want := []string{
		"create Service default/derived-43254079",
		"create EndpointSlice default/derived-43254079-a",
		"create EndpointSlice default/derived-43254079-b",
	}
	if diff := cmp.Diff(want, verbs(first.Actions)); diff != "" || !first.AwaitsService || first.DerivedName != derived("web") {
		t.Fatalf("first plan, awaiting the Service: %t, named %q (-want +got):\n%s", first.AwaitsService, first.DerivedName, diff)
	}
	for _, a := range first.Actions {
		if err := w.do(a); err != nil {
			t.Fatal(err)
		}
	}
	in.Current = w.current(in.Key)
	second := plan.Import(in)
	if diff := cmp.Diff([]string{"create ServiceImport default/web"}, verbs(second.Actions)); diff != "" || second.AwaitsService {
		t.Errorf("second plan, awaiting the Service: %t (-want +got):\n%s", second.AwaitsService, diff)
	}
}

// listOfB is the list of an import of b's export.
const listOfB = `{"formed":"1970-01-01T00:16:40Z","exports":[{"cluster":"b","uid":"b","createdAt":"1970-01-01T00:16:40Z"}]}`

// fullImport is an import with all that may be in one, and its world.
func fullImport(t *testing.T) (*clusterset, *world) {
	t.Helper()
	set := importOf("web").export("b", http(), copyOf(slice("web-x", []string{"http", "admin"}, "10.2.0.1"))).edit(func(e *model.Export) {
		e.SessionAffinity = corev1.ServiceAffinityClientIP
		e.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr(int32(10))}}
		e.TrafficDistribution = ptr("PreferSameZone")
		e.Labels = map[string]string{"team": "red", model.LabelServiceName: "spoof"}
		e.Annotations = map[string]string{"note": "hello", model.AnnotationDerivedName: "spoof"}
	})
	return set, imported(t, set)
}

func TestTheDerivedService(t *testing.T) {
	set, w := fullImport(t)
	service, _ := w.applied["Service default/derived-43254079"].(*corev1.Service)
	delete(service.Annotations, model.AnnotationApplied)
	wantService := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "derived-43254079", Annotations: map[string]string{model.AnnotationList: listOfB}, Labels: map[string]string{
			"multicluster.kubernetes.io/service-name": "web", "multicluster.kubernetes.io/service-imported": "true",
			"app.kubernetes.io/managed-by": "comity",
		}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, IPFamilyPolicy: ptr(corev1.IPFamilyPolicySingleStack),
			Ports:           []corev1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80, TargetPort: intstr.FromInt32(80)}},
			SessionAffinity: corev1.ServiceAffinityClientIP, SessionAffinityConfig: set.exports[0].SessionAffinityConfig,
			InternalTrafficPolicy: ptr(corev1.ServiceInternalTrafficPolicyCluster), TrafficDistribution: ptr("PreferSameZone"),
		},
	}
	if diff := cmp.Diff(wantService, service); diff != "" {
		t.Errorf("derived Service (-want +got):\n%s", diff)
	}
}

func TestTheServiceImport(t *testing.T) {
	set, w := fullImport(t)
	imp, _ := w.applied["ServiceImport default/web"].(*mcsv1beta1.ServiceImport)
	delete(imp.Annotations, model.AnnotationApplied)
	wantImport := &mcsv1beta1.ServiceImport{
		TypeMeta: metav1.TypeMeta{APIVersion: "multicluster.x-k8s.io/v1beta1", Kind: "ServiceImport"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web",
			Labels: map[string]string{
				"team": "red", "multicluster.kubernetes.io/service-name": "web", "app.kubernetes.io/managed-by": "comity",
			},
			Annotations: map[string]string{
				"note": "hello", "multicluster.kubernetes.io/derived-service": "derived-43254079", "comity.dev/exports": listOfB,
			},
		},
		Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.ClusterSetIP, Ports: http(), IPs: []string{"10.0.0.2"}, IPFamilies: []corev1.IPFamily{"IPv4"},
			SessionAffinity: corev1.ServiceAffinityClientIP, SessionAffinityConfig: set.exports[0].SessionAffinityConfig,
			InternalTrafficPolicy: ptr(corev1.ServiceInternalTrafficPolicyCluster), TrafficDistribution: ptr("PreferSameZone"),
		},
	}
	if diff := cmp.Diff(wantImport, imp); diff != "" {
		t.Errorf("ServiceImport (-want +got):\n%s", diff)
	}
}

func TestTheDerivedSlice(t *testing.T) {
	_, w := fullImport(t)
	mirrored, _ := w.applied["EndpointSlice default/derived-43254079-b"].(*discoveryv1.EndpointSlice)
	delete(mirrored.Annotations, model.AnnotationApplied)
	wantSlice := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "derived-43254079-b",
			Labels: map[string]string{
				"app": "web", "multicluster.kubernetes.io/service-name": "web", "multicluster.kubernetes.io/source-cluster": "b",
				"kubernetes.io/service-name": "derived-43254079", "endpointslice.kubernetes.io/managed-by": "comity",
			},
			Annotations: map[string]string{"comity.dev/source-slice": "web-x"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr("http"), Protocol: ptr(corev1.ProtocolTCP), Port: ptr(int32(8000))}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.2.0.1"}, Hostname: ptr("web-0"), Zone: ptr("zone-1"),
			Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "zone-1"}}}, // PreferSameZone
			Conditions: discoveryv1.EndpointConditions{Ready: ptr(true), Serving: ptr(true), Terminating: ptr(false)},
		}},
	}
	if diff := cmp.Diff(wantSlice, mirrored); diff != "" {
		t.Errorf("EndpointSlice (-want +got):\n%s", diff)
	}
}

func TestASliceIsReplacedIfOnlyItsEndpointsOrPortsChanged(t *testing.T) {
	for _, c := range []struct {
		name     string
		change   func(source, derived *discoveryv1.EndpointSlice)
		replaced bool
	}{
		{"an endpoint", func(source, _ *discoveryv1.EndpointSlice) { source.Endpoints[0].Addresses = []string{"10.2.0.9"} }, true},
		{"an endpoint, by a user", func(_, derived *discoveryv1.EndpointSlice) { derived.Endpoints = nil }, true},
		{"a port", func(source, _ *discoveryv1.EndpointSlice) { source.Ports[0].AppProtocol = ptr("h2c") }, true},
		{"an endpoint and a label", func(source, _ *discoveryv1.EndpointSlice) {
			source.Endpoints[0].Addresses, source.Labels = []string{"10.2.0.9"}, map[string]string{"team": "web"}
		}, false},
		{"an endpoint, and a user removed a label", func(source, derived *discoveryv1.EndpointSlice) {
			source.Endpoints[0].Addresses = []string{"10.2.0.9"}
			delete(derived.Labels, model.LabelSourceCluster)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := twoClusters()
			w := imported(t, set)
			in := w.sees(set.in())
			var stands *discoveryv1.EndpointSlice
			for n, s := range in.Current.Slices {
				if s.Name == "derived-43254079-b" {
					stands = s.DeepCopy()
					in.Current.Slices[n] = stands
				}
			}
			c.change(in.Sources["b"][0], stands)
			actions := plan.Import(in).Actions
			if len(actions) != 1 || actions[0].Verb != plan.Update {
				t.Fatalf("got %v, want one update", actions)
			}
			if replaced := actions[0].Read == stands; replaced != c.replaced || !c.replaced && actions[0].Read != nil {
				t.Errorf("replaced what was read: %t, want %t", replaced, c.replaced)
			}
		})
	}
}

func TestHeadlessHasNoAddressAndKeepsItsFamilies(t *testing.T) {
	set := importOf("cassandra").export("b", ports(port("cql", 9042)), copyOf(slice("c-1", []string{"cql"}, "10.2.0.1"))).
		edit(func(e *model.Export) { e.Type = mcsv1beta1.Headless })
	w := imported(t, set)
	imp, _ := w.objects["ServiceImport default/cassandra"].(*mcsv1beta1.ServiceImport)
	if imp.Spec.Type != mcsv1beta1.Headless || len(imp.Spec.IPs) != 0 || len(imp.Spec.IPFamilies) != 1 {
		t.Errorf("got %+v, want type Headless, no IPs, one family", imp.Spec)
	}
	service, _ := w.objects["Service default/"+derived("cassandra")].(*corev1.Service)
	if service.Spec.ClusterIP != corev1.ClusterIPNone {
		t.Errorf("derived Service has cluster IP %q", service.Spec.ClusterIP)
	}
}

var web = derived("web")

// outstanding are states that follow a finished import of twoClusters.
var outstanding = []struct {
	name  string
	then  func() *clusterset // the clusterset after the first import; nil: the same
	world func(w *world)     // what else happened
	edit  func(in *plan.ImportInput)
	want  []string
}{
	{name: "nothing changed: no write"},
	{
		name: "one endpoint changes: one slice is written",
		then: func() *clusterset {
			return importOf("web").export("a", http(), slice("web-1", []string{"http"}, "10.1.0.1")).
				export("b", http(), copyOf(slice("web-x", []string{"http"}, "10.2.0.1", "10.2.0.3")))
		},
		want: []string{"update EndpointSlice default/" + web + "-b"},
	},
	{
		name: "one cluster no longer exports: its slice goes",
		then: func() *clusterset {
			return importOf("web").export("a", http(), slice("web-1", []string{"http"}, "10.1.0.1"))
		},
		want: []string{"update Service default/" + web, "update ServiceImport default/web", "delete EndpointSlice default/" + web + "-b"},
	},
	{
		name: "no cluster exports: the name goes first, the address last",
		then: func() *clusterset { return importOf("web") },
		want: []string{
			"delete ServiceImport default/web", "delete EndpointSlice default/" + web + "-a",
			"delete EndpointSlice default/" + web + "-b", "delete Service default/" + web,
		},
	},
	{
		name: "no cluster exports and b was not read: only what came from a goes",
		then: func() *clusterset { return importOf("web").notRead("b") },
		want: []string{"annotate Service default/" + web, "annotate ServiceImport default/web", "delete EndpointSlice default/" + web + "-a"},
	},
	{
		name: "b was not read and the port of a, which decides, changes: the import follows and b's slice stays",
		then: func() *clusterset {
			return importOf("web").export("a", ports(port("http", 81)), slice("web-1", []string{"http"}, "10.1.0.1")).notRead("b")
		},
		want: []string{"update Service default/" + web, "update ServiceImport default/web"},
	},
	{
		name: "a, which decides, was not read and b's port changes: the import and a's slice stay",
		then: func() *clusterset {
			return importOf("web").export("b", ports(port("http", 81)), copyOf(slice("web-x", []string{"http"}, "10.2.0.1", "10.2.0.2"))).notRead("a")
		},
		// b no longer has the port that is still announced, so no traffic may reach it.
		want: []string{"delete EndpointSlice default/" + web + "-b"},
	},
	{
		name: "b was not read; what is known of it changes nothing",
		then: func() *clusterset { return twoClusters().notRead("b") },
	},
	{
		name: "c was not read and never contributed: the rest goes on",
		then: func() *clusterset {
			return importOf("web").export("a", http(), slice("web-1", []string{"http"}, "10.1.0.1")).notRead("c")
		},
		want: []string{"update Service default/" + web, "update ServiceImport default/web", "delete EndpointSlice default/" + web + "-b"},
	},
	{
		name: "the oldest export turns headless: the Service is replaced before anything else is said",
		then: func() *clusterset {
			s := twoClusters()
			s.exports[0].Type = mcsv1beta1.Headless
			return s
		},
		want: []string{"delete Service default/" + web},
	},
	{
		name: "a user changed the affinity: it is reverted",
		world: func(w *world) {
			w.objects["Service default/"+web].(*corev1.Service).Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		},
		want: []string{"update Service default/" + web},
	},
	{
		name:  "a user added a label: it stays",
		world: func(w *world) { w.objects["Service default/"+web].GetLabels()["mine"] = "yes" },
	},
	{
		name: "the API server filled in a node port's worth of defaults: no write",
		world: func(w *world) {
			spec := &w.objects["Service default/"+web].(*corev1.Service).Spec
			spec.Ports[0].NodePort, spec.ExternalTrafficPolicy = 30000, "Cluster"
		},
	},
	{
		name: "a user took the source cluster off a slice: it is put back",
		world: func(w *world) {
			delete(w.objects["EndpointSlice default/"+web+"-b"].GetLabels(), model.LabelSourceCluster)
		},
		want: []string{"update EndpointSlice default/" + web + "-b"},
	},
	{
		name:  "a user deleted the derived Service: it is made again under its name",
		world: func(w *world) { delete(w.objects, "Service default/"+web) },
		want:  []string{"create Service default/" + web},
	},
	{
		name: "an object that is being deleted is not deleted again",
		then: func() *clusterset {
			return importOf("web").export("a", http(), slice("web-1", []string{"http"}, "10.1.0.1"))
		},
		world: func(w *world) {
			w.objects["EndpointSlice default/"+web+"-b"].SetDeletionTimestamp(ptr(metav1.Unix(1, 0)))
		},
		want: []string{"update Service default/" + web, "update ServiceImport default/web"}, // b is not listed any more
	},
	{
		name: "a user removed the list from the ServiceImport, which has the copy",
		world: func(w *world) {
			delete(w.objects["ServiceImport default/web"].GetAnnotations(), model.AnnotationList)
		},
		want: []string{"update ServiceImport default/web"},
	},
	{
		name: "c is listed, was not read, and has no endpoint: what it decided stays",
		world: func(w *world) {
			set := twoClusters().export("c", []mcsv1beta1.ServicePort{{Name: "more", Protocol: "TCP", Port: 90}})
			if _, err := w.converge(set.in()); err != nil {
				panic(err)
			}
		},
		then: func() *clusterset { return twoClusters().notRead("c") },
	},
	{
		name: "a slice of another family takes a name of its own, and the old one goes after it came",
		then: func() *clusterset {
			s := twoClusters()
			s.slices["b"][0].AddressType = discoveryv1.AddressTypeIPv6
			return s
		},
		want: []string{
			"create EndpointSlice default/" + model.SliceName(web, false, "b", "web-x"),
			"delete EndpointSlice default/" + web + "-b",
		},
	},
	{
		name: "a source slice is replaced by another: the derived one takes it over in place",
		then: func() *clusterset {
			return importOf("web").export("a", http(), slice("web-2", []string{"http"}, "10.1.0.1")).
				export("b", http(), copyOf(slice("web-x", []string{"http"}, "10.2.0.1", "10.2.0.2")))
		},
		want: []string{"update EndpointSlice default/" + web + "-a"},
	},
	{
		name: "a second source slice takes a name with its hash",
		then: func() *clusterset {
			return importOf("web").export("a", http(), slice("web-0", []string{"http"}, "10.1.0.9"), slice("web-1", []string{"http"}, "10.1.0.1")).
				export("b", http(), copyOf(slice("web-x", []string{"http"}, "10.2.0.1", "10.2.0.2")))
		},
		want: []string{"create EndpointSlice default/" + model.SliceName(web, false, "a", "web-0")},
	},
	{
		name: "a second family is added to the import: the Service first, the ServiceImport when its addresses are known",
		then: func() *clusterset {
			s := twoClusters()
			s.exports[0].IPFamilies = []corev1.IPFamily{"IPv4", "IPv6"}
			return s
		},
		want: []string{"update Service default/" + web},
	},
	{
		name: "an exported label is no longer exported: it goes, which only the digest can tell",
		world: func(w *world) {
			set := twoClusters()
			set.exports[0].Labels = map[string]string{"team": "red"}
			if _, err := w.converge(set.in()); err != nil {
				panic(err)
			}
		},
		want: []string{"update ServiceImport default/web"},
	},
}

func TestWhatIsOutstanding(t *testing.T) {
	for _, c := range outstanding {
		t.Run(c.name, func(t *testing.T) {
			w := imported(t, twoClusters())
			if c.world != nil {
				c.world(w)
			}
			set := twoClusters()
			if c.then != nil {
				set = c.then()
			}
			in := w.sees(set.in())
			if diff := cmp.Diff(c.want, verbs(plan.Import(in).Actions)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What a member exports as annotations must not confirm a takeover, nor say of
// which exports the import consists.
func TestAnExportedAnnotationIsNoneOfComity(t *testing.T) {
	set := twoClusters()
	set.exports[0].Annotations = map[string]string{model.AnnotationConfirmTakeover: "uid", model.AnnotationList: `{"formed":"2020-01-01T00:00:00Z","exports":[{"cluster":"c"}]}`}
	w := imported(t, set)
	got := w.objects["ServiceImport default/web"].GetAnnotations()
	if _, has := got[model.AnnotationConfirmTakeover]; has || strings.Contains(got[model.AnnotationList], `"c"`) {
		t.Errorf("annotations %v", got)
	}
}
