// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/comity-mcs/comity/sync/model"
)

func property(name, value string) client.Object {
	p := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"value": value}}}
	p.SetGroupVersionKind(clusterProperty)
	p.SetName(name)
	return p
}

func TestIdentity(t *testing.T) {
	unserved := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
		if _, is := into.(*corev1.Namespace); is {
			return c.Get(ctx, key, into, options...)
		}
		return &meta.NoKindMatchError{GroupKind: clusterProperty.GroupKind()}
	}}
	failing := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return errors.New("no answer")
	}}
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "u"}}
	id, set := property(model.LabelClusterID, "a"), property(model.LabelClusterSet, "production")
	for _, tc := range []struct {
		name    string
		stored  []client.Object
		server  interceptor.Funcs
		id, set string
		want    []string // of the error; none: a in production
	}{
		{"from flags where the kind is not served", nil, unserved, "a", "production", nil},
		{"from flags where there is no object", nil, interceptor.Funcs{}, "a", "production", nil},
		{"from ClusterProperty alone", []client.Object{id, set}, interceptor.Funcs{}, "", "", nil},
		{"from both, which agree", []client.Object{id, set}, interceptor.Funcs{}, "a", "production", nil},
		{"one from each", []client.Object{id}, interceptor.Funcs{}, "", "production", nil},
		{"the ids differ", []client.Object{id, set}, interceptor.Funcs{}, "b", "", []string{`--cluster-id is "b"`, "ClusterProperty " + model.LabelClusterID, `"a"`, "leave the flag out"}},
		{"the sets differ", []client.Object{id, set}, interceptor.Funcs{}, "a", "staging", []string{`--clusterset is "staging"`, "ClusterProperty " + model.LabelClusterSet}},
		{"no id at all", []client.Object{set}, interceptor.Funcs{}, "", "", []string{"--cluster-id is not set", "ClusterProperty " + model.LabelClusterID, "set one of them"}},
		{"no set at all", nil, unserved, "a", "", []string{"--clusterset is not set"}},
		{"an id in ClusterProperty that is no label", []client.Object{property(model.LabelClusterID, "A.B"), set}, interceptor.Funcs{}, "", "", []string{"ClusterProperty " + model.LabelClusterID, "spec.value", `"A.B"`, "RFC 1123"}},
		{"a set in ClusterProperty that no Secret could carry", []client.Object{id, property(model.LabelClusterSet, "a b")}, interceptor.Funcs{}, "", "", []string{"ClusterProperty " + model.LabelClusterSet, "spec.value", `"a b"`}},
		{"an API server that does not answer is not an absent property", nil, failing, "a", "production", []string{"read ClusterProperty", "no answer"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(system).WithObjects(tc.stored...).WithInterceptorFuncs(tc.server).Build()
			got, err := findIdentity(t.Context(), c, Options{ClusterID: tc.id, ClusterSet: tc.set})
			if len(tc.want) == 0 {
				if want := (identity{cluster: "a", set: "production", uid: "u"}); err != nil || got != want {
					t.Errorf("got %+v and error %v, want %+v", got, err, want)
				}
				return
			}
			if err == nil {
				t.Fatalf("got %+v, want an error", got)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got %q, want it to say %q", err, part)
				}
			}
		})
	}
}
