// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// listing is an object that Comity made, with the list of an import.
func listing(object client.Object, name string, clusters ...model.ClusterID) client.Object {
	list := model.List{Formed: time.Unix(1, 0)}
	for _, id := range clusters {
		list.Entries = append(list.Entries, model.Entry{SourceExport: model.SourceExport{Cluster: id, UID: "u"}})
	}
	object.SetNamespace("shop")
	object.SetName(name)
	object.SetLabels(map[string]string{model.LabelServiceName: "web"})
	object.SetAnnotations(map[string]string{model.AnnotationList: list.String()})
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: model.FieldOwner, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}"),
	}})
	return object
}

func byHand(object client.Object) client.Object {
	object.SetManagedFields(nil)
	return object
}

func storedPeer(spec v1alpha1.PeerSpec, removed metav1.ConditionStatus) *v1alpha1.Peer {
	peer := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: spec}
	if removed != "" {
		peer.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PeerRemoved, Status: removed, Reason: "Removed"}}
	}
	return peer
}

func withObjects(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := newScheme()
	if err := mcsv1beta1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().WithStatusSubresource(&v1alpha1.Peer{}).WithObjects(objects...).Build()
}

func TestAPeerIsDeletedOnceItsImportsAreRemoved(t *testing.T) {
	const notSeen = "Peer b pending (the agent has not set condition Removed within 1ms; "
	for name, tc := range map[string]struct {
		objects    []client.Object
		unattended bool
		want       []string
	}{
		"there is no Peer and no import": {[]client.Object{byHand(listing(&corev1.Service{}, "derived-1", "b"))}, false, nil},
		"there is no Peer, and a derived Service lists it": {
			[]client.Object{listing(&corev1.Service{}, "derived-1", "a", "b")}, false,
			[]string{"Peer b created (states that the cluster is removed)", notSeen + "imports with an export of cluster b: 1)"},
		},
		"there is no Peer, and a ServiceImport lists it": {
			[]client.Object{listing(&mcsv1beta1.ServiceImport{}, "web", "b")}, false,
			[]string{"Peer b created (states that the cluster is removed)", notSeen + "imports with an export of cluster b: 1)"},
		},
		"the derived Service does not list it, whatever the copy says": {
			[]client.Object{listing(&mcsv1beta1.ServiceImport{}, "web", "b"), listing(&corev1.Service{}, "derived-1", "c")}, false, nil,
		},
		"the agent has removed everything": {
			[]client.Object{storedPeer(v1alpha1.PeerSpec{Removed: true}, metav1.ConditionTrue)}, false, []string{"Peer b deleted"},
		},
		"the agent has not": {
			[]client.Object{storedPeer(v1alpha1.PeerSpec{Removed: true}, metav1.ConditionFalse)}, false,
			[]string{notSeen + "imports with an export of cluster b: 0)"},
		},
		"no agent runs, and nothing is imported": {
			[]client.Object{storedPeer(v1alpha1.PeerSpec{ClusterSet: "prod"}, "")}, true,
			[]string{"Peer b changed (states that the cluster is removed)", "Peer b deleted"},
		},
		"no agent runs, and something is imported": {
			[]client.Object{storedPeer(v1alpha1.PeerSpec{ClusterSet: "prod"}, ""), listing(&corev1.Service{}, "derived-1", "b")}, true,
			[]string{"Peer b changed (states that the cluster is removed)", "Peer b pending (the agent does not run; imports with an export of cluster b: 1)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var done []string
			opts := Options{Progress: func(s Step) { done = append(done, strings.TrimPrefix(s.String(), "a: ")) }}.withDefaults()
			m := &member{Cluster: Cluster{ID: "a", Set: "prod", Namespace: "comity-system", Unattended: tc.unattended}, opts: opts, client: withObjects(t, tc.objects...)}
			if err := forget(t.Context(), []end{{m, "b"}}, time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, done); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			peer, err := m.peer(t.Context(), "b")
			if pending := len(done) > 0 && strings.Contains(done[len(done)-1], "pending"); err != nil || peer.Spec.Removed != pending {
				t.Errorf("the Peer states that the cluster is removed: %t, %v; want %t", peer.Spec.Removed, err, pending)
			}
		})
	}
}
