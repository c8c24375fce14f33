// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// export is what the peer exports as key. While an export changes its audience
// it stands in both namespaces for a moment; then the younger record counts,
// because it was made by the move, and between two of one second the one that
// only we can read.
func (c *connection) export(key types.NamespacedName) (model.Export, bool) {
	var best *exchangev1alpha1.ExportRecord
	for _, f := range c.feeds.exports {
		item, found, err := f.informer.GetIndexer().GetByKey(f.namespace + "/" + model.RecordName(key.Namespace, key.Name))
		record, ok := item.(*exchangev1alpha1.ExportRecord)
		if err != nil || !found || !ok {
			continue
		}
		if best == nil || !record.CreationTimestamp.Before(&best.CreationTimestamp) {
			best = record
		}
	}
	if best == nil {
		return model.Export{}, false
	}
	out, err := exchange.FromRecord(c.id, best)
	return out, err == nil && out.Key == key
}

// slices are the copies that the peer publishes for key. Those of both
// namespaces count, each name once, so that no endpoint is lost while an export
// moves from one audience to another.
func (c *connection) slices(key types.NamespacedName) []*discoveryv1.EndpointSlice {
	byName := map[string]*discoveryv1.EndpointSlice{}
	for _, f := range c.feeds.slices {
		items, err := f.informer.GetIndexer().ByIndex(indexExport, key.String())
		if err != nil {
			continue
		}
		for _, item := range items {
			slice, ok := item.(*discoveryv1.EndpointSlice)
			if !ok {
				continue
			}
			if other := byName[slice.Name]; other == nil || !slice.CreationTimestamp.Before(&other.CreationTimestamp) {
				byName[slice.Name] = slice
			}
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
}

// keys lists what the peer's records are called; whether they are valid is
// looked at when they are read.
func (c *connection) keys() []types.NamespacedName {
	var out []types.NamespacedName
	for _, f := range c.feeds.exports {
		for _, item := range f.informer.GetIndexer().List() {
			if record, ok := item.(*exchangev1alpha1.ExportRecord); ok {
				if key, ok := recordKey(record.Name); ok {
					out = append(out, key)
				}
			}
		}
	}
	return out
}

func (c *connection) namespace(name string) model.MemberNamespace {
	out := model.MemberNamespace{Cluster: c.id, Presence: model.NamespaceAbsent}
	f := c.feeds.namespaces
	item, found, err := f.informer.GetIndexer().GetByKey(f.namespace + "/" + name)
	if record, ok := item.(*exchangev1alpha1.NamespaceRecord); err == nil && found && ok {
		out.Presence, out.Labels = model.NamespacePresent, record.Spec.Labels
	}
	return out
}

// recordKey is the inverse of model.RecordName.
func recordKey(record string) (types.NamespacedName, bool) {
	name, namespace, ok := strings.Cut(record, ".")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok && name != "" && namespace != ""
}

func indexSlice(obj any) ([]string, error) {
	if slice, ok := obj.(*discoveryv1.EndpointSlice); ok {
		if key, _, ok := exchange.SliceKey(slice); ok {
			return []string{key.String()}, nil
		}
	}
	return nil, nil
}

func (c *connection) exportHandler() toolscache.ResourceEventHandler {
	changed := func(obj any) {
		record, ok := untomb(obj).(*exchangev1alpha1.ExportRecord)
		if !ok {
			return
		}
		if key, ok := recordKey(record.Name); ok {
			c.tell(key)
		}
	}
	check := func(obj any) {
		if record, ok := obj.(*exchangev1alpha1.ExportRecord); ok {
			if _, err := exchange.FromRecord(c.id, record); err != nil {
				c.hooks.rejected(c, err)
			}
		}
		changed(obj)
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: check,
		UpdateFunc: func(before, now any) {
			if !same(before, now) {
				check(now)
			}
		},
		DeleteFunc: changed,
	}
}

func (c *connection) sliceHandler() toolscache.ResourceEventHandler {
	changed := func(obj any) {
		if slice, ok := untomb(obj).(*discoveryv1.EndpointSlice); ok {
			if key, _, ok := exchange.SliceKey(slice); ok {
				c.tell(key)
			}
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: changed,
		UpdateFunc: func(before, now any) {
			if !same(before, now) { // labels may have moved it to another export
				changed(before)
				changed(now)
			}
		},
		DeleteFunc: changed,
	}
}

func (c *connection) namespaceHandler() toolscache.ResourceEventHandler {
	changed := func(obj any) {
		if record, ok := untomb(obj).(*exchangev1alpha1.NamespaceRecord); ok && c.verified.Load() {
			c.hooks.namespace(record.Name)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: changed,
		UpdateFunc: func(before, now any) {
			if !same(before, now) {
				changed(now)
			}
		},
		DeleteFunc: changed,
	}
}

func (c *connection) memberHandler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.refresh() },
		UpdateFunc: func(any, any) { c.refresh() },
		DeleteFunc: func(any) { c.refresh() },
	}
}

// tell passes a key on once what is read may be used; until then the owner
// reads everything anyway when that moment comes.
func (c *connection) tell(key types.NamespacedName) {
	if c.verified.Load() {
		c.hooks.key(key)
	}
}

// same reports whether an update is only the echo of a list after a reconnect.
func same(before, now any) bool {
	a, okA := before.(metav1.Object)
	b, okB := now.(metav1.Object)
	return okA && okB && a.GetResourceVersion() == b.GetResourceVersion()
}

func untomb(obj any) any {
	if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		return tombstone.Obj
	}
	return obj
}
