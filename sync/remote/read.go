// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/compactslice"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/listwatch"
	"github.com/comity-mcs/comity/sync/model"
)

// Export is what the peer exports as key, or why that is not read; both are nil if there is
// nothing.
func (c *Connection) Export(key types.NamespacedName) (*model.Export, *model.Refusal) {
	record := c.record(key)
	if record == nil {
		return nil, nil
	}
	out, err := exchange.FromRecord(c.opts.ID, record)
	if err != nil || out.Key != key {
		return nil, exchange.Refusal(record)
	}
	return &out, nil
}

// record is the one that counts for key; nil if there is none.
func (c *Connection) record(key types.NamespacedName) *exchangev1alpha1.ExportRecord {
	return exchange.Newest(c.feeds.exports[0].record(key), c.feeds.exports[1].record(key))
}

func (f *feed) record(key types.NamespacedName) *exchangev1alpha1.ExportRecord {
	record, _ := cached[*exchangev1alpha1.ExportRecord](f, model.RecordName(key.Namespace, key.Name))
	return record
}

// cached is the object of that name in the cache of f; false if there is none.
func cached[T any](f *feed, name string) (out T, found bool) {
	item, found, _ := f.store.GetByKey(f.namespace + "/" + name) // an indexer has no error for a key
	if found {
		out = item.(T)
	}
	return out, found
}

// Report is what the peer says of importing key.
func (c *Connection) Report(key types.NamespacedName) (model.Report, bool) {
	record, found := cached[*exchangev1alpha1.ImportRecord](c.feeds.reports, model.RecordName(key.Namespace, key.Name))
	if !found {
		return model.Report{}, false
	}
	of, report, err := exchange.FromImportRecord(c.opts.ID, record)
	return report, err == nil && of == key
}

// narrowedInterval is the time between two lists of the records that only this cluster
// reads, apart from those of the reflector.
const narrowedInterval = time.Second

func isNarrowed(record *exchangev1alpha1.ExportRecord) bool {
	return record != nil && record.Spec.Withdrawn && record.Spec.Narrowed
}

// Withdrawals are what the peer states about exports of key that it withdrew: one
// statement at most in each exchange namespace. The owner is notified of key once a
// statement counts that did not before.
//
// The exporter writes the record in the namespace that only this cluster reads before it
// states in the other that the scope of an export was narrowed, but the two are watched
// separately: the statement may be read first. So it counts only after the API server has said
// that there is no such record.
func (c *Connection) Withdrawals(key types.NamespacedName) []model.Withdrawal {
	all, own := c.feeds.exports[0].record(key), c.feeds.exports[1].record(key)
	if isNarrowed(all) && own == nil && (*c.confirmed.Load())[all.Name] != all.ResourceVersion {
		c.unconfirmed.Up()
		return nil
	}
	return exchange.Withdrawals(c.opts.ID, all, own)
}

