// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
)

// Names are the derived Service names that imports of this process hold. The
// sums of which they are made collide, and two workers that plan at the same
// time do not see each other's Service in the cache yet. After a restart the
// Services themselves say who holds what.
type Names struct {
	mu     sync.Mutex
	holder map[types.NamespacedName]types.NamespacedName // derived Service → import
	held   map[types.NamespacedName]string               // import → derived name
}

// NewNames returns Names of which none is held.
func NewNames() *Names {
	return &Names{holder: map[types.NamespacedName]types.NamespacedName{}, held: map[types.NamespacedName]string{}}
}

// Choose lets pick name the derived Service of key, knowing which candidates
// others hold, and holds what it picked. Picking is done under a lock and must
// be quick; an empty name gives back what key held.
func (n *Names) Choose(key types.NamespacedName, pick func(taken []string) string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var taken []string
	for _, name := range []string{model.DerivedName(key.Name), model.AlternateDerivedName(key.Name)} {
		if holder, held := n.holder[types.NamespacedName{Namespace: key.Namespace, Name: name}]; held && holder != key {
			taken = append(taken, name)
		}
	}
	picked := pick(taken)
	if before := n.held[key]; before != picked {
		delete(n.holder, types.NamespacedName{Namespace: key.Namespace, Name: before})
		delete(n.held, key)
	}
	if picked != "" {
		n.holder[types.NamespacedName{Namespace: key.Namespace, Name: picked}] = key
		n.held[key] = picked
	}
}
