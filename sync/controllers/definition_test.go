// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// What the cache does not hold is withdrawn only if the API server does not hold it
// either, and could.
func TestAnExportIsGoneOnlyIfTheAPIServerSaysSo(t *testing.T) {
	key := types.NamespacedName{Namespace: "shop", Name: "web"}
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: exportDefinitionName}}
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "u"}}
	ended := export.DeepCopy()
	ended.DeletionTimestamp, ended.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/waits"}
	for _, tc := range []struct {
		name string
		has  []client.Object
		gone bool
	}{
		{"no definition", nil, false},
		{"the definition and no export", []client.Object{definition}, true},
		{"an export that the cache has not shown yet", []client.Object{definition, export}, false},
		{"an export that is being deleted", []client.Object{definition, ended}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme, mcsv1beta1.Install} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			d := &exportDefinition{
				reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(tc.has...).Build(), clock: clocktesting.NewFakePassiveClock(time.Unix(1, 0)),
			}
			if got := d.read(t.Context(), key); (got.Problem == "") != tc.gone {
				t.Errorf("got %+v, want gone: %v", got, tc.gone)
			}
			of := func(uid types.UID) *mcsv1beta1.ServiceExport {
				return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: uid}}
			}
			if has := len(tc.has) == 2; d.exists(t.Context(), of("u")) != has || d.exists(t.Context(), of("new")) {
				t.Errorf("exists is not %v, or another one of that name counts", has)
			}
		})
	}
}