// confirmNarrowed asks the API server about all statements when one does not count yet,
// until ctx ends.
func (c *Connection) confirmNarrowed(ctx context.Context) {
	pace := flowcontrol.NewTokenBucketRateLimiter(float32(time.Second/narrowedInterval), 1)
	for c.unconfirmed.Wait(ctx) && pace.Wait(ctx) == nil {
		stated := map[string]string{}
		for _, item := range c.feeds.exports[0].store.List() {
			if record := item.(*exchangev1alpha1.ExportRecord); isNarrowed(record) {
				stated[record.Name] = record.ResourceVersion
			}
		}
		stated, err := listwatch.UntilAnswered(ctx, unanswered, func() (map[string]string, error) { return c.feeds.exports[1].absent(ctx, stated) })
		if err != nil { // the feed reports why
			c.unconfirmed.Up()
			continue
		}
		before := c.confirmed.Swap(&stated)
		for name, version := range stated {
			if key, ok := model.RecordKey(name); ok && (*before)[name] != version {
				c.opts.Hooks.Changed(model.MemberChange{ID: c.opts.ID, What: model.ExportChanged, Key: key})
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

// Slices are the copies that the peer publishes for key, and how many more it does than a
// record may name.
func (c *Connection) Slices(key types.NamespacedName) (copies []*discoveryv1.EndpointSlice, more int) {
	var lists [2][]*discoveryv1.EndpointSlice
	for i, f := range c.feeds.slices {
		items, _ := f.store.ByIndex(indexExport, key.String()) // the index exists
		if left := len(items) - exchange.MaxSliceNames; left > 0 {
			slices.SortFunc(items, func(a, b any) int { return cmp.Compare(a.(metav1.Object).GetName(), b.(metav1.Object).GetName()) })
			items, more = items[:exchange.MaxSliceNames], more+left
		}
		for _, item := range items {
			slice, err := compactslice.Open(item.(*discoveryv1.EndpointSlice))
			if err != nil {
				continue
			}
			if _, _, ok := exchange.SliceKey(slice); ok {
				lists[i] = append(lists[i], slice)
			}
		}
	}
	return exchange.MergeCopies(lists[:]...), more
}

// Keys lists what the peer's records are called; whether they are valid is
// looked at when they are read.
func (c *Connection) Keys() []types.NamespacedName {
	var out []types.NamespacedName
	for _, f := range c.feeds.exports {
		for _, item := range f.store.List() {
			if key, ok := model.RecordKey(item.(*exchangev1alpha1.ExportRecord).Name); ok {
				out = append(out, key)
			}
		}
	}
	return out
}

// Namespace says whether the peer has a namespace called name.
func (c *Connection) Namespace(name string) decision.PeerNamespace {
	record, found := cached[*exchangev1alpha1.NamespaceRecord](c.feeds.namespaces, name)
	if !found {
		return decision.PeerNamespace{Presence: decision.Absent}
	}
	identity, err := exchange.FromNamespaceRecord(c.opts.ID, record)
	if err != nil {
		return decision.PeerNamespace{Presence: decision.Unknown}
	}
	return decision.PeerNamespace{Presence: decision.Present, Labels: identity}
}

// indexSlice finds the slices, packed or not, of the export that they say they belong to.
func indexSlice(obj any) ([]string, error) {
	if slice, is := obj.(*discoveryv1.EndpointSlice); is {
		if key, ok := model.LabeledExport(slice.Labels); ok {
			return []string{key.String()}, nil
		}
	}
	return nil, nil
}

// changed handles that an object in the store of a feed was added, with before the same as now, was
// changed, or was removed, with now nil. The owner is notified of no export, report or namespace
// until what is read may be used: it then reads everything.
func (c *Connection) changed(before, now any) {
	switch before.(type) {
	case *exchangev1alpha1.MemberRecord:
		c.refresh()
		return
	case *coordinationv1.Lease:
		if now != nil {
			c.leaseChanged(now.(*coordinationv1.Lease))
		}
		return
	}
	if now != nil && c.check(now) != nil {
		c.opts.Hooks.Rejected()
	}
	if now != nil && before != now && sameSpec(before, now) || !c.verified.Load() {
		return
	}
	for change := range sets.New(c.change(before), c.change(cmp.Or(now, before))) { // labels may move a slice to another export
		if change.Key.Name != "" {
			c.opts.Hooks.Changed(change)
		}
	}
}

// change is what changes of the peer with an object; without a key, nothing that is read.
func (c *Connection) change(obj any) model.MemberChange {
	object, out := obj.(metav1.Object), model.MemberChange{ID: c.opts.ID, What: model.ExportChanged}
	key, ok := model.RecordKey(object.GetName())
	switch obj.(type) {
	case *discoveryv1.EndpointSlice:
		out.What = model.EndpointsChanged
		key, ok = model.LabeledExport(object.GetLabels())
	case *exchangev1alpha1.NamespaceRecord:
		out.What, key, ok = model.NamespaceChanged, types.NamespacedName{Name: object.GetName()}, true
	case *exchangev1alpha1.ImportRecord:
		out.What = model.ReportChanged
	}
	if ok {
		out.Key = key
	}
	return out
}

// sameSpec reports whether two versions of a namespace's record, or of a report, which are
// read of nothing but their specs, have the same.
func sameSpec(before, now any) bool {
	switch before := before.(type) {
	case *exchangev1alpha1.NamespaceRecord:
		return equality.Semantic.DeepEqual(before.Spec, now.(*exchangev1alpha1.NamespaceRecord).Spec)
	case *exchangev1alpha1.ImportRecord:
		return equality.Semantic.DeepEqual(before.Spec, now.(*exchangev1alpha1.ImportRecord).Spec)
	}
	return false
}

// indexInvalid finds the records of a feed that are not valid, under the empty value.
const indexInvalid = "invalid"

func (c *Connection) indexInvalid(obj any) ([]string, error) {
	if c.check(obj) == nil {
		return nil, nil
	}
	return []string{""}, nil
}

// invalid are the keys of the records that are not valid, in no order.
func (f *feed) invalid() []string {
	keys, _ := f.store.IndexKeys(indexInvalid, "") // the index exists
	return keys
}

// Invalid says how many records of the peer are not valid, and what is wrong with the first; the
// zero value if all are valid.
func (c *Connection) Invalid() (out Failure) {
	count := 0
	var first error
	for _, f := range c.feeds.all() {
		keys := f.invalid()
		count += len(keys)
		if first == nil && len(keys) > 0 {
			if item, found, _ := f.store.GetByKey(slices.Min(keys)); found {
				first = c.check(item)
			}
		}
	}
	if first != nil {
		out = Failure{model.ReasonInvalidRecord, fmt.Sprintf("records of cluster %s that are not valid: %d, such as: %v", c.opts.ID, count, first)}
	}
	return out
}

// Count is how many exports of the peer were read, and how many others are not imported:
// their records are not valid, or their namespace is not accepted.
func (c *Connection) Count(accepted func(namespace string) bool) (read, refused int) {
	invalid := sets.New(append(c.feeds.exports[0].invalid(), c.feeds.exports[1].invalid()...)...)
	for key := range sets.New(c.Keys()...) {
		record := c.record(key)
		switch {
		case record == nil || record.Spec.Withdrawn:
		case accepted(key.Namespace) && !invalid.Has(record.Namespace+"/"+record.Name):
			read++
		default:
			refused++
		}
	}
	return read, refused
}

// check says what is wrong with a record of the peer. What is no record is valid.
func (c *Connection) check(obj any) (err error) {
	switch record := obj.(type) {
	case *exchangev1alpha1.ExportRecord:
		err = exchange.CheckRecord(c.opts.ID, record)
	case *exchangev1alpha1.ImportRecord:
		_, _, err = exchange.FromImportRecord(c.opts.ID, record)
	case *exchangev1alpha1.NamespaceRecord:
		_, err = exchange.FromNamespaceRecord(c.opts.ID, record)
	}
	return err
}

// A feed is the store of its reflector. An informer would do the same, with as many objects
// in its queues and four more goroutines: that counts with eight feeds for each of many peers.
// All objects of a feed have keys, so store returns no error.

// Add implements toolscache.ReflectorStore.
func (f *feed) Add(obj any) error { return f.Update(obj) }

// Update implements toolscache.ReflectorStore: an event of the watch is an addition or a change.
func (f *feed) Update(obj any) error {
	if err := f.follow(watch.Modified, obj); err != nil {
		return err
	}
	return f.put(obj)
}

// Delete implements toolscache.ReflectorStore.
func (f *feed) Delete(obj any) error {
	if err := f.follow(watch.Deleted, obj); err != nil {
		return err
	}
	f.remove(obj)
	return nil
}

// Bookmark implements toolscache.ReflectorBookmarkStore.
func (f *feed) Bookmark(string) error {
	f.meter.read.Store(0)
	return nil
}

func (f *feed) put(obj any) error {
	now, err := trim(obj)
	if err != nil {
		return err
	}
	before, known, _ := f.store.Get(now)
	_ = f.store.Update(now)
	if !known {
		before = now
	}
	// The same version is the echo of a list after a reconnect.
	if !known || before.(metav1.Object).GetResourceVersion() != now.(metav1.Object).GetResourceVersion() {
		f.connection.changed(before, now)
	}
	return nil
}

func (f *feed) remove(obj any) {
	if before, known, _ := f.store.Get(obj); known {
		_ = f.store.Delete(before)
		f.connection.changed(before, nil)
	}
}

// Replace implements toolscache.ReflectorStore.
func (f *feed) Replace(list []any, _ string) error {
	gone := sets.New(f.store.ListKeys()...)
	for _, obj := range list {
		if err := f.put(obj); err != nil {
			return err
		}
		key, _ := toolscache.MetaNamespaceKeyFunc(obj) // as it is in store now
		gone.Delete(key)
	}
	for key := range gone {
		f.remove(toolscache.ExplicitKey(key))
	}
	if !f.listed.Swap(true) {
		f.connection.refresh()
	}
	return nil
}

// Resync implements toolscache.ReflectorStore.
func (f *feed) Resync() error { return nil }
