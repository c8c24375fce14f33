// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/comity-mcs/comity/sync/decide"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

// inHub is what cluster a's reconcilers share where it publishes in a hub that
// holds these objects.
func inHub(t *testing.T, objects ...client.Object) (*base, *events.FakeRecorder) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, exchangev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	local := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "comity-system"}},
	).Build()
	recorder := events.NewFakeRecorder(10)
	b := &base{
		hub: true, client: local, recorder: recorder, pass: &decide.FirstPass{}, observations: NewObservations("a"),
		Options: Options{
			Self: "a", ClusterUID: "mine", ClusterSet: "prod", Namespace: "comity-system", Version: "v1", Peers: &ownIDPeers{},
			Exchange: &Exchange{
				Client:  fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
				Problem: func(context.Context, string) string { return "" },
			},
		},
	}
	b.claim.Store(types.UID("mine"))
	return b, recorder
}

func memberRecord(uid types.UID) *exchangev1alpha1.MemberRecord {
	return &exchangev1alpha1.MemberRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: "comity-a", Name: "a"},
		Spec:       exchangev1alpha1.MemberRecordSpec{ClusterID: "a", ClusterSet: "prod", ClusterUID: uid},
	}
}

func TestAnotherClusterWithThisOnesIDKeepsItsPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		holder types.UID // of the Lease
		stands []client.Object
		own    bool // the exchange is this cluster's own API server
		want   []string
	}{
		"nobody is known to hold it":                       {want: []string{"Lease comity-a/a in the hub is not held by this cluster yet"}},
		"this cluster holds it":                            {holder: "mine", stands: []client.Object{memberRecord("before")}},
		"another cluster does":                             {holder: "theirs", stands: []client.Object{memberRecord("mine")}, want: []string{"Lease comity-a/a", "theirs", "mine", "give one of the two another id"}},
		"this cluster was restored, in its own API server": {holder: "mine", stands: []client.Object{memberRecord("theirs")}, own: true},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := inHub(t, tc.stands...)
			b.hub = !tc.own
			b.claim.Store(tc.holder)
			problem := b.duplicate(t.Context())
			if (problem != "") != (tc.want != nil) {
				t.Fatalf("got %q", problem)
			}
			for _, part := range tc.want {
				if !strings.Contains(problem, part) {
					t.Errorf("got %q, want it to say %q", problem, part)
				}
			}
			if own := b.problem(t.Context(), "comity-a"); own != problem {
				t.Errorf("its own exchange namespace has the problem %q", own)
			}
			if told := b.problem(t.Context(), "comity-a-to-b"); told != problem {
				t.Errorf("told others %q", told)
			}
		})
	}
}

func TestADuplicateIsToldOnceAndItsEndStartsAnew(t *testing.T) {
	b, recorder := inHub(t)
	b.claim.Store(types.UID("theirs"))
	b.pass.Seed(decide.Exports, nil)
	b.pass.Seed(decide.Namespaces, nil)
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
	b.claim.Store(types.UID("mine"))
	if _, err := h.Reconcile(t.Context(), reconcile.Request{NamespacedName: b.member()}); err != nil || b.pass.IsComplete() {
		t.Errorf("error %v; everything counts as published although nothing was: %v", err, b.pass.IsComplete())
	}
}
