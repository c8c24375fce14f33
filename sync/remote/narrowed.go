// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/listwatch"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
)

// narrowedInterval is the time between two lists of the records that only this cluster
// reads, apart from those of the reflector.
const narrowedInterval = time.Second

// narrowed are the exports of which the peer states that their scope was narrowed, and
// of which no record is in the namespace that only this cluster reads. The exporter
// writes that record before the statement, but the two are watched separately: the
// statement may be read first. So it counts only after the API server has said that
// there is no such record.
type narrowed struct {
	mu sync.Mutex
	// confirmed are the versions of the statements that count, by name.
	confirmed map[string]string
	wake      notify.Wake
}

// counts reports whether a statement counts. If not, the API server is asked.
func (n *narrowed) counts(statement *exchangev1alpha1.ExportRecord) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.confirmed[statement.Name] == statement.ResourceVersion {
		return true
	}
	n.wake.Up()
	return false
}

// confirm replaces the statements that count, and returns the names of those that did not.
func (n *narrowed) confirm(now map[string]string) (added []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, version := range now {
		if n.confirmed[name] != version {
			added = append(added, name)
		}
	}
	n.confirmed = now
	return added
}

func isNarrowed(record *exchangev1alpha1.ExportRecord) bool {
	return record != nil && record.Spec.Withdrawn && record.Spec.Narrowed
}

// Withdrawals are what the peer states about exports of key that it withdrew: one
// statement at most in each exchange namespace. The owner is notified of key once a
// statement counts that did not before.
func (c *Connection) Withdrawals(key types.NamespacedName) []model.Withdrawal {
	all, own := c.feeds.exports[0].record(key), c.feeds.exports[1].record(key)
	if isNarrowed(all) && own == nil && !c.narrowed.counts(all) {
		return nil
	}
	return exchange.Withdrawals(c.opts.ID, all, own)
}

// confirmNarrowed asks the API server about all statements when one does not count yet,
// until ctx ends.
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
		stated := map[string]string{}
		for _, item := range c.feeds.exports[0].store.List() {
			if record := item.(*exchangev1alpha1.ExportRecord); isNarrowed(record) {
				stated[record.Name] = record.ResourceVersion
			}
		}
		stated, err := listwatch.UntilAnswered(ctx, unanswered, func() (map[string]string, error) { return c.feeds.exports[1].absent(ctx, stated) })
		if err != nil { // the feed reports why
			c.narrowed.wake.Up()
			continue
		}
		for _, name := range c.narrowed.confirm(stated) {
			if key, ok := model.RecordKey(name); ok {
				c.opts.Hooks.Export(c, key)
			}
		}
	}
}

// absent are names but those of which the API server has a record in the feed now. It keeps
// nothing of the records: the list of a peer may have no end.
func (f *feed) absent(ctx context.Context, names map[string]string) (map[string]string, error) {
	out := maps.Clone(names)
	records := pager.New(f.get)
	records.PageBufferSize = 0
	return out, records.EachListItem(ctx, metav1.ListOptions{}, func(record runtime.Object) error {
		delete(out, record.(metav1.Object).GetName())
		return nil
	})
}
