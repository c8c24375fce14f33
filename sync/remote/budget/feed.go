// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"sync/atomic"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Feed counts one kind in one namespace of the member.
type Feed struct {
	member         *Member
	kind, resource string
	// held, and what was read so far of a list that is not complete, or nil; they need
	// the mutex of member.
	held, pending *holding
	// listed is what the pages of a list are counted in.
	listed *holding
	over   atomic.Pointer[Exceeded]
}

// Feed counts objects of a kind, such as ExportRecords, that the API calls resource.
// Feeds of one resource share its limit.
func (m *Member) Feed(kind, resource string) *Feed {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &Feed{member: m, kind: kind, resource: resource, held: newHolding()}
	m.feeds = append(m.feeds, f)
	return f
}

// Page counts one page of a list, the last one if last is true; first says whether a list
// begins with it. If a limit is exceeded, nothing of the list is to be used. Of a list
// that is complete, exactly these objects are held.
func (f *Feed) Page(objects []runtime.Object, first, last bool) *Exceeded {
	if first || f.listed == nil {
		f.listed = f.begin()
	}
	for _, object := range objects {
		if exceeded := f.member.add(f, f.listed, object); exceeded != nil {
			f.listed = nil
			f.abandon()
			return exceeded
		}
	}
	if last {
		f.member.replace(f, f.listed)
		f.listed = nil
		f.over.Store(nil)
	}
	return nil
}

// Over is the limit that a watch exceeded, until a list is within the limits again; nil
// if none did.
func (f *Feed) Over() *Exceeded { return f.over.Load() }

// Exceed records that a watch exceeded a limit, and ended.
func (f *Feed) Exceed(limit *Exceeded) { f.over.Store(limit) }

// Watch counts the events of one watch.
type Watch struct {
	feed     *Feed
	streamed bool
	// initial counts the objects that exist, until all were streamed.
	initial *holding
}

// Watch begins a watch. Streamed is true if it begins with the objects that exist.
func (f *Feed) Watch(streamed bool) *Watch { return &Watch{feed: f, streamed: streamed} }

// Event counts one event. If it exceeds a limit, it is not to be used, and the watch has
// to end: nothing after it makes sense without it.
func (w *Watch) Event(event watch.Event) *Exceeded {
	if w.streamed && w.initial == nil {
		w.initial = w.feed.begin()
	}
	member := w.feed.member
	switch event.Type {
	case watch.Added, watch.Modified:
		into := w.initial
		if into == nil {
			into = w.feed.holding()
		}
		exceeded := member.add(w.feed, into, event.Object)
		if exceeded != nil && w.initial != nil {
			w.feed.abandon()
		}
		return exceeded
	case watch.Deleted:
		if w.initial == nil {
			member.remove(w.feed, event.Object)
		}
	case watch.Bookmark:
		if w.initial != nil && endsInitial(event.Object) {
			member.replace(w.feed, w.initial)
			w.streamed, w.initial = false, nil
		}
	}
	return nil
}

// endsInitial reports whether a bookmark says that everything that exists was sent.
func endsInitial(object runtime.Object) bool {
	accessor, err := apimeta.Accessor(object)
	return err == nil && accessor.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}
