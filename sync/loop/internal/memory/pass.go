// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Parts of the first pass.
const (
	Exports    = "exports"
	Namespaces = "namespaces"
)

// maxAttempts is how often an export is tried before the first pass goes on
// without it. An export that fails so often was never published, so no reader
// can take its absence for a withdrawal; and it must not hold up the others.
const maxAttempts = 3

// Pass knows whether everything that this cluster shares was published
// once since start, or since its exchange namespace came into being.
type Pass struct {
	mu       sync.Mutex
	pending  map[string]map[types.NamespacedName]int // part → key → attempts
	complete bool
	done     chan struct{}
	restarts []chan struct{}
}

// NewPass returns a Pass of which no part was seeded.
func NewPass() *Pass {
	return &Pass{pending: map[string]map[types.NamespacedName]int{}, done: make(chan struct{}, 1)}
}

// Completed delivers when the pass becomes complete.
func (f *Pass) Completed() <-chan struct{} { return f.done }

// Restarted delivers when a part must be listed and seeded again.
func (f *Pass) Restarted() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	wake := make(chan struct{}, 1)
	f.restarts = append(f.restarts, wake)
	return wake
}

// Restart makes everything count anew.
func (f *Pass) Restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.complete = false
	clear(f.pending)
	for _, wake := range f.restarts {
		kick(wake)
	}
}

// Seed names what a part consists of; the keys must be enqueued after it. Once
// a pass is complete it stays so until Restart.
func (f *Pass) Seed(part string, keys []types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.complete {
		return
	}
	f.pending[part] = make(map[types.NamespacedName]int, len(keys))
	for _, key := range keys {
		f.pending[part][key] = 0
	}
	f.check()
}

// Attempted counts one attempt at key.
func (f *Pass) Attempted(part string, key types.NamespacedName, succeeded bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	attempts, waiting := f.pending[part][key]
	if !waiting {
		return
	}
	if attempts+1 < maxAttempts && !succeeded {
		f.pending[part][key]++
		return
	}
	delete(f.pending[part], key)
	f.check()
}

func (f *Pass) check() {
	exports, haveExports := f.pending[Exports]
	namespaces, haveNamespaces := f.pending[Namespaces]
	if !f.complete && haveExports && haveNamespaces && len(exports)+len(namespaces) == 0 {
		f.complete = true
		kick(f.done)
	}
}

// IsComplete reports whether everything was attempted as often as it takes.
func (f *Pass) IsComplete() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.complete
}

func kick(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default: // a kick is pending already
	}
}
