// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// changes delivers names of namespaces; whoever adds one never waits, and one
// that was not read yet is not delivered twice.
type changes struct {
	out  chan event.GenericEvent
	kick chan struct{}

	mu    sync.Mutex
	names map[string]bool
}

func newChanges() *changes {
	return &changes{out: make(chan event.GenericEvent), kick: make(chan struct{}, 1), names: map[string]bool{}}
}

func (c *changes) add(name string) {
	c.mu.Lock()
	c.names[name] = true
	c.mu.Unlock()
	select {
	case c.kick <- struct{}{}:
	default: // it is about to look
	}
}

func (c *changes) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := slices.Sorted(maps.Keys(c.names))
	clear(c.names)
	return names
}

// Start delivers until ctx ends.
func (c *changes) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.kick:
		}
		for _, name := range c.take() {
			object := &corev1.Namespace{}
			object.Name = name
			select {
			case c.out <- event.GenericEvent{Object: object}:
			case <-ctx.Done():
				return nil
			}
		}
	}
}
