// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"strings"
	"testing"

	"github.com/comity-mcs/comity/sync/model"
)

type somePeers struct{ listed chan struct{} }

func (p somePeers) Listed() <-chan struct{} { return p.listed }
func (somePeers) Members() []model.Member   { return []model.Member{{ID: "b"}} }
func (somePeers) Subscribe(func(model.MemberChange)) (cancel func()) {
	return func() {}
}

func TestTheHubIsReadOnceItsNamespacesAre(t *testing.T) {
	peers := somePeers{listed: make(chan struct{})}
	known := map[string]namespaceState{}
	h := &Hub{
		opts:   Options{Self: "a", Peers: peers},
		known:  known,
		caches: &namespaceCaches{all: map[string]*namespaceCache{}},
	}
	for _, step := range []struct {
		name   string
		change func()
		want   string // part of the error; "" for none
	}{
		{"the peers are not known", func() {}, "Peers are not read yet"},
		{"nothing is known of a namespace", func() { close(peers.listed) }, "in the hub was not read yet"},
		{"the one for all members is not synced", func() {
			known["comity-a"], known["comity-a-to-b"] = namespaceState{known: true, uid: "1"}, namespaceState{known: true, problem: "absent"}
		}, "comity-a in the hub was not read yet"},
		{"all that exist are synced", func() {
			h.caches.all["comity-a"] = &namespaceCache{uid: "1"}
			h.caches.all["comity-a"].synced.Store(true)
		}, ""},
		{"another one is not synced", func() { known["comity-a-to-b"] = namespaceState{known: true, uid: "3"} }, "comity-a-to-b in the hub was not read yet"},
		{"that one goes, and never becomes synced", func() { known["comity-a-to-b"] = namespaceState{known: true, problem: "absent"} }, ""},
		{"one may not be read by this cluster", func() { known["comity-a-to-b"] = namespaceState{problem: "forbidden"} }, ""},
		{"one was made again", func() { known["comity-a"] = namespaceState{known: true, uid: "2"} }, "comity-a in the hub was not read yet"},
		{"that for all members was never read", func() { known["comity-a"] = namespaceState{problem: "refused"} }, "comity-a in the hub was not read yet"},
	} {
		step.change()
		switch err := h.Read(); {
		case step.want == "" && err != nil:
			t.Errorf("%s: got %v, want none", step.name, err)
		case step.want != "" && (err == nil || !strings.Contains(err.Error(), step.want)):
			t.Errorf("%s: got %v, want %q", step.name, err, step.want)
		}
	}
}
