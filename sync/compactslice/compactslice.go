// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package compactslice packs EndpointSlices while they are in a cache.
//
// It takes slices as they were read; it gives slices with only the fields that
// caches, indexes and event handlers use, and restores the originals bit for bit. A
// slice of ten endpoints is 70 objects on the heap; packed, it is 5. A packed slice
// is an EndpointSlice too, because the cache of controller-runtime returns no other
// type to a client that reads EndpointSlices. Informers of remote use the same form.
package compactslice

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"unique"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// addressType marks a packed slice, whose bytes are in its GenerateName: a field
// that nobody reads, and of a type that costs no further object. It is none that
// Kubernetes has, so whoever forgets to open a slice finds nothing in it to use,
// rather than nothing wrong.
const addressType discoveryv1.AddressType = "comity.dev/packed"

// Transform packs what a cache is about to store if it is an EndpointSlice. The
// names, labels, version and the field managers (without the time of their
// writing) can be read of a packed slice, and whether it has any endpoint.
func Transform(obj any) (any, error) {
	s, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok || s.AddressType == addressType { // or a tombstone, whose slice is packed
		return obj, nil
	}
	return pack(s)
}

func pack(s *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: unique.Make(s.Namespace).Value(), Name: s.Name, ResourceVersion: s.ResourceVersion,
			Labels: labels.one(s.Labels), ManagedFields: managers.one(withoutTimes(s.ManagedFields)),
			DeletionTimestamp: s.DeletionTimestamp,
		},
		AddressType: addressType,
	}
	rest := *s
	rest.TypeMeta = metav1.TypeMeta{}
	rest.Namespace, rest.Name, rest.ResourceVersion, rest.Labels = "", "", "", nil
	raw, err := rest.Marshal()
	if err != nil {
		return nil, fmt.Errorf("pack EndpointSlice %s/%s: %w", s.Namespace, s.Name, err)
	}
	out.GenerateName = string(raw)
	if len(s.Endpoints) > 0 {
		out.Endpoints = some
	}
	return out, nil
}

// some represents one endpoint or more.
var some = make([]discoveryv1.Endpoint, 1)

// Open gives back what was packed; a slice that is not packed is returned as it
// is. What it returns is read-only, and may be returned again for a large slice.
func Open(s *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	return OpenRecent(nil, s, false)
}

// withoutTimes lets the entries of many slices be the same.
func withoutTimes(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	out := slices.Clone(entries)
	for i := range out {
		out[i].Time, out[i].FieldsV1 = nil, nil
	}
	return out
}

// All slices of one Service have the same labels and managers, and come one
// after the other when they are listed.
var (
	labels   = pool[map[string]string]{hash: hashLabels, equal: maps.Equal[map[string]string, map[string]string]}
	managers = pool[[]metav1.ManagedFieldsEntry]{hash: hashManagers, equal: slices.Equal[[]metav1.ManagedFieldsEntry]}
)

// pool remembers some values that are never changed, so that equal ones need be
// held once. It is bounded: a new value takes the place of another.
type pool[T any] struct {
	hash  func(T) uint64
	equal func(a, b T) bool
	mu    sync.Mutex
	kept  [512]T
}

// one is a value equal to v: an earlier one if it is still known.
func (p *pool[T]) one(v T) T {
	at := p.hash(v) % uint64(len(p.kept))
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.equal(p.kept[at], v) {
		p.kept[at] = v
	}
	return p.kept[at]
}

var seed = maphash.MakeSeed()

// hashLabels does not depend on the order, which a map does not have.
func hashLabels(labels map[string]string) uint64 {
	var sum uint64
	for key, value := range labels {
		sum += maphash.String(seed, key+"\x00"+value)
	}
	return sum
}

func hashManagers(entries []metav1.ManagedFieldsEntry) uint64 {
	var sum uint64
	for _, e := range entries {
		sum = sum*31 + maphash.String(seed, e.Manager)
	}
	return sum
}
