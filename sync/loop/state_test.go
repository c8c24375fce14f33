// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/model"
)

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

func TestTheFirstPassEndsWhenAllWasPublishedOnce(t *testing.T) {
	f := newFirstPass()
	step := func(what string, do func(), complete bool) {
		t.Helper()
		do()
		if f.isComplete() != complete {
			t.Errorf("%s: complete is %v", what, !complete)
		}
	}
	step("at start", func() {}, false)
	step("with no export at all", func() { f.seed(passExports, nil) }, false)
	step("with one namespace to come", func() { f.seed(passNamespaces, []types.NamespacedName{{Name: "shop"}}) }, false)
	step("after an attempt at something else", func() { f.attempted(passExports, key("web"), true) }, false)
	step("after all", func() { f.attempted(passNamespaces, types.NamespacedName{Name: "shop"}, true) }, true)
	step("after a later list", func() { f.seed(passExports, []types.NamespacedName{key("new")}) }, true)
	step("after its exchange was made anew", f.restart, false)
}

func TestAFailingExportDoesNotHoldUpTheFirstPassForEver(t *testing.T) {
	f := newFirstPass()
	f.seed(passNamespaces, nil)
	f.seed(passExports, []types.NamespacedName{key("bad"), key("good")})
	f.attempted(passExports, key("good"), true)
	for attempt := 1; attempt <= maxAttempts; attempt++ {
		if f.isComplete() {
			t.Fatalf("complete before attempt %d", attempt)
		}
		f.attempted(passExports, key("bad"), false)
	}
	if !f.isComplete() {
		t.Error("still held up")
	}
}

// Two imports never hold one name, in whatever order names are chosen and given back.
func TestNamesAreHeldByOneImportEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNames()
		imports := []types.NamespacedName{key("svc-adb"), key("svc-bbc"), key("web")}
		holds := map[types.NamespacedName]string{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			k := rapid.SampledFrom(imports).Draw(t, "import")
			giveBack := rapid.Bool().Draw(t, "give back")
			n.choose(k, func(taken []string) string {
				holds[k] = ""
				if giveBack {
					return ""
				}
				for _, name := range []string{model.DerivedName(k.Name), model.AlternateDerivedName(k.Name)} {
					free := true
					for _, other := range taken {
						free = free && other != name
					}
					if free {
						holds[k] = name
						break
					}
				}
				if holds[k] == "" {
					t.Fatalf("no name left for %s", k)
				}
				return holds[k]
			})
			for a, name := range holds {
				for b, other := range holds {
					if a != b && name != "" && name == other {
						t.Fatalf("%s and %s both hold %s", a, b, name)
					}
				}
			}
		}
	})
}

func TestAnObservationIsWholeOrNotThere(t *testing.T) {
	o := newObservations()
	if _, ok := o.get(key("web")); ok {
		t.Error("known before anything was found")
	}
	o.importing(key("web"), &imported{exported: true})
	if _, ok := o.get(key("web")); ok {
		t.Error("known although nothing is known of its publication")
	}
	o.publish(key("web"), &published{publication: model.Published, scope: model.ScopeAll()})
	if seen, ok := o.get(key("web")); !ok || seen.Publication != model.Published || !seen.Scope.All() {
		t.Errorf("got %+v, %v", seen, ok)
	}
	o.publish(key("web"), nil)
	o.importing(key("web"), &imported{resolved: &model.Import{}})
	if seen, ok := o.get(key("web")); !ok || seen.Publication != model.PublicationNone {
		t.Errorf("an import without local export: %+v, %v", seen, ok)
	}
}

func TestChangesAreToldOnceEachAndNeverWaitedFor(t *testing.T) {
	o := newObservations()
	const keys = 500
	for range 3 { // nobody reads yet
		for n := range keys {
			o.importing(key(fmt.Sprint(n)), &imported{exported: true})
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = o.Start(ctx) })
	seen := map[string]int{}
	for range keys {
		select {
		case e := <-o.out:
			seen[e.Object.GetName()]++
		case <-time.After(10 * time.Second):
			t.Fatalf("told of %d of %d", len(seen), keys)
		}
	}
	if len(seen) != keys {
		t.Errorf("told of %d of %d", len(seen), keys)
	}
	o.importing(key("0"), &imported{exported: true})
	if len(o.take()) != 0 {
		t.Error("told of what did not change")
	}
	cancel()
	running.Wait()
}

func TestOnlyTheOwnersStayInManagedFields(t *testing.T) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{
		Manager: model.FieldOwner, Operation: metav1.ManagedFieldsOperationApply, Subresource: "status", FieldsV1: &metav1.FieldsV1{},
	}}}}
	if _, err := TrimManagedFields(s); err != nil {
		t.Fatal(err)
	}
	got := s.ManagedFields[0]
	if got.FieldsV1 != nil || got.Manager != model.FieldOwner || got.Operation != metav1.ManagedFieldsOperationApply || got.Subresource != "status" {
		t.Errorf("got %+v", got)
	}
}
