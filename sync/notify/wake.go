// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package notify

import toolscache "k8s.io/client-go/tools/cache"

// Wake wakes one goroutine that reads everything again, so that one wake-up is kept at most.
type Wake chan struct{}

// NewWake is a Wake that nobody has used yet.
func NewWake() Wake { return make(Wake, 1) }

// Up wakes, and does not block.
func (w Wake) Up() {
	select {
	case w <- struct{}{}:
	default: // it is about to read anyway
	}
}

// Handler wakes at each event of an informer about an object that matters.
func (w Wake) Handler(matters func(any) bool) toolscache.ResourceEventHandler {
	up := func(obj any) {
		if matters(obj) {
			w.Up()
		}
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: up, UpdateFunc: func(_, now any) { up(now) }, DeleteFunc: up}
}
