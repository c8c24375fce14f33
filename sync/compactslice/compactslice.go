// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package compactslice packs EndpointSlices while they are in a cache.
//
// It takes slices as they were read; it gives slices with only the fields that
// caches, indexes and event handlers use, and restores the originals bit for bit. A
// slice of ten endpoints is 70 objects on the heap; packed, it is 5, and a quarter of
// its bytes. A packed slice
// is an EndpointSlice too, because the cache of controller-runtime returns no other
// type to a client that reads EndpointSlices. Informers of remote use the same form.
package compactslice

import (
	"encoding/json"
	"fmt"
	"slices"
	"unique"

	"github.com/klauspost/compress/s2"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
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
	entries := slices.Clone(s.ManagedFields)
	for i := range entries { // so that those of many slices are the same
		entries[i].Time, entries[i].FieldsV1 = nil, nil
	}
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: unique.Make(s.Namespace).Value(), Name: s.Name, ResourceVersion: s.ResourceVersion,
			Labels: once(s.Labels), ManagedFields: once(entries),
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
	out.GenerateName = string(dictionary.Encode(nil, raw))
	if len(s.Endpoints) > 0 {
		out.Endpoints = some
	}
	return out, nil
}

// some represents one endpoint or more.
var some = make([]discoveryv1.Endpoint, 1)

// Open gives back what was packed; a slice that is not packed is returned as it
// is. What it returns is read-only.
func Open(s *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	if s.AddressType != addressType {
		return s, nil
	}
	out := &discoveryv1.EndpointSlice{}
	raw, err := dictionary.Decode(nil, []byte(s.GenerateName))
	if err == nil {
		err = out.Unmarshal(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("open EndpointSlice %s/%s: %w", s.Namespace, s.Name, err)
	}
	out.TypeMeta = s.TypeMeta
	out.Namespace, out.Name, out.ResourceVersion, out.Labels = s.Namespace, s.Name, s.ResourceVersion, s.Labels
	return out, nil
}

// dictionary has what most slices have, so that even a small one is compressed. What is most
// frequent is at its end.
var dictionary = s2.MakeDict([]byte("comity.dev/withdrawn\x12comity.dev/source-slice\x12comity.dev/applied\x12\x10\n\x06comity\x12\x05Apply\x1a\x13discovery.k8s.io/v1\"\x00"+
	"2\x08FieldsV1:\x00\x04IPv6\x04IPv4\n\x05https\n\x04http\x12\x03UDP\x12\x03TCP\x18\x90?\x12&\n\n10.96.10.1\x12\x06\b\x01\x10\x01\x18\x00:\x06zone-a"), nil)

// All slices of one Service have the same labels and managers, and come one after the
// other when they are listed. What is here is never changed, so equal ones are held once.
var shared = lru.New(1024)

// maxShared is how many bytes of labels or managers are held once: a user or a peer may write more.
const maxShared = 4 << 10

// once is a value equal to v: an earlier one if it is still known. Only values that are no
// labels or managers, because they are not UTF-8, may be taken for each other.
func once[T any](v T) T {
	text, err := json.Marshal(v)
	if err != nil || len(text) > maxShared {
		return v
	}
	key := fmt.Sprintf("%T%s", v, text)
	if known, ok := shared.Get(key); ok {
		return known.(T)
	}
	shared.Add(key, v)
	return v
}

// Shrink is a cache transform for all kinds that the agent caches. It is Transform of
// EndpointSlices. Of every object it drops the field sets, most of its size, and keeps who
// applied it, by which ownership is proven. Informers pass a streamed object through it
// twice, and packed ones share their entries, so what is trimmed is not written to.
func Shrink(obj any) (any, error) {
	if object, ok := obj.(metav1.Object); ok { // no tombstone, which is about to be forgotten anyway
		entries := object.GetManagedFields()
		for i := range entries {
			if entries[i].FieldsV1 != nil {
				entries[i].FieldsV1 = nil
			}
		}
		object.SetManagedFields(entries)
	}
	return Transform(obj)
}
