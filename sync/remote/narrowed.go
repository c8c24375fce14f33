// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// narrowedInterval is the time between two lists of the records that only this cluster
// reads, apart from those of the informer.
const narrowedInterval = time.Second

// narrowed are the exports of which the peer states that their scope was narrowed, and
// of which no record is in the namespace that only this cluster reads. The exporter
// writes that record before the statement, but the two are watched separately: the
// statement may be read first. So it counts only after the API server has said that
// there is no such record.
type narrowed struct {
	mu sync.Mutex
	// confirmed are the versions of the statements that count, asked those that the
	// API server is to be asked about.
	confirmed, asked map[types.NamespacedName]string
	wake             chan struct{} // holds one at most
}

func newNarrowed() *narrowed {
	return &narrowed{confirmed: map[types.NamespacedName]string{}, asked: map[types.NamespacedName]string{}, wake: make(chan struct{}, 1)}
}

// counts reports whether the statement of that version about key counts. If not, the
// API server is asked.
func (n *narrowed) counts(key types.NamespacedName, version string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.confirmed[key] == version {
		return true
	}
	n.asked[key] = version
	select {
	case n.wake <- struct{}{}:
	default:
	}
	return false
}

// open are the statements that the API server is to be asked about.
func (n *narrowed) open() map[types.NamespacedName]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.asked
	n.asked = map[types.NamespacedName]string{}
	return out
}

// confirm makes a statement count.
func (n *narrowed) confirm(key types.NamespacedName, version string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.confirmed[key] = version
}

// retain forgets the statements that are not among the current ones.
func (n *narrowed) retain(isCurrent func(key types.NamespacedName, version string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, version := range n.confirmed {
		if !isCurrent(key, version) {
			delete(n.confirmed, key)
		}
	}
}

// Withdrawals are what the peer states about exports of key that it withdrew: one
// statement at most in each exchange namespace. The owner is notified of key once a
// statement counts that did not before.
func (c *Connection) Withdrawals(key types.NamespacedName) []model.Withdrawal {
	all, own := c.feeds.exports[0].record(key), c.feeds.exports[1].record(key)
	if all != nil && own == nil && all.Spec.Withdrawn && all.Spec.Narrowed && !c.narrowed.counts(key, all.ResourceVersion) {
		return nil
	}
	return exchange.Withdrawals(c.opts.ID, all, own)
}

// confirmNarrowed asks the API server about the statements that do not count yet, until
// ctx ends.
func (c *Connection) confirmNarrowed(ctx context.Context) {
	pace := flowcontrol.NewTokenBucketRateLimiter(float32(time.Second/narrowedInterval), 1)
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.narrowed.wake:
		}
		if pace.Wait(ctx) != nil {
			return
		}
		open := c.narrowed.open()
		names, err := untilAnswered(ctx, func() (map[string]bool, error) { return c.feeds.exports[1].names(ctx) })
		for key, version := range open {
			switch {
			case err != nil:
				c.narrowed.counts(key, version) // the feed reports why; ask again
			case !names[model.RecordName(key.Namespace, key.Name)]:
				c.narrowed.confirm(key, version)
				c.opts.Hooks.Export(c, key)
			}
		}
		c.narrowed.retain(func(key types.NamespacedName, version string) bool {
			record := c.feeds.exports[0].record(key)
			return record != nil && record.ResourceVersion == version
		})
	}
}

// names lists the records of the feed as the API server has them now.
func (f *feed) names(ctx context.Context) (map[string]bool, error) {
	out := map[string]bool{}
	for next := ""; ; {
		var page exchangev1alpha1.ExportRecordList
		request := f.client.Get().Namespace(f.namespace).Resource(f.resource).Param("limit", strconv.Itoa(recordPage)).MaxRetries(1)
		if next != "" {
			request = request.Param("continue", next)
		}
		if err := request.Do(ctx).Into(&page); err != nil {
			return nil, err
		}
		for i := range page.Items {
			out[page.Items[i].Name] = true
		}
		if next = page.Continue; next == "" {
			return out, nil
		}
	}
}
