// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"cmp"
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
	l.Exports, l.Slices, l.Others = cmp.Or(l.Exports, 20_000), cmp.Or(l.Slices, 40_000), cmp.Or(l.Others, 20_000)
	l.Bytes = cmp.Or(l.Bytes, 64<<20)
	l.ResponseBytes, l.EventBytes = cmp.Or(l.ResponseBytes, 8<<20), cmp.Or(l.EventBytes, 8<<20)
	l.BytesPerSecond, l.BurstBytes = cmp.Or(l.BytesPerSecond, 8<<20), cmp.Or(l.BurstBytes, 64<<20)
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
	feeds  []*Feed
}

// New counts nothing yet; zero fields of limits have the defaults.
func New(limits Limits) *Member {
	limits.SetDefaults()
	return &Member{limits: limits}
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

// begin makes a new holding of a list that is being read, in place of one that was
// not read to its end.
func (f *Feed) begin() *holding {
	f.member.mu.Lock()
	defer f.member.mu.Unlock()
	f.pending = newHolding()
	return f.pending
}

// abandon drops the list that is being read.
func (f *Feed) abandon() {
	f.member.mu.Lock()
	defer f.member.mu.Unlock()
	f.pending = nil
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
	f.held, f.pending = h, nil
}

// others are the bytes of all feeds but f, and the number of objects of those of its
// resource. Of a feed that is being listed, the larger of what is held and what was read
// so far counts: all feeds may be listed at the same time. It needs mu.
func (m *Member) others(f *Feed) (bytes int64, count int) {
	for _, other := range m.feeds {
		if other == f {
			continue
		}
		size, objects := other.held.bytes, len(other.held.sizes)
		if other.pending != nil {
			size, objects = max(size, other.pending.bytes), max(objects, len(other.pending.sizes))
		}
		bytes += size
		if other.resource == f.resource {
			count += objects
		}
	}
	return bytes, count
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
	bytes, count := m.others(f)
	before, known := h.sizes[accessor.GetName()]
	if limit := m.limitOf(f.resource); !known && count+len(h.sizes) >= limit {
		return &Exceeded{fmt.Sprintf("%d %s", limit, f.kind)}
	}
	if bytes+h.bytes+size-int64(before) > m.limits.Bytes {
		return &Exceeded{fmt.Sprintf("%d bytes in all objects", m.limits.Bytes)}
	}
	h.sizes[accessor.GetName()] = int32(min(size, 1<<31-1))
	h.bytes += size - int64(before)
	return nil
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
