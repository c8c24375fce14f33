// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

func TestTheFirstPassEndsWhenAllWasPublishedOnce(t *testing.T) {
	f := &FirstPass{}
	step := func(what string, do func(), complete bool) {
		t.Helper()
		do()
		if f.IsComplete() != complete {
			t.Errorf("%s: complete is %v", what, !complete)
		}
	}
	step("at start", func() {}, false)
	step("with no export at all", func() { f.Seed(Exports, nil) }, false)
	step("with one namespace to come", func() { f.Seed(Namespaces, []types.NamespacedName{{Name: "shop"}}) }, false)
	step("after an attempt at something else", func() { f.Attempted(Exports, key("web"), true) }, false)
	step("after all", func() { f.Attempted(Namespaces, types.NamespacedName{Name: "shop"}, true) }, true)
	step("after a later list", func() { f.Seed(Exports, []types.NamespacedName{key("new")}) }, true)
	step("after its exchange was made anew", f.Restart, false)
}

func TestAFailingExportDoesNotHoldUpTheFirstPassForEver(t *testing.T) {
	f := &FirstPass{}
	f.Seed(Namespaces, nil)
	f.Seed(Exports, []types.NamespacedName{key("bad"), key("good")})
	f.Attempted(Exports, key("good"), true)
	for attempt := 1; attempt <= maxAttempts; attempt++ {
		if f.IsComplete() {
			t.Fatalf("complete before attempt %d", attempt)
		}
		f.Attempted(Exports, key("bad"), false)
	}
	if !f.IsComplete() {
		t.Error("still held up")
	}
}
