// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Part is one part of what a cluster publishes.
type Part int

// Parts of the first pass.
const (
	Exports Part = iota
	Namespaces
)

// maxAttempts is how often an export is tried before the first pass is complete
// without it. An export that fails so often was never published, so no reader can
// take its absence for a withdrawal; and it must not hold up the others.
const maxAttempts = 3

// FirstPass knows whether everything that this cluster publishes was published
// once since the process started, or since its exchange namespace was made. Only
// then the MemberRecord is written: to a reader it means that an absent record is
// a withdrawn export. All methods may be called from any goroutine. Of the zero value, no
// part was seeded.
type FirstPass struct {
	mu      sync.Mutex
	pending [2]map[types.NamespacedName]int // attempts, by Part; nil until it is seeded
}

// Restart begins the pass again: each part has to be seeded once more.
func (f *FirstPass) Restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.pending[:])
}

// Seed names the keys of a part; they have to be reconciled after it. Once a pass
// is complete it stays so until Restart. It reports whether this completed it.
func (f *FirstPass) Seed(part Part, keys []types.NamespacedName) (completed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isComplete() {
		return false
	}
	f.pending[part] = make(map[types.NamespacedName]int, len(keys))
	for _, key := range keys {
		f.pending[part][key] = 0
	}
	return f.isComplete()
}

// Attempted counts one attempt at key. It reports whether this completed the pass.
func (f *FirstPass) Attempted(part Part, key types.NamespacedName, succeeded bool) (completed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	attempts, waiting := f.pending[part][key]
	if !waiting {
		return false
	}
	if attempts+1 < maxAttempts && !succeeded {
		f.pending[part][key]++
		return false
	}
	delete(f.pending[part], key)
	return f.isComplete()
}

// isComplete reports whether both parts were seeded and nothing of them is pending.
func (f *FirstPass) isComplete() bool {
	exports, namespaces := f.pending[Exports], f.pending[Namespaces]
	return exports != nil && namespaces != nil && len(exports)+len(namespaces) == 0
}

// IsComplete reports whether everything was published, or attempted three times.
func (f *FirstPass) IsComplete() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.isComplete()
}
