// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"slices"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cache is what a watcher of one kind, in one namespace or all, knows of a
// server. It learns only what Follow and Relist let it learn.
type Cache struct {
	server          *Server
	kind, namespace string
	epoch, at       int
	listed          bool
	objects         map[Ref]client.Object
	refs            []Ref // of objects, sorted
}

// Watch is a cache that has not listed yet.
func (s *Server) Watch(kind, namespace string) *Cache {
	return &Cache{server: s, kind: kind, namespace: namespace}
}

// Listed is true once the cache was filled.
func (c *Cache) Listed() bool { return c.listed }

// Relist fills the cache again, from a server whose own view is that many
// changes behind.
func (c *Cache) Relist(behind int) {
	c.epoch, c.listed, c.objects, c.refs = c.server.epoch, true, map[Ref]client.Object{}, nil
	for _, o := range c.server.List(c.kind, c.namespace) {
		c.set(RefOf(o), o)
	}
	log := c.server.log[c.kind]
	c.at = len(log)
	for ; behind > 0 && c.at > 0; behind-- {
		c.at--
		c.set(log[c.at].ref, log[c.at].before)
	}
}

// Follow takes up at most that many changes, and says how many it took. After a
// restore it lists everything again, as its versions mean nothing any more.
func (c *Cache) Follow(most int) int {
	if !c.IsWatching() {
		c.Relist(0)
		return 1
	}
	log := c.server.log[c.kind]
	taken := min(most, len(log)-c.at)
	for range taken {
		c.set(log[c.at].ref, log[c.at].after)
		c.at++
	}
	return taken
}

// Relisted is a cache of the same kind and namespace that has not listed yet.
func (c *Cache) Relisted() *Cache { return c.server.Watch(c.kind, c.namespace) }

// IsWatching is true once the cache was filled, until a restore of the server.
func (c *Cache) IsWatching() bool { return c.listed && c.epoch == c.server.epoch }

// Next is the event that Follow takes up next, of which there is one; without a type, if
// it is of another namespace.
func (c *Cache) Next() watch.Event {
	e := c.server.log[c.kind][c.at]
	switch {
	case c.namespace != "" && c.namespace != e.ref.Namespace:
		return watch.Event{}
	case e.after == nil:
		return watch.Event{Type: watch.Deleted, Object: e.before}
	case e.before == nil:
		return watch.Event{Type: watch.Added, Object: e.after}
	}
	return watch.Event{Type: watch.Modified, Object: e.after}
}

// Behind is how many changes the cache has not taken up.
func (c *Cache) Behind() int {
	if !c.IsWatching() {
		return 1
	}
	return len(c.server.log[c.kind]) - c.at
}

func (c *Cache) set(ref Ref, o client.Object) {
	if c.namespace != "" && c.namespace != ref.Namespace {
		return
	}
	at, has := slices.BinarySearchFunc(c.refs, ref, byRef)
	switch {
	case o == nil && has:
		delete(c.objects, ref)
		c.refs = slices.Delete(c.refs, at, at+1)
	case o != nil:
		c.objects[ref] = o
		if !has {
			c.refs = slices.Insert(c.refs, at, ref)
		}
	}
}

// Namespace is the one that the cache is of; empty for all.
func (c *Cache) Namespace() string { return c.namespace }

// Get is an object as the cache knows it; nil if it knows none.
func (c *Cache) Get(namespace, name string) client.Object {
	return c.objects[Ref{c.kind, namespace, name}]
}

// Each is every object that the cache knows, in order. The cache must not
// change meanwhile.
func (c *Cache) Each(yield func(client.Object) bool) {
	for _, ref := range c.refs {
		if !yield(c.objects[ref]) {
			return
		}
	}
}
