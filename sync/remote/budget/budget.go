// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"encoding/json"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits bound what is read of one member, so that no member can exhaust the memory
// or the processor of this cluster's agent. A member that exceeds one of them counts
// as one that cannot be read: what was read before stays in use, and everything is
// read again once the member is within the limits. Zero fields have the defaults,
// which a clusterset of 30 members with 10,000 exports does not reach even if one
// member has all the exports: 10,000 records of 1.5 kB and as many slices of ten
// endpoints are 25 MB.
type Limits struct {
	// Exports, Slices and Others are how many ExportRecords, EndpointSlices and
	// objects of each other kind are read; defaults 20,000, 40,000 and 20,000.
	Exports, Slices, Others int
	// Bytes is the total size of these objects; default 64 MiB. An agent may use
	// 512 MiB, and holds a slice twice if it imports it.
	Bytes int64
	// ResponseBytes is the size of one response that is no watch, decompressed;
	// default 8 MiB. Lists are read in pages of at most 250 records or 100 slices,
	// so an average object may have 32 kB or 80 kB: a slice of 500 endpoints.
	ResponseBytes int64
	// EventBytes is the size of one event of a watch; default 8 MiB. etcd stores
	// objects of at most 1.5 MB, which as JSON are at most twice as long.
	EventBytes int64
	// BytesPerSecond is how fast is read, after a burst of BurstBytes; defaults
	// 8 MiB and 64 MiB. That is 1,600 changes a second of slices of 100 endpoints.
	BytesPerSecond, BurstBytes int64
}

// SetDefaults replaces zero fields.
func (l *Limits) SetDefaults() {
	ints := []struct {
		field    *int
		standard int
	}{{&l.Exports, 20_000}, {&l.Slices, 40_000}, {&l.Others, 20_000}}
	for _, i := range ints {
		if *i.field == 0 {
			*i.field = i.standard
		}
	}
	sizes := []struct {
		field    *int64
		standard int64
	}{{&l.Bytes, 64 << 20}, {&l.ResponseBytes, 8 << 20}, {&l.EventBytes, 8 << 20}, {&l.BytesPerSecond, 8 << 20}, {&l.BurstBytes, 64 << 20}}
	for _, s := range sizes {
		if *s.field == 0 {
			*s.field = s.standard
		}
	}
}

// Exceeded is a limit that was exceeded.
type Exceeded struct{ Limit string }

// Error names the limit.
func (e *Exceeded) Error() string { return "the limit of " + e.Limit + " is exceeded" }

// Member counts what is held of one member. All methods, and those of its feeds and
// watches, may be called from any goroutine; the pages of one feed come one after another.
type Member struct {
	limits Limits
	mu     sync.Mutex
	bytes  int64
	counts map[string]int // by resource
}

// New counts nothing yet; zero fields of limits have the defaults.
func New(limits Limits) *Member {
	limits.SetDefaults()
	return &Member{limits: limits, counts: map[string]int{}}
}

// holding is what is held of one feed: the size of each object, by name.
type holding struct {
	sizes map[string]int32
	bytes int64
}

// holding is what is held of f, in which the changes of a watch are counted.
func (f *Feed) holding() *holding {
	f.member.mu.Lock()
	defer f.member.mu.Unlock()
	return f.held
}

func newHolding() *holding { return &holding{sizes: map[string]int32{}} }

func (m *Member) limitOf(resource string) int {
	switch resource {
	case "exportrecords":
		return m.limits.Exports
	case "endpointslices":
		return m.limits.Slices
	}
	return m.limits.Others
}

// replace makes the complete list h the holding of f.
func (m *Member) replace(f *Feed, h *holding) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes += h.bytes - f.held.bytes
	m.counts[f.resource] += len(h.sizes) - len(f.held.sizes)
	f.held = h
}

// add counts an object that was listed, or added or changed, in h: the holding of f
// or one that is to replace it. An object that exceeds a limit is not counted.
func (m *Member) add(f *Feed, h *holding, object any) *Exceeded {
	accessor, ok := object.(metav1.Object)
	if !ok {
		return nil
	}
	size := sizeOf(object)
	m.mu.Lock()
	defer m.mu.Unlock()
	count, bytes := m.counts[f.resource], m.bytes
	if f.held != h { // h will take its place
		count, bytes = count-len(f.held.sizes)+len(h.sizes), bytes-f.held.bytes+h.bytes
	}
	before, known := h.sizes[accessor.GetName()]
	if limit := m.limitOf(f.resource); !known && count >= limit {
		return &Exceeded{fmt.Sprintf("%d %s", limit, f.kind)}
	}
	if bytes+size-int64(before) > m.limits.Bytes {
		return &Exceeded{fmt.Sprintf("%d bytes in all objects", m.limits.Bytes)}
	}
	m.set(f, h, accessor.GetName(), size, known)
	return nil
}

// set records the size of one object. It needs mu.
func (m *Member) set(f *Feed, h *holding, name string, size int64, known bool) {
	size = min(size, 1<<31-1)
	difference := size - int64(h.sizes[name])
	h.sizes[name] = int32(size)
	h.bytes += difference
	if f.held != h {
		return
	}
	m.bytes += difference
	if !known {
		m.counts[f.resource]++
	}
}

// remove counts an object of the holding of f that was deleted.
func (m *Member) remove(f *Feed, object any) {
	accessor, ok := object.(metav1.Object)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if size, known := f.held.sizes[accessor.GetName()]; known {
		delete(f.held.sizes, accessor.GetName())
		f.held.bytes -= int64(size)
		m.bytes -= int64(size)
		m.counts[f.resource]--
	}
}

// sizeOf is the size of an object as it is stored: protobuf where the type has it.
func sizeOf(object any) int64 {
	if sized, is := object.(interface{ Size() int }); is {
		return int64(sized.Size())
	}
	data, err := json.Marshal(object)
	if err != nil {
		return 0
	}
	return int64(len(data))
}
