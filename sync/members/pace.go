// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/budget"
)

// How often a second, after how many at once, a peer causes work here by changes of all
// its exports: a member that is upgraded may write each of 10,000 records once. Those of
// one export and its slices are bounded by budget.ChangesPerSecond.
const (
	peerRate, peerBurst = 250, 10_000
	idleKeys            = 1024 // remembered at least before idle ones are dropped
)

// pacer publishes changed keys of peers. The first changes of a key pass at once;
// those that come too fast are published once, later.
type pacer struct {
	publish func(types.NamespacedName)
	now     func() time.Time
	after   func(time.Duration, func())

	mu      sync.Mutex
	peers   map[model.ClusterID]*rate.Limiter
	keys    map[paceKey]*paced
	slowed  map[model.ClusterID]*slowed
	sweepAt int
}

// slowed is when the changes of a peer had to wait, and the limit for which the last one
// had to.
type slowed struct {
	during budget.Episode
	limit  string
}

type paceKey struct {
	peer model.ClusterID
	key  types.NamespacedName
}

// paced is one key of a peer; waiting is true while a later publication is due.
type paced struct {
	tokens  *rate.Limiter
	waiting bool
}

func newPacer(publish func(types.NamespacedName)) *pacer {
	return &pacer{
		publish: publish, now: time.Now, after: func(d time.Duration, f func()) { time.AfterFunc(d, f) },
		peers: map[model.ClusterID]*rate.Limiter{}, keys: map[paceKey]*paced{}, slowed: map[model.ClusterID]*slowed{}, sweepAt: idleKeys,
	}
}

// changed publishes key, of which peer changed so many bytes, now or soon. It does not
// block.
func (p *pacer) changed(peer model.ClusterID, key types.NamespacedName, bytes int) {
	if p.reserve(paceKey{peer, key}, budget.ChangeCost(bytes)) {
		p.publish(key)
	}
}

// reserve reports whether k is to be published now; otherwise it will be.
func (p *pacer) reserve(k paceKey, cost int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	one, now := p.one(k), p.now()
	if one.waiting {
		p.slow(k.peer).during.Note(now)
		return false
	}
	ofKey, ofAll := one.tokens.ReserveN(now, cost).DelayFrom(now), p.all(k.peer).ReserveN(now, 1).DelayFrom(now)
	delay := max(ofKey, ofAll)
	if delay == 0 {
		return true
	}
	one.waiting = true
	slow := p.slow(k.peer)
	slow.during.Note(now)
	if slow.limit = fmt.Sprintf("%d changes of all exports per second", peerRate); ofKey > ofAll {
		slow.limit = fmt.Sprintf("%d changes of %s per second", budget.ChangesPerSecond, k.key)
	}
	p.after(delay, func() {
		p.mu.Lock()
		one.waiting = false
		p.mu.Unlock()
		p.publish(k.key)
	})
	return false
}

// waits reports whether a change of key by peer will be published later.
func (p *pacer) waits(peer model.ClusterID, key types.NamespacedName) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.keys[paceKey{peer, key}]
	return one != nil && one.waiting
}

// slowedBy is the limit for which changes of peer have had to wait for a while; empty if
// they have not.
func (p *pacer) slowedBy(peer model.ClusterID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slow := p.slowed[peer]; slow != nil && slow.during.Lasts(p.now()) {
		return slow.limit
	}
	return ""
}

// slow needs mu.
func (p *pacer) slow(peer model.ClusterID) *slowed {
	if p.slowed[peer] == nil {
		p.slowed[peer] = &slowed{}
	}
	return p.slowed[peer]
}

func (p *pacer) all(peer model.ClusterID) *rate.Limiter {
	if p.peers[peer] == nil {
		p.peers[peer] = rate.NewLimiter(peerRate, peerBurst)
	}
	return p.peers[peer]
}

func (p *pacer) one(k paceKey) *paced {
	if one := p.keys[k]; one != nil {
		return one
	}
	if len(p.keys) >= p.sweepAt {
		now := p.now()
		for k, one := range p.keys {
			if !one.waiting && one.tokens.TokensAt(now) >= budget.ChangeBurst {
				delete(p.keys, k)
			}
		}
		p.sweepAt = max(idleKeys, 2*len(p.keys))
	}
	one := &paced{tokens: rate.NewLimiter(budget.ChangesPerSecond, budget.ChangeBurst)}
	p.keys[k] = one
	return one
}
