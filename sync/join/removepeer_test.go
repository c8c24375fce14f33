// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// importOf is a ServiceImport of an export of cluster b, without any slice.
func importOf(manager string, change func(*mcsv1beta1.ServiceImport)) *mcsv1beta1.ServiceImport {
	i := &mcsv1beta1.ServiceImport{}
	i.Namespace, i.Name, i.Annotations = "shop", "web", map[string]string{}
	i.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "multicluster.x-k8s.io/v1beta1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}"),
	}}
	change(i)
	return i
}

// The agent keeps what it imported from a peer whose Secret is missing. leave states that
// the peer is removed, whichever object still lists it.
func TestLeaveStatesTheRemovalOfAPeerWhoseSecretIsMissing(t *testing.T) {
	listed := func(i *mcsv1beta1.ServiceImport) { i.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "b"}} }
	for name, tc := range map[string]struct {
		object client.Object
		want   bool
	}{
		"nothing is imported":                    {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "any"}}, false},
		"the status of a ServiceImport lists it": {importOf(model.FieldOwner, listed), true},
		"the annotation of a ServiceImport lists it": {importOf(model.FieldOwner, func(i *mcsv1beta1.ServiceImport) {
			i.Annotations[model.AnnotationExports] = model.FormatSourceExports([]model.SourceExport{{Cluster: "b", UID: "u", CreatedAt: time.Unix(1, 0)}})
		}), true},
		"a ServiceImport lists another cluster": {importOf(model.FieldOwner, func(i *mcsv1beta1.ServiceImport) {
			i.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "c"}}
		}), false},
		"a ServiceImport of somebody else lists it": {importOf("somebody", listed), false},
		"a slice is of its endpoints": {&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", Labels: map[string]string{model.LabelSourceCluster: "b", discoveryv1.LabelManagedBy: model.ManagedBy},
		}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, mcsv1beta1.Install} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			var done []string
			opts, err := Options{Progress: func(s Step) { done = append(done, s.Kind+" "+s.Name+" "+string(s.Verb)) }}.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			m := &member{
				Cluster: Cluster{ID: "a", Set: "prod", Namespace: "comity-system"}, opts: opts,
				client: fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().WithObjects(tc.object).Build(),
			}
			if err := m.removePeer(t.Context(), "b"); err != nil {
				t.Fatal(err)
			}
			var want []string
			if tc.want {
				want = []string{"Secret peer-b created", "Secret peer-b deleted"}
			}
			if diff := cmp.Diff(want, done); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
