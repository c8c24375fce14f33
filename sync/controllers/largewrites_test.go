// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/compactslice"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// largeTest makes large writes that end when the test says so.
type largeTest struct {
	*largeWrites
	t       *testing.T
	begun   chan []plan.Action
	end     chan error
	written chan types.NamespacedName
}

func newLargeTest(t *testing.T) *largeTest {
	l := &largeTest{t: t, begun: make(chan []plan.Action, 10), end: make(chan error), written: make(chan types.NamespacedName, 10)}
	l.largeWrites = newLargeWrites("a", func(_ context.Context, actions []plan.Action) ([]plan.Object, error) {
		l.begun <- actions
		return nil, <-l.end
	}, func(*plan.ImportInput, []plan.Action, []plan.Object) {})
	l.turns.come.Subscribe(func(k types.NamespacedName) { l.written <- k }, func() {})
	return l
}

// reconcile does what the controller does, and returns the clusters whose slices it writes itself.
func (l *largeTest) reconcile(name string, actions ...plan.Action) ([]model.ClusterID, error) {
	ready, err := l.ready(key(name), actions)
	var out []model.ClusterID
	for _, a := range l.begin(l.t.Context(), &plan.ImportInput{Key: key(name)}, ready) {
		out = append(out, a.Source)
	}
	l.turns.pass(key(name))
	return out, err
}

// next is what a channel has next; the test fails if that takes long.
func next[T any](t *testing.T, from chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func (l *largeTest) want(got []model.ClusterID, err error, want ...model.ClusterID) {
	l.t.Helper()
	if err != nil || !slices.Equal(got, want) {
		l.t.Fatalf("written with the import: %q, %v; want %q", got, err, want)
	}
}

func TestALargeSliceOfAnotherClusterDelaysOnlyItsOwn(t *testing.T) {
	l := newLargeTest(t)
	own, large, small, last := sliceOf("a", compactslice.Large), sliceOf("b", compactslice.Large), sliceOf("c", 0), plan.Action{Verb: plan.Delete, AfterAll: true}
	got, err := l.reconcile("web", own, large, small, last)
	l.want(got, err, "a", "c")
	if begun := next(t, l.begun); len(begun) != 1 || begun[0].Source != "b" {
		t.Fatalf("begun: %v", begun)
	}

	// While it is written, not even a small one of that cluster is: it may be the same slice.
	got, err = l.reconcile("web", sliceOf("b", 0), small, last)
	l.want(got, err, "c")
	// Small ones in other imports are.
	got, err = l.reconcile("db", sliceOf("b", 0))
	l.want(got, err, "b")

	l.end <- nil
	if k := next(t, l.written); k != key("web") {
		t.Fatalf("to be reconciled: %s", k)
	}
	got, err = l.reconcile("web", sliceOf("b", 0), last)
	l.want(got, err, "b", "")
}

func TestLargeSlicesOfOneClusterAreWrittenOneByOne(t *testing.T) {
	l := newLargeTest(t)
	for _, name := range []string{"web", "db", "mail", "db"} {
		got, err := l.reconcile(name, sliceOf("b", compactslice.Large))
		l.want(got, err)
	}
	got, err := l.reconcile("db", sliceOf("c", compactslice.Large))
	l.want(got, err)
	sources := []model.ClusterID{next(t, l.begun)[0].Source, next(t, l.begun)[0].Source}
	if slices.Sort(sources); !slices.Equal(sources, []model.ClusterID{"b", "c"}) {
		t.Fatalf("written at the same time: %v", sources)
	}
	l.end <- nil
	l.end <- nil
	seen := map[types.NamespacedName]int{}
	for range 3 { // two that were written, and the one whose turn it is
		seen[next(t, l.written)]++
	}
	if seen[key("web")] != 1 || seen[key("db")] != 2 {
		t.Fatalf("to be reconciled: %v", seen)
	}

	// It has nothing large any more: then the next one may write.
	got, err = l.reconcile("db")
	l.want(got, err)
	if k := next(t, l.written); k != key("mail") {
		t.Fatalf("to be reconciled: %s", k)
	}
	got, err = l.reconcile("web", sliceOf("b", compactslice.Large)) // not its turn
	l.want(got, err)
	got, err = l.reconcile("mail", sliceOf("b", compactslice.Large))
	l.want(got, err)
	next(t, l.begun)
	l.end <- nil
}

func TestALargeWriteThatFailsIsAnErrorOfTheNextReconcile(t *testing.T) {
	l, failure := newLargeTest(t), errors.New("refused")
	got, err := l.reconcile("web", sliceOf("b", compactslice.Large))
	l.want(got, err)
	next(t, l.begun)
	l.end <- failure
	next(t, l.written)
	if got, err = l.reconcile("web", sliceOf("b", compactslice.Large), sliceOf("c", 0)); !errors.Is(err, failure) || !slices.Equal(got, []model.ClusterID{"c"}) {
		t.Fatalf("written %q, %v", got, err)
	}
	// The retry of the controller makes the next attempt.
	got, err = l.reconcile("web", sliceOf("b", compactslice.Large))
	l.want(got, err)
	next(t, l.begun)
	l.end <- failure
	next(t, l.written)
	l.forget(key("web"))
	got, err = l.reconcile("web", sliceOf("b", 0))
	l.want(got, err, "b")
}

func TestThePauseAfterALargeWriteIsBounded(t *testing.T) {
	for took, pause := range map[time.Duration]time.Duration{100 * time.Millisecond: 4 * time.Second, time.Minute: maxLargePause} {
		synctest.Test(t, func(t *testing.T) {
			l := newLargeTest(t)
			got, err := l.reconcile("web", sliceOf("b", compactslice.Large))
			l.want(got, err)
			time.Sleep(took)
			l.end <- nil
			ended := time.Now()
			if <-l.written; time.Since(ended) != pause {
				t.Errorf("after a write of %v, the next one waits for %v; want %v", took, time.Since(ended), pause)
			}
		})
	}
}
