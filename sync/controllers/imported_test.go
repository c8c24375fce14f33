// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

func TestImportedIsWhatAnyObjectHereSays(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := mcsv1beta1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	if err := discoveryv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	named := func(name, owner string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: owner, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}"),
		}}}
	}
	web, foreign := &mcsv1beta1.ServiceImport{ObjectMeta: named("web", model.FieldOwner)}, &mcsv1beta1.ServiceImport{ObjectMeta: named("foreign", "somebody")}
	web.Annotations = map[string]string{model.AnnotationExports: model.FormatSourceExports([]model.SourceExport{{Cluster: "b", UID: "u", CreatedAt: time.Unix(1, 0)}})}
	for _, i := range []*mcsv1beta1.ServiceImport{web, foreign} {
		i.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "a"}}
	}
	slice := func(name, owner, service string, cluster model.ClusterID) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: named(name, owner)}
		s.Labels = map[string]string{model.LabelServiceName: service, model.LabelSourceCluster: string(cluster)}
		return s
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithReturnManagedFields().WithObjects(web, foreign,
		slice("1", model.FieldOwner, "web", "c"), slice("2", model.FieldOwner, "web", "c"), slice("3", model.FieldOwner, "gone", "c"), slice("4", "somebody", "web", "d")).Build()
	got, err := Imported(t.Context(), reader)
	if err != nil {
		t.Fatal(err)
	}
	key := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "shop", Name: name} }
	slices.SortFunc(got["c"], func(a, b types.NamespacedName) int { return strings.Compare(b.Name, a.Name) })
	want := map[model.ClusterID][]types.NamespacedName{"a": {key("web")}, "b": {key("web")}, "c": {key("web"), key("gone")}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
