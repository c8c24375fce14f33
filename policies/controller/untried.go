// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// untriedInterval is how long policies wait that could not be compiled because of the
// machine: it had no process or no time for them. Until then they block what they match.
const untriedInterval = 10 * time.Second

// loadUntried requests another load when policies could not be tried.
func (o Options) loadUntried(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.Engine.Untried():
			queue.AddAfter(all, untriedInterval)
		}
	}
}
