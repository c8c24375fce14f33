// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"cmp"
	"reflect"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/comity-mcs/comity/sync/compactslice"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Export is what the peer exports as key.
func (c *Connection) Export(key types.NamespacedName) (model.Export, bool) {
	record := c.record(key)
	if record == nil {
		return model.Export{}, false
	}
	out, err := exchange.FromRecord(c.opts.ID, record)
	return out, err == nil && out.Key == key
}

// Refusal is why what the peer exports as key is not read; nil if it is, or if there is
// nothing.
func (c *Connection) Refusal(key types.NamespacedName) *model.Refusal {
	return exchange.Refusal(c.opts.ID, c.record(key))
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

// Slices are the copies that the peer publishes for key, and how many more it does than a
// record may name.
func (c *Connection) Slices(key types.NamespacedName) (copies []*discoveryv1.EndpointSlice, more int) {
	var lists [2][]*discoveryv1.EndpointSlice
	for i, f := range c.feeds.slices {
		items, left := f.copies(key)
		for _, item := range items {
			slice, err := compactslice.Open(item.(*discoveryv1.EndpointSlice))
			if err != nil {
				continue
			}
			if _, _, ok := exchange.SliceKey(slice); ok {
				lists[i] = append(lists[i], slice)
			}
		}
		more += left
	}
	return exchange.MergeCopies(lists[:]...), more
}

// copies are the slices of key as they are cached: the first ones by name, up to as many
// as a record may name. More is how many are left out.
func (f *feed) copies(key types.NamespacedName) (items []any, more int) {
	items, _ = f.store.ByIndex(indexExport, key.String()) // the index exists
	if len(items) <= exchange.MaxSliceNames {
		return items, 0
	}
	slices.SortFunc(items, func(a, b any) int { return cmp.Compare(a.(metav1.Object).GetName(), b.(metav1.Object).GetName()) })
	return items[:exchange.MaxSliceNames], len(items) - exchange.MaxSliceNames
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
func (c *Connection) Namespace(name string) model.MemberNamespace {
	out := model.MemberNamespace{Cluster: c.opts.ID, Presence: model.NamespaceAbsent}
	record, found := cached[*exchangev1alpha1.NamespaceRecord](c.feeds.namespaces, name)
	if !found {
		return out
	}
	out.Presence = model.NamespacePresent
	var err error
	if out.Labels, err = exchange.FromNamespaceRecord(c.opts.ID, record); err != nil {
		out.Presence = model.NamespaceUnknown
	}
	return out
}

func indexSlice(obj any) ([]string, error) {
	if key, ok := sliceKey(obj); ok {
		return []string{key.String()}, nil
	}
	return nil, nil
}

// sliceKey is the export that a slice, packed or not, says it belongs to.
func sliceKey(obj any) (types.NamespacedName, bool) {
	return model.LabeledExport(obj.(*discoveryv1.EndpointSlice).Labels)
}

// recordHandler notifies changed of the names of records.
// Nothing is notified of until what is read may be used: the owner then reads everything.
func (c *Connection) recordHandler(changed func(name string)) handler {
	notify := func(obj any) {
		if c.verified.Load() {
			changed(obj.(metav1.Object).GetName())
		}
	}
	return handler{func(before, now any) {
		if c.check(now) != nil {
			c.opts.Hooks.Rejected(c)
		}
		if before == now || !sameSpec(before, now) {
			notify(now)
		}
	}, notify}
}

func (c *Connection) sliceHandler() handler {
	notify := func(obj any) {
		if key, ok := sliceKey(obj); ok && c.verified.Load() {
			c.opts.Hooks.Export(c, key)
		}
	}
	return handler{func(before, now any) {
		was, _ := sliceKey(before)
		if key, _ := sliceKey(now); was != key { // labels have moved it to another export
			notify(before)
		}
		notify(now)
	}, notify}
}

// sameSpec reports whether two versions of a namespace's record, or of a report, which are
// read of nothing but their specs, have the same.
func sameSpec(before, now any) bool {
	switch before.(type) {
	case *exchangev1alpha1.NamespaceRecord, *exchangev1alpha1.ImportRecord:
		spec := func(record any) any { return reflect.ValueOf(record).Elem().FieldByName("Spec").Interface() }
		return equality.Semantic.DeepEqual(spec(before), spec(now))
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

// Invalid is how many records of the peer are not valid, and what is wrong with the first.
func (c *Connection) Invalid() (count int, first error) {
	for _, f := range []*feed{c.feeds.exports[0], c.feeds.exports[1], c.feeds.reports, c.feeds.namespaces} {
		keys := f.invalid()
		count += len(keys)
		if first != nil || len(keys) == 0 {
			continue
		}
		if item, found, _ := f.store.GetByKey(slices.Min(keys)); found {
			first = c.check(item)
		}
	}
	return count, first
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

// keyOf passes on the name of a record as what it is about.
func keyOf(changed func(types.NamespacedName)) func(name string) {
	return func(name string) {
		if key, ok := model.RecordKey(name); ok {
			changed(key)
		}
	}
}
