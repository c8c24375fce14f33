// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/comity-mcs/comity/sync/model"
)

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

func TestTheFirstPassEndsWhenAllWasPublishedOnce(t *testing.T) {
	f := NewPass()
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
	f := NewPass()
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

// Two imports never hold one name, in whatever order names are chosen and given back.
func TestNamesAreHeldByOneImportEach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := NewNames()
		imports := []types.NamespacedName{key("svc-adb"), key("svc-bbc"), key("web")}
		holds := map[types.NamespacedName]string{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			k := rapid.SampledFrom(imports).Draw(t, "import")
			giveBack := rapid.Bool().Draw(t, "give back")
			n.Choose(k, func(taken []string) string {
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
	o := NewObservations()
	if _, ok := o.Get(key("web")); ok {
		t.Error("known before anything was found")
	}
	o.Import(key("web"), &Imported{Exported: true})
	if _, ok := o.Get(key("web")); ok {
		t.Error("known although nothing is known of its publication")
	}
	o.Publish(key("web"), &Published{Publication: model.Published, Scope: model.ScopeAll()})
	if seen, ok := o.Get(key("web")); !ok || seen.Publication != model.Published || !seen.Scope.All() {
		t.Errorf("got %+v, %v", seen, ok)
	}
	o.Publish(key("web"), nil)
	o.Import(key("web"), &Imported{Resolved: &model.Import{}})
	if seen, ok := o.Get(key("web")); !ok || seen.Publication != model.PublicationNone {
		t.Errorf("an import without local export: %+v, %v", seen, ok)
	}
}

func TestChangesAreToldOnceEachToEveryReaderAndNeverWaitedFor(t *testing.T) {
	o := NewObservations()
	const keys = 500
	first := o.Changes()
	for range 3 { // nobody reads yet
		for n := range keys {
			o.Import(key(fmt.Sprint(n)), &Imported{Exported: true})
		}
	}
	second := o.Changes() // which must be told of what is known already
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = o.Start(ctx) })
	expect := func(changes <-chan event.GenericEvent, want int) {
		t.Helper()
		seen := map[string]bool{}
		for range want {
			select {
			case e := <-changes:
				seen[e.Object.GetName()] = true
			case <-time.After(10 * time.Second):
				t.Fatalf("told of %d of %d", len(seen), want)
			}
		}
		if len(seen) != want {
			t.Errorf("told of %d keys, want %d", len(seen), want)
		}
	}
	expect(first, keys)
	expect(second, keys)
	third := o.Changes() // after the start
	expect(third, keys)

	since := time.Now()
	found := func() *Imported {
		return &Imported{Exported: true, Held: []model.Hold{{Cluster: "b", Since: since}}, Sources: []model.Source{{Cluster: "b"}}}
	}
	o.Import(key("0"), found())
	for _, reader := range []<-chan event.GenericEvent{first, second, third} {
		expect(reader, 1)
	}
	o.Import(key("0"), found())
	for _, r := range o.readers {
		if len(o.take(r)) != 0 {
			t.Error("told of what did not change")
		}
	}
	if got := o.From("b"); len(got) != 1 || got[0] != key("0") {
		t.Errorf("b contributes to %v, want to 0 alone", got)
	}
	cancel()
	running.Wait()
}
