// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/comity-mcs/comity/sync/notify"
)

// A worker that waited for imports would keep the reports to other clusters waiting, too.
func TestAReportThatWaitsForImportsComesBackAndIsBehind(t *testing.T) {
	queue := func() *notify.Queue {
		return notify.NewQueue(1)("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()).(*notify.Queue)
	}
	clock := clocktesting.NewFakeClock(time.Now())
	b := &base{importQueue: queue(), reportQueue: queue(), Options: Options{Clock: clock}}
	r, h := &importRecordController{base: b, meanwhile: rate.NewLimiter(0, 0)}, newHeartbeat(b)
	for _, name := range []string{"web", "db"} {
		b.importQueue.Add(request(key(name)))
	}
	if result, err := r.Reconcile(t.Context(), request(key("web"))); err != nil || result.RequeueAfter != 2*time.Millisecond {
		t.Errorf("got %v, %v", result, err)
	}
	for range 2 {
		item, _ := b.importQueue.Get()
		b.importQueue.Done(item)
	}
	if !h.isBehind() {
		t.Error("it has caught up although a report is to come back")
	}
	clock.Step(2*maxYield + time.Second)
	if h.isBehind() {
		t.Error("it is behind long after the last report waited")
	}
}
