// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
)

// turns lets one import at a time do something on behalf of one cluster, in the order
// in which they asked for it. The zero value is ready for use. All methods may be
// called from any goroutine.
type turns struct {
	// come notifies of an import whose turn has come. It is to be reconciled, and pass
	// has to be called after that.
	come notify.Notifier

	mu sync.Mutex
	of map[model.ClusterID]*turn
}

// turn is that of key, which has taken it or may take it now.
type turn struct {
	key     types.NamespacedName
	taken   bool
	waiting []types.NamespacedName // in order
	queued  sets.Set[types.NamespacedName]
}

// holder is the import whose turn it is, and whether it has taken it; the zero key if
// there is none.
func (t *turns) holder(of model.ClusterID) (key types.NamespacedName, taken bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if turn := t.of[of]; turn != nil {
		return turn.key, turn.taken
	}
	return types.NamespacedName{}, false
}

// take reports whether it is the turn of the import, which then keeps it until end.
// The turn of another import has to end first: this one waits.
func (t *turns) take(of model.ClusterID, key types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.of[of]
	switch {
	case now == nil:
		if t.of == nil {
			t.of = map[model.ClusterID]*turn{}
		}
		t.of[of] = &turn{key: key, taken: true, queued: sets.New[types.NamespacedName]()}
		return true
	case now.key != key:
		now.wait(key)
		return false
	}
	free := !now.taken
	now.taken = true
	return free
}

// wait has an import wait, also one that has the turn. It reports false if nobody has
// the turn, which can be taken then.
func (t *turns) wait(of model.ClusterID, key types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.of[of]
	if now != nil {
		now.wait(key)
	}
	return now != nil
}

// wait enqueues an import, once.
func (t *turn) wait(key types.NamespacedName) {
	if !t.queued.Has(key) {
		t.queued.Insert(key)
		t.waiting = append(t.waiting, key)
	}
}

// end gives the turn to the next import.
func (t *turns) end(of model.ClusterID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next(of)
}

// next gives the turn to the next import. It needs mu.
func (t *turns) next(of model.ClusterID) {
	now := t.of[of]
	if len(now.waiting) == 0 {
		delete(t.of, of)
		return
	}
	now.key, now.waiting, now.taken = now.waiting[0], now.waiting[1:], false
	now.queued.Delete(now.key)
	t.come.Key(now.key)
}

// pass gives the turns that an import has, and did not take, to the next one.
func (t *turns) pass(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for of, now := range t.of {
		if now.key == key && !now.taken {
			t.next(of)
		}
	}
}
