// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/comity-mcs/comity/sync/notify"
)

// A report that came back again and again, while thousands wait, would take the time that
// the imports need.
func TestReportsWaitWhileImportsDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := func() *notify.Queue {
			queue := notify.NewQueue(1)
			queue.Open("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			return queue
		}
		b := &base{importQueue: queue(), reportQueue: queue()}
		defer b.importQueue.ShutDown()
		defer b.reportQueue.ShutDown()
		r, h := &importRecordController{base: b, meanwhile: rate.NewLimiter(1, 1)}, newHeartbeat(b)
		took := func() time.Duration {
			begun := time.Now()
			if waited, err := r.yield(t.Context()); err != nil || waited != (r.importQueue.Unfinished() > 0) {
				t.Errorf("waited is %v, error %v", waited, err)
			}
			return time.Since(begun)
		}
		b.importQueue.Add(reconcile.Request{NamespacedName: key("web")})
		if !h.isBehind() {
			t.Error("it has caught up although an import waits")
		}
		for i, want := range []time.Duration{0, time.Second, time.Second} {
			if got := took(); got != want {
				t.Errorf("report %d waits %s; want %s", i, got, want)
			}
		}
		item, _ := b.importQueue.Get()
		if !h.isBehind() {
			t.Error("it has caught up although an import is being made")
		}
		b.importQueue.Done(item)
		if got := took(); got != 0 {
			t.Errorf("without imports, a report waits %s", got)
		}
		if h.isBehind() {
			t.Error("it is behind although nothing is left to do")
		}
	})
}
