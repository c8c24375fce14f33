// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// indexInvalid finds the records of a feed that are not valid, under the empty value.
const indexInvalid = "invalid"

func (f *feed) indexInvalid(obj any) ([]string, error) {
	if f.check(obj) == nil {
		return nil, nil
	}
	return []string{""}, nil
}

// invalid are the keys of the records that are not valid, in no order.
func (f *feed) invalid() []string {
	keys, _ := f.informer.GetIndexer().IndexKeys(indexInvalid, "") // the index exists
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
		if item, found, _ := f.informer.GetIndexer().GetByKey(slices.Min(keys)); found {
			first = f.check(item)
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

// checking is a check of records of one type.
func checking[T any](check func(T) error) func(any) error {
	return func(obj any) error {
		if record, ok := obj.(T); ok {
			return check(record)
		}
		return nil
	}
}

func (c *Connection) checkExport(record *exchangev1alpha1.ExportRecord) error {
	if _, stated, err := exchange.FromWithdrawn(c.opts.ID, record); stated || err != nil {
		return err
	}
	_, err := exchange.FromRecord(c.opts.ID, record)
	return err
}

func (c *Connection) checkReport(record *exchangev1alpha1.ImportRecord) error {
	_, _, err := exchange.FromImportRecord(c.opts.ID, record)
	return err
}

func (c *Connection) checkNamespace(record *exchangev1alpha1.NamespaceRecord) error {
	_, err := exchange.FromNamespaceRecord(c.opts.ID, record)
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
