// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
)

// handler is notified of objects that were added, changed or removed, once that is in the
// store of a feed. An object that was added is passed as both. It may not block.
type handler struct {
	changed func(before, now any)
	removed func(any)
}

// A feed is the store of its reflector. An informer would do the same, with as many objects
// in its queues and four more goroutines: that counts with eight feeds for each of many peers.
// All objects of a feed have keys, so store returns no error.

// Add implements toolscache.ReflectorStore.
func (f *feed) Add(obj any) error { return f.Update(obj) }

// Update implements toolscache.ReflectorStore.
func (f *feed) Update(obj any) error {
	now, err := trim(obj)
	if err != nil {
		return err
	}
	before, known, _ := f.store.Get(now)
	_ = f.store.Update(now)
	switch {
	case !known:
		f.handler.changed(now, now)
	// The same version is the echo of a list after a reconnect.
	case before.(metav1.Object).GetResourceVersion() != now.(metav1.Object).GetResourceVersion():
		f.handler.changed(before, now)
	}
	return nil
}

// Delete implements toolscache.ReflectorStore.
func (f *feed) Delete(obj any) error {
	if before, known, _ := f.store.Get(obj); known {
		_ = f.store.Delete(before)
		f.handler.removed(before)
	}
	return nil
}

// Replace implements toolscache.ReflectorStore.
func (f *feed) Replace(list []any, _ string) error {
	gone := sets.New(f.store.ListKeys()...)
	for _, obj := range list {
		if err := f.Update(obj); err != nil {
			return err
		}
		key, _ := toolscache.MetaNamespaceKeyFunc(obj) // as it is in store now
		gone.Delete(key)
	}
	for key := range gone {
		_ = f.Delete(toolscache.ExplicitKey(key))
	}
	if !f.listed.Swap(true) {
		f.connection.refresh()
	}
	return nil
}

// Resync implements toolscache.ReflectorStore.
func (f *feed) Resync() error { return nil }
