// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

// told reads everything that waits, in order of namespaces.
func told(r *recheck) []string {
	var out []string
	for {
		synctest.Wait()
		select {
		case e := <-r.out:
			text := e.Object.GetNamespace()
			if e.Object.GetName() != "" {
				text += "/" + e.Object.GetName()
			}
			out = append(out, text)
		default:
			slices.Sort(out)
			return out
		}
	}
}

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func TestRecheckTellsOnceWhatHappenedOften(t *testing.T) {
	for _, tc := range []struct {
		name string
		tell func(*recheck)
		// want are namespaces; "" is all.
		want []string
	}{
		{"nothing happened", func(*recheck) {}, nil},
		{"one namespace, a thousand times", func(r *recheck) {
			for range 1000 {
				r.namespace("shop")
			}
		}, []string{"shop"}},
		{"several namespaces", func(r *recheck) { r.namespace("b"); r.namespace("a"); r.namespace("b") }, []string{"a", "b"}},
		{"all includes each, said before", func(r *recheck) { r.namespace("a"); r.namespace("b"); r.all() }, []string{""}},
		{"an export and its namespace", func(r *recheck) { r.export(key("a", "web")); r.namespace("a"); r.export(key("a", "web")) }, []string{"a", "a/web"}},
		{"all includes each export", func(r *recheck) { r.export(key("a", "web")); r.export(types.NamespacedName{}) }, []string{""}},
		{"more than is kept apart is all", func(r *recheck) {
			for n := range 2 * maxPending {
				r.export(key("a", fmt.Sprint(n)))
			}
		}, []string{""}},
		{"all includes each, said after", func(r *recheck) { r.all(); r.namespace("a"); r.all() }, []string{""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRecheck()
				tc.tell(r) // before anyone reads, as on a replica that does not lead
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- r.Start(ctx) }()
				if diff := cmp.Diff(tc.want, told(r)); diff != "" {
					t.Errorf("first reading (-want +got):\n%s", diff)
				}
				r.namespace("later")
				if diff := cmp.Diff([]string{"later"}, told(r)); diff != "" {
					t.Errorf("what happens later is told too (-want +got):\n%s", diff)
				}
				r.all()
				synctest.Wait()
				cancel() // with a notice that nobody reads
				if err := <-ended; err != nil {
					t.Errorf("got error %v from the end", err)
				}
			})
		})
	}
}

// While a notice waits to be read, a second change of that namespace must not
// be lost: the reader may have looked before it.
func TestRecheckLosesNothingThatHappensWhileANoticeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecheck()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = r.Start(ctx) }()
		r.namespace("a")
		synctest.Wait() // the notice of a is offered
		r.namespace("a")
		if diff := cmp.Diff([]string{"a", "a"}, told(r)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		cancel()
		synctest.Wait()
	})
}

func TestRecheckRunsOnEveryReplica(t *testing.T) {
	if newRecheck().NeedLeaderElection() {
		t.Error("notices come on every replica; where none is taken, memory would grow")
	}
}
