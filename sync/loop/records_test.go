// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/loop/internal/memory"
	"github.com/comity-mcs/comity/sync/model"
)

// inHub is what cluster a's reconcilers share where it publishes in a hub that
// holds these objects; its own kube-system namespace has the UID "mine".
func inHub(t *testing.T, objects ...client.Object) (*base, *events.FakeRecorder) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, exchangev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	local := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "mine"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "comity-system"}},
	).Build()
	recorder := events.NewFakeRecorder(10)
	return &base{
		hub: true, client: local, pass: memory.NewPass(), observations: memory.NewObservations(),
		Options: Options{
			Self: "a", ClusterSet: "prod", Namespace: "comity-system", Version: "v1", Recorder: recorder,
			Exchange: &Exchange{
				Client:  fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
				Problem: func(context.Context, string) string { return "" },
			},
		},
	}, recorder
}

func memberRecord(uid types.UID) *exchangev1alpha1.MemberRecord {
	return &exchangev1alpha1.MemberRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: "comity-a", Name: "a"},
		Spec:       exchangev1alpha1.MemberRecordSpec{ClusterID: "a", ClusterSet: "prod", ClusterUID: uid},
	}
}

func TestAnotherClusterWithThisOnesIDKeepsItsPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		stands []client.Object
		own    bool // the exchange is this cluster's own API server
		want   bool
	}{
		"nobody published yet":                             {want: false},
		"this cluster did":                                 {stands: []client.Object{memberRecord("mine")}},
		"this cluster did, before UIDs were told":          {stands: []client.Object{memberRecord("")}},
		"another cluster did":                              {stands: []client.Object{memberRecord("theirs")}, want: true},
		"this cluster was restored, in its own API server": {stands: []client.Object{memberRecord("theirs")}, own: true},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := inHub(t, tc.stands...)
			b.hub = !tc.own
			problem, err := b.duplicate(t.Context())
			if err != nil || (problem != "") != tc.want {
				t.Fatalf("got %q and error %v", problem, err)
			}
			for _, part := range []string{"MemberRecord comity-a/a", "theirs", "mine", "give one of the two another id"} {
				if tc.want && !strings.Contains(problem, part) {
					t.Errorf("got %q, want it to say %q", problem, part)
				}
			}
			if may, err := b.mayPublish(t.Context()); err != nil || may == tc.want {
				t.Errorf("may publish: %v, error %v", may, err)
			}
			if told := (&Loop{b}).Problem(t.Context(), "comity-a-to-b"); told != problem {
				t.Errorf("told others %q", told)
			}
		})
	}
}

func TestADuplicateIsToldOnceAndItsEndStartsAnew(t *testing.T) {
	record := memberRecord("theirs")
	b, recorder := inHub(t, record)
	b.pass.Seed(memory.Exports, nil)
	b.pass.Seed(memory.Namespaces, nil)
	h := &memberRecordController{base: b}
	for range 3 {
		// Nothing is set up to write: an attempt would panic.
		if _, err := h.Reconcile(t.Context(), reconcile.Request{NamespacedName: b.member()}); err != nil {
			t.Fatal(err)
		}
	}
	if len(recorder.Events) != 1 {
		t.Errorf("told %d times, want once", len(recorder.Events))
	}
	if err := b.Exchange.Client.Delete(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Reconcile(t.Context(), reconcile.Request{NamespacedName: b.member()}); err != nil || b.pass.IsComplete() {
		t.Errorf("error %v; everything counts as published although nothing was: %v", err, b.pass.IsComplete())
	}
}

func TestTheMemberRecordTakesBackNothingForWantOfKnowledge(t *testing.T) {
	b, _ := inHub(t)
	h := &memberRecordController{base: b}
	before := memberRecord("mine")
	before.Spec.PodCIDRs = []string{"10.0.0.0/16"}
	want := exchangev1alpha1.MemberRecordSpec{ClusterID: "a", ClusterSet: "prod", Version: "v1", ClusterUID: "mine", PodCIDRs: []string{"10.0.0.0/16"}}
	if diff := cmp.Diff(want, h.describe("mine", before)); diff != "" {
		t.Errorf("while nothing is known (-want +got):\n%s", diff)
	}
	b.LocalCluster = func() model.LocalCluster {
		return model.LocalCluster{ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("fd00::/112")}}
	}
	want.PodCIDRs, want.ServiceCIDRs = nil, []string{"fd00::/112"}
	if diff := cmp.Diff(want, h.describe("mine", before)); diff != "" {
		t.Errorf("once it is known (-want +got):\n%s", diff)
	}
	many := make([]netip.Prefix, 100)
	if got := texts(many); len(got) != maxCIDRs {
		t.Errorf("got %d ranges, which the API server would refuse", len(got))
	}
}

// FAULTS.md 24: a namespace that is deleted, or made late or anew.
func TestWhatANamespaceIsDecidesWhatIsWrittenThere(t *testing.T) {
	i := &importer{base: &base{Options: Options{Namespace: "comity-system"}}}
	gone := metav1.Now()
	for name, tc := range map[string]struct {
		namespace *corev1.Namespace
		want      bool
	}{
		"none":                      {nil, false},
		"a user's":                  {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, true},
		"one that is being deleted": {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", DeletionTimestamp: &gone}}, false},
		"Comity's own":              {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "comity-system"}}, false},
		"the cluster's own":         {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}, false},
		"one of the exchange":       {&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "comity-a", Labels: map[string]string{model.LabelExchangeFrom: "a"}}}, false},
	} {
		if got := i.isDestination(tc.namespace); got != tc.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	shop := func(change func(*corev1.Namespace)) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
		change(n)
		return n
	}
	same, going := shop(func(*corev1.Namespace) {}), shop(func(n *corev1.Namespace) { n.DeletionTimestamp = &gone })
	for name, tc := range map[string]struct{ passes, want bool }{
		"made late or anew": {namespaceLifecycle.Create(event.CreateEvent{Object: same}), true},
		"there at start":    {namespaceLifecycle.Create(event.CreateEvent{Object: same, IsInInitialList: true}), false},
		"going":             {namespaceLifecycle.Update(event.UpdateEvent{ObjectOld: same, ObjectNew: going}), true},
		"gone":              {namespaceLifecycle.Delete(event.DeleteEvent{Object: going}), true},
		"changed in nothing that matters": {namespaceLifecycle.Update(event.UpdateEvent{ObjectOld: same, ObjectNew: shop(func(n *corev1.Namespace) {
			n.Labels = map[string]string{"team": "x"}
		})}), false},
		"told what becomes of lost endpoints": {namespaceLifecycle.Update(event.UpdateEvent{ObjectOld: same, ObjectNew: shop(func(n *corev1.Namespace) {
			n.Annotations = map[string]string{model.AnnotationOnLost: "keep"}
		})}), true},
	} {
		if tc.passes != tc.want {
			t.Errorf("a namespace %s: imports are looked at: %v", name, tc.passes)
		}
	}
}
