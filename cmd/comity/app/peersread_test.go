// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/comity-mcs/comity/sync/model"
)

type fakePeers struct {
	listed  chan struct{}
	members []model.Member
}

func (p *fakePeers) Listed() <-chan struct{} { return p.listed }
func (p *fakePeers) Members() []model.Member { return p.members }

func TestAReplicaIsReadyOnceItsPeersWereRead(t *testing.T) {
	peers, clk := &fakePeers{listed: make(chan struct{})}, clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	check := peersRead(peers, clk, 30*time.Second)
	for _, step := range []struct {
		name   string
		change func()
		want   string // "" for ready
	}{
		{"the Peers are not listed", func() {}, "the Peers are not read yet; waiting for at most 30s more"},
		{"peers are not read", func() {
			close(peers.listed)
			peers.members = []model.Member{{ID: "b"}, {ID: "c", Synced: true}, {ID: "d"}}
			clk.SetTime(time.Unix(10, 0))
		}, "peers are not read yet: b, d; waiting for at most 20s more"},
		{"one is left", func() { peers.members[0].Synced = true }, "peers are not read yet: d; waiting for at most 20s more"},
		{"all are read", func() { peers.members[2].Synced = true }, ""},
		{"a peer that joins later changes nothing", func() { peers.members = append(peers.members, model.Member{ID: "e"}) }, ""},
	} {
		step.change()
		got := ""
		if err := check(); err != nil {
			got = err.Error()
		}
		if got != step.want {
			t.Errorf("%s: got %q, want %q", step.name, got, step.want)
		}
	}
}

func TestAReplicaWithoutPeersIsReadyAtOnce(t *testing.T) {
	peers := &fakePeers{listed: make(chan struct{})}
	close(peers.listed)
	if err := peersRead(peers, clocktesting.NewFakePassiveClock(time.Unix(0, 0)), 30*time.Second)(); err != nil {
		t.Error(err)
	}
}

func TestAPeerThatCannotBeReadDelaysReadinessForAWhile(t *testing.T) {
	peers, clk := &fakePeers{listed: make(chan struct{}), members: []model.Member{{ID: "b"}}}, clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	check := peersRead(peers, clk, 30*time.Second)
	clk.SetTime(time.Unix(29, 0))
	if check() == nil {
		t.Error("ready after 29 s, with Secrets and peer not read")
	}
	clk.SetTime(time.Unix(30, 0))
	if err := check(); err != nil {
		t.Errorf("not ready after 30 s: %v", err)
	}
}
