// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/plan"
)

// maxBatch is how many slices of one other cluster one reconcile of an import writes. Then
// the other imports, and the other clusters of this one, are served.
const maxBatch = 20

// turn is what one reconcile of an import writes. Nothing is left out but slices of other
// clusters, and what is made after all if any of these is left out:
//
//   - those of a cluster of which maxBatch were written are for later, unless all is true;
//   - those of a cluster are for later, once any slice of another cluster was written, and if
//     somebody who used less changed the import meanwhile;
//   - those of a cluster whose changes do not count yet wait until they do (notify.Queue.Standing).
type turn struct {
	self    model.ClusterID
	queue   *notify.Queue
	request reconcile.Request
	// all is true after a refusal: else the same first ones may be refused each time.
	all bool

	// actions are in the order in which they are to be made.
	actions, made []plan.Action
	later         sets.Set[model.ClusterID]
	// held are the clusters whose changes do not count yet, and written says how many slices of
	// each were written.
	held    sets.Set[model.ClusterID]
	written map[model.ClusterID]int
}

// newTurn sorts adjacent slices of other clusters: those of a cluster that used more than its
// share come last, and before, those of a cluster come after those of clusters with fewer.
func newTurn(self model.ClusterID, queue *notify.Queue, request reconcile.Request, all bool, actions []plan.Action) *turn {
	t := &turn{self: self, queue: queue, request: request, all: all, actions: actions, later: sets.New[model.ClusterID](),
		written: map[model.ClusterID]int{}, held: sets.New[model.ClusterID]()}
	count, greedy := map[model.ClusterID]int{}, sets.New[model.ClusterID]()
	for _, a := range actions {
		if count[a.Source]++; count[a.Source] > 1 || !t.isOthers(a) {
			continue
		}
		usedMore, held := t.queue.Standing(t.request, notify.Origin(a.Source))
		if usedMore {
			greedy.Insert(a.Source)
		}
		if held {
			t.held.Insert(a.Source)
		}
	}
	rank := func(a plan.Action) int {
		if greedy.Has(a.Source) {
			return len(actions) + count[a.Source]
		}
		return count[a.Source]
	}
	for first := 0; first < len(actions); first++ {
		end := first
		for end < len(actions) && t.isOthers(actions[end]) {
			end++
		}
		slices.SortStableFunc(actions[first:end], func(a, b plan.Action) int { return cmp.Compare(rank(a), rank(b)) })
		first = end
	}
	return t
}

func (t *turn) isOthers(a plan.Action) bool { return a.Source != "" && a.Source != t.self }

// pay has each other cluster pay for the writes of its slices; all that were made took so long.
func (t *turn) pay(took time.Duration) {
	for _, a := range t.made {
		if t.isOthers(a) {
			t.queue.Pay(t.request, notify.Origin(a.Source), took/time.Duration(len(t.made)))
		}
	}
}

// leaves reports whether an action is left out. It is asked before each one, in order.
func (t *turn) leaves(a plan.Action) bool {
	switch {
	case t.isOthers(a):
		if t.held.Has(a.Source) {
			return true
		}
		givesWay := len(t.written) > 0 && t.queue.IsAwaited(t.request, notify.Origin(a.Source))
		if givesWay || t.written[a.Source] == maxBatch && !t.all {
			t.later.Insert(a.Source)
			return true
		}
		t.written[a.Source]++
	case a.AfterAll && t.held.Len()+t.later.Len() > 0:
		return true
	}
	t.made = append(t.made, a)
	return false
}
