// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"slices"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/plan"
)

// maxBatch is how many slices of one other cluster one reconcile of an import writes. Then
// the other imports, and the other clusters of this one, are served.
const maxBatch = 20

// batch is what one reconcile of an import makes of the actions, and the slices of other
// clusters that it leaves for later; what is made after all is left out then. Slices of a
// cluster come after those of clusters with fewer.
func batch(self model.ClusterID, actions []plan.Action) (now, later []plan.Action) {
	isOthers := func(a plan.Action) bool { return a.Source != "" && a.Source != self }
	count := map[model.ClusterID]int{}
	for _, a := range actions {
		switch {
		case isOthers(a):
			if count[a.Source]++; count[a.Source] > maxBatch {
				later = append(later, a)
				continue
			}
		case a.AfterAll && len(later) > 0:
			continue
		}
		now = append(now, a)
	}
	for first := 0; first < len(now); first++ {
		end := first
		for end < len(now) && isOthers(now[end]) {
			end++
		}
		slices.SortStableFunc(now[first:end], func(a, b plan.Action) int { return cmp.Compare(count[a.Source], count[b.Source]) })
		first = end
	}
	return now, later
}

// only has a controller use a queue that others know, too.
func only(queue *notify.Queue) func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		return queue
	}
}
