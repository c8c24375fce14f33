// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/budget"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// feed is a cache of one kind in one exchange namespace of a peer. It takes up no list
// and no event that exceeds the limits of the peer, and lists again after that, as the
// informers of sync/remote do.
type feed struct {
	*apiserver.Cache
	kind   string
	budget *budget.Feed
	// over is the limit that the last list or event exceeded; nil if it did not.
	over *budget.Exceeded
}

func newFeed(server *apiserver.Server, member *budget.Member, kind, namespace string) *feed {
	return &feed{Cache: server.Watch(kind, namespace), kind: kind, budget: member.Feed(kind + "s")}
}

// Relist lists again, from a server that is that many changes behind.
func (f *feed) Relist(behind int) {
	next := f.Relisted()
	next.Relist(behind)
	var objects []runtime.Object
	for o := range next.Each {
		objects = append(objects, o)
	}
	f.budget.Begin()
	if f.over = f.budget.Page(objects); f.over == nil {
		f.budget.End()
		f.Cache = next
	}
}

// Follow takes up at most that many changes.
func (f *feed) Follow(most int) {
	if f.over != nil || !f.IsWatching() {
		f.Relist(0)
		return
	}
	for range min(most, f.Behind()) {
		if f.over = f.budget.Event(f.Next()); f.over != nil {
			return
		}
		f.Cache.Follow(1)
	}
}

// Exceeded is the limit that keeps something of the peer from being read; nil if none
// does.
func (r *Peer) Exceeded() *budget.Exceeded {
	for _, f := range r.feeds() {
		if f.over != nil {
			return f.over
		}
	}
	return nil
}

// IsOver reports whether objects of that kind and namespace exceed a limit.
func (r *Peer) IsOver(ref apiserver.Ref) bool {
	return slices.ContainsFunc(r.feeds(), func(f *feed) bool { return f.over != nil && f.kind == ref.Kind && f.Namespace() == ref.Namespace })
}

// Objects are all that is held of the peer.
func (r *Peer) Objects() map[apiserver.Ref]client.Object {
	out := map[apiserver.Ref]client.Object{}
	for _, f := range r.feeds() {
		for o := range f.Each {
			out[apiserver.RefOf(o)] = o
		}
	}
	return out
}

// limitProblems name the limit that the peer exceeds, as package members does.
func (r *Peer) limitProblems() []model.Problem {
	if over := r.Exceeded(); over != nil {
		return []model.Problem{{Reason: model.ReasonLimitExceeded, Cluster: r.ID, Message: over.Error()}}
	}
	return nil
}
