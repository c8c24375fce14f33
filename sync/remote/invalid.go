// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"cmp"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

// invalidRecords are the records of a peer that are not valid, as they are cached.
type invalidRecords struct {
	mu    sync.Mutex
	names map[*feed]map[string]struct{}
}

// set notes whether the record is invalid, and reports whether that is a change.
func (i *invalidRecords) set(f *feed, name string, is bool) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, was := i.names[f][name]; was == is {
		return false
	}
	if !is {
		delete(i.names[f], name)
		return true
	}
	if i.names == nil {
		i.names = map[*feed]map[string]struct{}{}
	}
	if i.names[f] == nil {
		i.names[f] = map[string]struct{}{}
	}
	i.names[f][name] = struct{}{}
	return true
}

// first is how many there are, and the first of them by kind, namespace and name.
func (i *invalidRecords) first() (count int, in *feed, name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for f, names := range i.names {
		count += len(names)
		for n := range names {
			if in == nil || cmp.Or(cmp.Compare(f.kind, in.kind), cmp.Compare(f.namespace, in.namespace), cmp.Compare(n, name)) < 0 {
				in, name = f, n
			}
		}
	}
	return count, in, name
}

// checkRecord notes whether a record is valid, and notifies the owner of one that is not.
func (c *Connection) checkRecord(f *feed, obj any) {
	record, ok := obj.(metav1.Object)
	if !ok {
		return
	}
	err := f.check(obj)
	if err != nil {
		c.opts.Hooks.Rejected(c, err)
	}
	if c.invalid.set(f, record.GetName(), err != nil) || err != nil {
		c.opts.Hooks.Invalid(c)
	}
}

// forgetRecord notes that a record is gone.
func (c *Connection) forgetRecord(f *feed, obj any) {
	if record, ok := obj.(metav1.Object); ok && c.invalid.set(f, record.GetName(), false) {
		c.opts.Hooks.Invalid(c)
	}
}

// Invalid is how many records of the peer are not valid, and what is wrong with the first.
func (c *Connection) Invalid() (count int, first error) {
	count, f, name := c.invalid.first()
	if f == nil {
		return 0, nil
	}
	item, found, err := f.informer.GetIndexer().GetByKey(f.namespace + "/" + name)
	if err != nil || !found {
		return count, nil // it was deleted a moment ago, and the owner is notified
	}
	return count, f.check(item)
}

// Count is how many exports of the peer were read, and how many others are not imported:
// their records are not valid, or their namespace is not accepted.
func (c *Connection) Count(accepted func(namespace string) bool) (read, refused int) {
	seen := map[types.NamespacedName]struct{}{}
	for _, key := range c.Keys() {
		if _, repeated := seen[key]; repeated {
			continue
		}
		seen[key] = struct{}{}
		record := c.record(key)
		_, valid := c.read(record, key)
		switch {
		case valid && accepted(key.Namespace):
			read++
		case valid || record != nil && !record.Spec.Withdrawn:
			refused++
		}
	}
	return read, refused
}

func (c *Connection) checkExport(obj any) error {
	record, ok := obj.(*exchangev1alpha1.ExportRecord)
	if !ok {
		return nil
	}
	if _, stated, err := exchange.FromWithdrawn(c.opts.ID, record); stated || err != nil {
		return err
	}
	_, err := exchange.FromRecord(c.opts.ID, record)
	return err
}

func (c *Connection) checkReport(obj any) error {
	record, ok := obj.(*exchangev1alpha1.ImportRecord)
	if !ok {
		return nil
	}
	_, _, err := exchange.FromImportRecord(c.opts.ID, record)
	return err
}

func (c *Connection) checkNamespace(obj any) error {
	record, ok := obj.(*exchangev1alpha1.NamespaceRecord)
	if !ok {
		return nil
	}
	_, err := exchange.FromNamespaceRecord(c.opts.ID, record)
	return err
}
