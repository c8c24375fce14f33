// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

func TestKeysOf(t *testing.T) {
	named := func(name string) *exchangev1alpha1.ImportRecord {
		return &exchangev1alpha1.ImportRecord{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	if diff := cmp.Diff([]types.NamespacedName{web}, keysOf(t.Context(), named(model.RecordName("shop", "web")))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := keysOf(t.Context(), named("odd")); got != nil {
		t.Errorf("got %v", got)
	}
}
