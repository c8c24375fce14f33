// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"
	"time"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
)

// A join creates the Peers of a cluster one after the other, long after its agent started.
func TestAListWaitsForAPeerThatWasJustCreated(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	peer := func(added int, change func(*exchange.Published)) []exchange.Published {
		p := exchange.Published{Known: true, Member: model.Member{ID: "b", Added: at(added)}}
		change(&p)
		return []exchange.Published{p}
	}
	unread := func(*exchange.Published) {}
	for name, test := range map[string]struct {
		leading int
		peers   []exchange.Published
		want    int
	}{
		"no Peer":                                {-60, nil, -50},
		"one that exists since before the agent": {-5, peer(-3600, unread), 5},
		"one that was just created":              {-60, peer(-1, unread), 9},
		"one that was waited for":                {-60, peer(-11, unread), -1},
		"one that was read":                      {-60, peer(-1, func(p *exchange.Published) { p.Synced = true }), -50},
		"one that was removed":                   {-60, peer(-1, func(p *exchange.Published) { p.Removed = true }), -50},
		"a cluster without a Peer":               {-60, peer(-1, func(p *exchange.Published) { p.Known = false }), -50},
		"one by another clock":                   {-60, peer(3600, unread), -50},
	} {
		if got := FormsAt(at(test.leading), now, test.peers, 10*time.Second); !got.Equal(at(test.want)) {
			t.Errorf("%s: a list forms %v from now, want %d s", name, got.Sub(now), test.want)
		}
	}
}
