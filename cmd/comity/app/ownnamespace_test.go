// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestNothingIsWrittenWhileTheOwnNamespaceIsDeleted(t *testing.T) {
	reached := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached++
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"shop","name":"x"}}`))
	}))
	defer server.Close()
	var lines []string
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "comity-system"}}
	stored := fake.NewClientBuilder().WithObjects(namespace).Build()
	n := &ownNamespace{name: "comity-system", reader: stored, log: funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})}
	config := &rest.Config{Host: server.URL}
	config.Wrap(refusing(n.refusal))
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	c, err := client.New(config, client.Options{Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "x"}}
	writes := func() []error {
		return []error{c.Create(t.Context(), object.DeepCopy()), c.Update(t.Context(), object.DeepCopy()), c.Delete(t.Context(), object.DeepCopy())}
	}
	for _, err := range writes() {
		if err != nil {
			t.Errorf("the namespace exists: %v", err)
		}
	}
	if err := stored.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	before := reached
	for _, err := range writes() {
		if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			t.Errorf("got %v, want the answer of a namespace that is being deleted", err)
		}
	}
	if reached != before {
		t.Errorf("%d writes reached the API server", reached-before)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Errorf("it may still read: %v", err)
	}
	if len(lines) != 1 {
		t.Errorf("logged %q, want one line", lines)
	}
	if err := stored.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "comity-system"}}); err != nil {
		t.Fatal(err)
	}
	for _, err := range writes() {
		if err != nil {
			t.Errorf("the namespace exists again: %v", err)
		}
	}
}
