// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/plan"
)

func TestOneReconcileWritesSomeSlicesOfEachCluster(t *testing.T) {
	item := reconcile.Request{NamespacedName: key("web")}
	slicesOf := func(id model.ClusterID, n int) (out []plan.Action) {
		for i := range n {
			out = append(out, plan.Action{Verb: plan.Create, Source: id, Object: &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", id, i)}}})
		}
		return out
	}
	changesOften := func(queue *notify.Queue, id notify.Origin) {
		for range notify.ChangesAtOnce + 1 {
			queue.Changed(id, item)
		}
	}
	// used has b use more than its share of what it and c use.
	used := func(queue *notify.Queue) {
		queue.Pay(item, "b", time.Minute)
		queue.Pay(item, "c", time.Second)
	}
	for name, c := range map[string]struct {
		slices [][]plan.Action
		before func(*notify.Queue) // the item is taken, for c
		during func(*notify.Queue) // after the first slice was written
		all    bool
		want   string // how many of whom, in order
		later  string
	}{
		"few":                                   {slices: [][]plan.Action{slicesOf("b", 2), slicesOf("c", 1)}, want: "service 1, c 1, b 2, last 1"},
		"as many as are written at once":        {slices: [][]plan.Action{slicesOf("b", maxBatch)}, want: "service 1, b 20, last 1"},
		"more of one":                           {slices: [][]plan.Action{slicesOf("b", maxBatch+5), slicesOf("c", 3)}, want: "service 1, c 3, b 20", later: "b"},
		"more of this cluster, which waits not": {slices: [][]plan.Action{slicesOf("a", maxBatch+5)}, want: "service 1, a 25, last 1"},
		"more, after a refusal":                 {slices: [][]plan.Action{slicesOf("b", maxBatch+5)}, all: true, want: "service 1, b 25, last 1"},
		"one whose changes do not count yet": {
			slices: [][]plan.Action{slicesOf("b", 2), slicesOf("c", 3)},
			before: func(queue *notify.Queue) { changesOften(queue, "b") },
			want:   "service 1, c 3",
		},
		"one whose changes do not count yet, after a refusal": {
			slices: [][]plan.Action{slicesOf("b", 2), slicesOf("c", 3)}, all: true,
			before: func(queue *notify.Queue) { changesOften(queue, "b") },
			want:   "service 1, c 3",
		},
		"changes that do not count yet, of one that the item was taken for": {
			slices: [][]plan.Action{slicesOf("c", 3)},
			before: func(queue *notify.Queue) { changesOften(queue, "c") },
			want:   "service 1, c 3, last 1",
		},
		"one that used more than its share": {
			slices: [][]plan.Action{slicesOf("b", 2), slicesOf("c", 3)}, before: used,
			want: "service 1, c 3, b 2, last 1",
		},
		"one that used more than its share, while the other one changes more": {
			slices: [][]plan.Action{slicesOf("b", 2), slicesOf("c", 3)}, before: used,
			during: func(queue *notify.Queue) { queue.Changed("c", item) },
			want:   "service 1, c 3", later: "b",
		},
		"one that used more, while another one waits for it": {
			slices: [][]plan.Action{slicesOf("b", 2), slicesOf("c", 3)},
			before: func(queue *notify.Queue) { queue.Pay(item, "b", time.Millisecond) },
			during: func(queue *notify.Queue) { queue.Changed("c", item) },
			want:   "service 1, b 1, c 3", later: "b",
		},
		"one that used less, while another one waits for it": {
			slices: [][]plan.Action{slicesOf("b", 2), slicesOf("c", 3)},
			before: func(queue *notify.Queue) { queue.Pay(item, "c", time.Second) },
			during: func(queue *notify.Queue) { queue.Changed("c", item) },
			want:   "service 1, b 2, c 3, last 1",
		},
		"one, while a user waits for it": {
			slices: [][]plan.Action{slicesOf("b", 2)},
			during: func(queue *notify.Queue) { queue.Add(item) },
			want:   "service 1, b 1", later: "b",
		},
		"one, while only it changes more": {
			slices: [][]plan.Action{slicesOf("b", 2)},
			during: func(queue *notify.Queue) { queue.Changed("b", item); queue.AddFrom(notify.Derived, item) },
			want:   "service 1, b 2, last 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			queue := notify.NewQueue(8)
			queue.Open("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			defer queue.ShutDown()
			queue.AddFrom("c", item)
			if taken, _ := queue.Get(); taken != item {
				t.Fatalf("took %v", taken)
			}
			if c.before != nil {
				c.before(queue)
			}
			actions := []plan.Action{{Verb: plan.Create, Object: &corev1.Service{}}}
			for _, of := range c.slices {
				actions = append(actions, of...)
			}
			actions = append(actions, plan.Action{Verb: plan.Delete, Object: &corev1.Service{}, AfterAll: true})
			turn, written := newTurn("a", queue, item, c.all, actions), 0
			for _, a := range turn.actions {
				if turn.leaves(a) || a.Source == "" {
					continue
				}
				if written++; written == 1 && c.during != nil {
					c.during(queue)
				}
			}
			if diff := cmp.Diff(c.want, inShort(turn.made)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if later := model.Join(sets.List(turn.later), ", "); later != c.later {
				t.Errorf("for later are those of %q; want %q", later, c.later)
			}
		})
	}
}

// inShort says how many actions there are of whom, in order.
func inShort(actions []plan.Action) string {
	var out []string
	for n := 0; n < len(actions); {
		of := func(a plan.Action) string {
			switch {
			case a.AfterAll:
				return "last"
			case a.Source == "":
				return "service"
			}
			return string(a.Source)
		}
		first := n
		for n < len(actions) && of(actions[n]) == of(actions[first]) {
			n++
		}
		out = append(out, fmt.Sprintf("%s %d", of(actions[first]), n-first))
	}
	return strings.Join(out, ", ")
}
