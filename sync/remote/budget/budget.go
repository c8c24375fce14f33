// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package budget bounds how much of one member is held in memory.
//
// It takes the limits, and each list and each event of a watch before anything of it
// is used; it gives the limit that they would exceed. What was counted before stays
// counted, since the caller keeps it. It reads nothing itself, and no clock.
package budget

import (
	"cmp"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Limits bound what is read of one member, so that no member can exhaust the memory
// or the processor of this cluster's agent. A member that exceeds one of them counts
// as one that cannot be read: what was read before stays in use, and everything is
// read again once the member is within the limits. Zero fields have the defaults.
//
// The defaults are for a clusterset of 100 members with 10,000 exports and 100,000
// endpoints: it does not reach them, even if one member has all the exports. What is
// held of all members together is bounded by what the clusterset has, not by 100 times
// these limits, unless members are hostile.
type Limits struct {
	// Exports, Slices and Others are how many ExportRecords, EndpointSlices and
	// objects of each other kind are read.
	Exports, Slices, Others int
	// Bytes is the total size of these objects.
	Bytes int64
	// ResponseBytes is the size of one response that is no watch, decompressed.
	ResponseBytes int64
	// EventBytes is the size of one event of a watch.
	EventBytes int64
	// BytesPerSecond is how fast is read, after a burst of BurstBytes.
	BytesPerSecond, BurstBytes int64
	// Pause is how long what a member keeps changing stands as it is, if everything that it
	// exports or imports depends on it.
	Pause time.Duration
}

// The defaults, which a hub's quotas have too.
const (
	// MaxExports: 10,000 exports, whose records are in two namespaces while their audience changes.
	MaxExports = 20_000
	// MaxSlices: one slice for each of 10,000 exports and IP family, in two namespaces.
	MaxSlices = 40_000
	// MaxOthers: one report for each of 10,000 exports of this cluster, and as many again.
	MaxOthers = 20_000
)

// SetDefaults replaces zero fields.
func (l *Limits) SetDefaults() {
	l.Exports, l.Slices, l.Others = cmp.Or(l.Exports, MaxExports), cmp.Or(l.Slices, MaxSlices), cmp.Or(l.Others, MaxOthers)
	// 10,000 records of 1.1 kB and slices of 1.2 kB, in two namespaces, and 10,000 reports
	// of 1 kB are 56 MB. Of 100 members that share these exports, each has 0.4 MB.
	const everything = 64 << 20
	l.Bytes = cmp.Or(l.Bytes, everything)
	// Lists are read in pages of at most 250 records or 100 slices, so an average object may
	// have 32 kB or 80 kB: a slice of 500 endpoints.
	l.ResponseBytes = cmp.Or(l.ResponseBytes, 8<<20)
	// etcd stores objects of at most 1.5 MB, which as JSON are at most twice as long. Eight
	// watches of a member may each hold an event that is not complete.
	l.EventBytes = cmp.Or(l.EventBytes, 4<<20)
	// 1,600 changes a second of slices of 100 endpoints. 50 a second in 100 members, one of
	// which may make all, are 60 kB for slices of ten.
	l.BytesPerSecond = cmp.Or(l.BytesPerSecond, 8<<20)
	l.BurstBytes = cmp.Or(l.BurstBytes, everything)
	l.Pause = cmp.Or(l.Pause, 20*time.Second)
}

// Exceeded is a limit that was exceeded.
type Exceeded struct{ Limit string }

// Error names the limit.
func (e *Exceeded) Error() string { return "the limit of " + e.Limit + " is exceeded" }

// Member counts what is held of one member. All methods, and those of its feeds, may be
// called from any goroutine; the pages of one feed come one after another.
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

func newHolding() *holding { return &holding{sizes: map[string]int32{}} }

// Feed counts one kind in one namespace of the member.
type Feed struct {
	member *Member
	kind   string
	limit  int // on the objects of kind
	// held, and what was read so far of a list that has not ended, or nil; they need the
	// mutex of member.
	held, pending *holding
}

// Feed counts objects of a kind, such as ExportRecords. Feeds of one kind share its limit.
func (m *Member) Feed(kind string) *Feed {
	m.mu.Lock()
	defer m.mu.Unlock()
	limit := cmp.Or(map[string]int{"ExportRecords": m.limits.Exports, "EndpointSlices": m.limits.Slices}[kind], m.limits.Others)
	f := &Feed{member: m, kind: kind, limit: limit, held: newHolding()}
	m.feeds = append(m.feeds, f)
	return f
}

// Begin begins to count a list. What is held counts until its End.
func (f *Feed) Begin() {
	f.member.mu.Lock()
	defer f.member.mu.Unlock()
	f.pending = newHolding()
}

// End ends the list that began last: exactly its objects are held.
func (f *Feed) End() {
	f.member.mu.Lock()
	defer f.member.mu.Unlock()
	f.held, f.pending = f.pending, nil
}

// Page counts one page of the list. If it exceeds a limit, nothing of the list is to be used.
func (f *Feed) Page(objects []runtime.Object) *Exceeded {
	f.member.mu.Lock()
	defer f.member.mu.Unlock()
	for _, object := range objects {
		before := len(f.pending.sizes)
		exceeded := f.count(f.pending, watch.Event{Type: watch.Added, Object: object})
		if exceeded == nil && len(f.pending.sizes) == before {
			// A reflector keeps all pages of a list until the last one, and a list that has nothing
			// but repetitions would exceed no limit.
			exceeded = &Exceeded{"1 object of each name in one list"}
		}
		if exceeded != nil {
			f.pending = nil
			return exceeded
		}
	}
	return nil
}

// Event counts one event: between Begin and End, of a list that is streamed, otherwise of a watch.
// If it exceeds a limit, it is not to be used, and the list or the watch has to end: nothing
// after it makes sense without it.
func (f *Feed) Event(event watch.Event) *Exceeded {
	f.member.mu.Lock()
	defer f.member.mu.Unlock()
	exceeded := f.count(cmp.Or(f.pending, f.held), event)
	if exceeded != nil {
		f.pending = nil
	}
	return exceeded
}

// others are the bytes of all feeds but f, and the number of objects of those of its
// kind. Of a feed that is being listed, the larger of what is held and what was read
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
		if other.kind == f.kind {
			count += objects
		}
	}
	return bytes, count
}

// count counts an event in h: the holding of f or one that is to replace it. An object that
// exceeds a limit is not counted. It needs mu.
func (f *Feed) count(h *holding, event watch.Event) *Exceeded {
	m := f.member
	object, _ := event.Object.(metav1.Object)
	switch event.Type {
	case watch.Added, watch.Modified:
		size := sizeOf(event.Object)
		bytes, count := m.others(f)
		before, known := h.sizes[object.GetName()]
		switch {
		case !known && count+len(h.sizes) >= f.limit:
			return &Exceeded{fmt.Sprintf("%d %s", f.limit, f.kind)}
		case bytes+h.bytes+size-int64(before) > m.limits.Bytes:
			return &Exceeded{fmt.Sprintf("%d bytes in all objects", m.limits.Bytes)}
		}
		h.sizes[object.GetName()] = int32(min(size, 1<<31-1))
		h.bytes += size - int64(before)
	case watch.Deleted:
		h.bytes -= int64(h.sizes[object.GetName()])
		delete(h.sizes, object.GetName())
	}
	return nil
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
