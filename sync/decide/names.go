// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
)

// Names are the names of derived Services that the imports of this process
// reserve. The checksums of which they are made collide, and two workers that
// choose at the same moment do not see each other's Service in the cache yet.
// After a restart the Services themselves say whose they are. All methods may be
// called from any goroutine.
type Names struct {
	mu     sync.Mutex
	holder map[types.NamespacedName]types.NamespacedName // derived Service → import
}

// NewNames returns Names of which none is reserved.
func NewNames() *Names { return &Names{holder: map[types.NamespacedName]types.NamespacedName{}} }

// Choose reserves for key the name that choose returns, given the candidates that
// other imports reserve, which it returns too. choose runs under a lock, so it
// must be quick; an empty name releases the one that key reserved.
func (n *Names) Choose(key types.NamespacedName, choose func(taken []string) string) (taken []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range []string{model.DerivedName(key.Name), model.AlternateDerivedName(key.Name)} {
		switch service := (types.NamespacedName{Namespace: key.Namespace, Name: name}); n.holder[service] {
		case types.NamespacedName{}:
		case key:
			delete(n.holder, service)
		default:
			taken = append(taken, name)
		}
	}
	if chosen := choose(taken); chosen != "" {
		n.holder[types.NamespacedName{Namespace: key.Namespace, Name: chosen}] = key
	}
	return taken
}

// Release gives back the name that key reserved.
func (n *Names) Release(key types.NamespacedName) {
	n.Choose(key, func([]string) string { return "" })
}

// Reserved lists the imports that reserve a name, in no order.
func (n *Names) Reserved() []types.NamespacedName {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.holder))
}
