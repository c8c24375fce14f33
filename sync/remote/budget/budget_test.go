// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"
)

// object has a name, and a size that grows with weight.
func object(name string, weight int) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"w": strings.Repeat("x", weight)}}}
}

// counted is what one feed is to hold: the size of each object.
type counted struct {
	feed  *Feed
	kind  string
	sizes map[string]int
}

// within reports whether feeds may hold what they do when feed at holds next instead.
func within(limits Limits, feeds []*counted, at int, next map[string]int) bool {
	counts, bytes := map[string]int{}, 0
	for i, f := range feeds {
		sizes := f.sizes
		if i == at {
			sizes = next
		}
		counts[f.kind] += len(sizes)
		for _, size := range sizes {
			bytes += size
		}
	}
	return counts["ExportRecords"] <= limits.Exports && counts["EndpointSlices"] <= limits.Slices && counts["MemberRecords"] <= limits.Others &&
		int64(bytes) <= limits.Bytes
}

// Lists and events of several feeds, in any order, are counted exactly: one is refused
// if, and only if, the member would exceed a limit with it, and then nothing of it counts.
func TestWhatIsHeldIsWithinTheLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{Exports: 3, Slices: 4, Others: 2, Bytes: 400}
		member := New(limits)
		var feeds []*counted
		for _, kind := range []string{"ExportRecords", "ExportRecords", "EndpointSlices", "EndpointSlices", "MemberRecords"} {
			feeds = append(feeds, &counted{member.Feed(kind), kind, map[string]int{}})
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			at := rapid.IntRange(0, len(feeds)-1).Draw(t, "feed")
			f := feeds[at]
			next, refused := maps.Clone(f.sizes), (*Exceeded)(nil)
			drawn := func() *metav1.PartialObjectMetadata {
				return object(fmt.Sprint("o-", rapid.IntRange(0, 4).Draw(t, "name")), rapid.SampledFrom([]int{0, 10, 150}).Draw(t, "weight"))
			}
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				o := drawn()
				next[o.Name] = o.Size()
				refused = f.feed.Event(watch.Event{Type: rapid.SampledFrom([]watch.EventType{watch.Added, watch.Modified}).Draw(t, "type"), Object: o})
			case 1:
				o := drawn()
				delete(next, o.Name)
				refused = f.feed.Event(watch.Event{Type: watch.Deleted, Object: o})
			default:
				next, refused = list(t, f, drawn)
			}
			if fits := within(limits, feeds, at, next); fits != (refused == nil) {
				t.Fatalf("a member with %v in feed %d: refused %v", next, at, refused)
			}
			if refused == nil {
				f.sizes = next
			}
		}
	})
}

// list counts a list in pages of distinct objects, or event by event, up to what is refused.
func list(t *rapid.T, f *counted, drawn func() *metav1.PartialObjectMetadata) (map[string]int, *Exceeded) {
	next := map[string]int{}
	f.feed.Begin()
	if rapid.Bool().Draw(t, "streamed") {
		for range rapid.IntRange(0, 5).Draw(t, "events") {
			o := drawn()
			what := rapid.SampledFrom([]watch.EventType{watch.Added, watch.Modified, watch.Deleted}).Draw(t, "type")
			if next[o.Name] = o.Size(); what == watch.Deleted {
				delete(next, o.Name)
			}
			if refused := f.feed.Event(watch.Event{Type: what, Object: o}); refused != nil {
				return next, refused
			}
		}
		f.feed.End()
		return next, nil
	}
	var objects []runtime.Object
	for range rapid.IntRange(0, 5).Draw(t, "listed") {
		if o := drawn(); next[o.Name] == 0 {
			next[o.Name] = o.Size()
			objects = append(objects, o)
		}
	}
	cut := rapid.IntRange(0, len(objects)).Draw(t, "first page")
	for _, page := range [][]runtime.Object{objects[:cut], objects[cut:]} {
		if refused := f.feed.Page(page); refused != nil {
			return next, refused
		}
	}
	f.feed.End()
	return next, nil
}

// All feeds of a member are listed at the same time when it is connected.
func TestListsThatAreReadAtTheSameTimeShareTheLimits(t *testing.T) {
	half := []runtime.Object{object("half", 600)}
	member := New(Limits{Bytes: 1000})
	exports, slices, leases := member.Feed("ExportRecords"), member.Feed("EndpointSlices"), member.Feed("Leases")
	page := func(f *Feed, objects []runtime.Object, first, last, fits bool) {
		t.Helper()
		if first {
			f.Begin()
		}
		refused := f.Page(objects)
		if (refused == nil) != fits {
			t.Fatalf("refused %v", refused)
		}
		if last && fits {
			f.End()
		}
	}
	page(exports, half, true, false, true)
	page(slices, half, true, false, false)
	if refused := leases.Event(watch.Event{Type: watch.Added, Object: half[0]}); refused == nil {
		t.Fatal("an event that comes meanwhile is accepted")
	}
	page(exports, nil, false, true, true)
	page(slices, half, true, true, false)
	page(exports, []runtime.Object{object("small", 1)}, true, true, true)
	page(slices, half, true, false, true) // and then the connection breaks
	page(exports, half, true, true, false)
	page(slices, nil, true, true, true)
	page(exports, half, true, true, true)
}

// An informer keeps what it read of a list until its last page.
func TestAListThatRepeatsItselfIsRefused(t *testing.T) {
	f := New(Limits{}).Feed("ExportRecords")
	page := []runtime.Object{object("one", 1), object("two", 1)}
	f.Begin()
	if refused := f.Page(page); refused != nil {
		t.Fatal(refused)
	}
	if refused := f.Page(page[1:]); refused == nil {
		t.Error("a page that repeats an object is accepted")
	}
	f.Begin()
	if refused := f.Page(page); refused != nil {
		t.Errorf("the list is refused when it begins again: %v", refused)
	}
}
