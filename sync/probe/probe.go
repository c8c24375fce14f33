// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
)

// Damping: how many rounds in a row must agree.
const (
	roundsToDown = 3
	roundsToUp   = 2
)

// Options configure a Prober; the zero value of a field is its default.
type Options struct {
	// Clock is the system's by default.
	Clock clock.WithTicker
	// Dial opens a connection and obeys its context; a net.Dialer's by default.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Interval is the pause between two rounds (10 s), Timeout how long one
	// connection may take (1 s), Concurrency how many are opened at once (64).
	Interval    time.Duration
	Timeout     time.Duration
	Concurrency int
	// Log gets a line when a cluster starts or ceases to answer.
	Log logr.Logger
}

// Prober probes the addresses that it watches. All methods may be called from any goroutine.
type Prober struct {
	opts Options

	mu      sync.Mutex
	watched map[types.NamespacedName]map[model.ClusterID]*state
	changed notify.Topic[types.NamespacedName]
}

// state is what is known of the endpoints of one cluster for one import.
type state struct {
	sample     []netip.AddrPort
	down, up   bool // neither until enough rounds agreed
	failed, ok int  // rounds in a row
}

// New returns a Prober that watches nothing.
func New(opts Options) *Prober {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Dial == nil {
		opts.Dial = (&net.Dialer{}).DialContext
	}
	if opts.Interval == 0 {
		opts.Interval = 10 * time.Second
	}
	if opts.Timeout == 0 {
		opts.Timeout = time.Second
	}
	if opts.Concurrency == 0 {
		opts.Concurrency = 64
	}
	return &Prober{
		opts: opts, watched: map[types.NamespacedName]map[model.ClusterID]*state{},
	}
}

// Watch replaces the targets of key; without targets nothing is watched for it. A
// cluster without a target is not watched, and so never down. A cluster that was
// watched before stays down or up; with other targets its rounds are counted again from zero.
func (p *Prober) Watch(key types.NamespacedName, targets map[model.ClusterID][]netip.AddrPort) {
	samples := make(map[model.ClusterID][]netip.AddrPort, len(targets))
	for id, all := range targets { // may be thousands; not under the lock
		if sample := sampleOf(all); len(sample) > 0 {
			samples[id] = sample
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(samples) == 0 {
		delete(p.watched, key)
		return
	}
	now := make(map[model.ClusterID]*state, len(samples))
	for id, sample := range samples {
		before := p.watched[key][id]
		switch {
		case before == nil:
			now[id] = &state{sample: sample}
		case slices.Equal(before.sample, sample):
			now[id] = before
		default:
			now[id] = &state{sample: sample, down: before.down, up: before.up}
		}
	}
	p.watched[key] = now
}

// Down lists the clusters of key that do not answer, sorted.
func (p *Prober) Down(key types.NamespacedName) []model.ClusterID {
	return p.list(key, func(s *state) bool { return s.down })
}

// Up lists the clusters of key that answer, sorted. One that was not probed often
// enough yet is neither down nor up.
func (p *Prober) Up(key types.NamespacedName) []model.ClusterID {
	return p.list(key, func(s *state) bool { return s.up })
}

func (p *Prober) list(key types.NamespacedName, is func(*state) bool) []model.ClusterID {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []model.ClusterID
	for id, s := range p.watched[key] {
		if is(s) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// Subscribe calls f after a round that changed Down or Up for that key. It must not
// block. The returned function ends the subscription.
func (p *Prober) Subscribe(f func(types.NamespacedName)) (cancel func()) {
	return p.changed.Subscribe(f)
}

// NeedLeaderElection is true: only the leader changes endpoints.
func (p *Prober) NeedLeaderElection() bool { return true }

// Start probes until ctx ends, and returns once no connection is being opened.
func (p *Prober) Start(ctx context.Context) error {
	for {
		timer := p.opts.Clock.NewTimer(p.opts.Interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
		answers := p.dialAll(ctx, p.targets())
		if ctx.Err() == nil { // else the connections were canceled
			p.count(answers)
		}
	}
}

// targets are all addresses of all samples, each once.
func (p *Prober) targets() []netip.AddrPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[netip.AddrPort]struct{}{}
	for _, clusters := range p.watched {
		for _, s := range clusters {
			for _, target := range s.sample {
				all[target] = struct{}{}
			}
		}
	}
	return slices.Collect(maps.Keys(all))
}

// dialAll says of each target whether it accepts a connection.
func (p *Prober) dialAll(ctx context.Context, targets []netip.AddrPort) map[netip.AddrPort]bool {
	accepts := make([]bool, len(targets))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(p.opts.Concurrency, len(targets)) {
		workers.Go(func() {
			for i := range next {
				accepts[i] = p.dial(ctx, targets[i])
			}
		})
	}
	for i := range targets {
		next <- i
	}
	close(next)
	workers.Wait()
	answers := make(map[netip.AddrPort]bool, len(targets))
	for i, target := range targets {
		answers[target] = accepts[i]
	}
	return answers
}

func (p *Prober) dial(ctx context.Context, target netip.AddrPort) bool {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	if ctx.Err() != nil {
		return false
	}
	connection, err := p.opts.Dial(ctx, "tcp", target.String())
	if err != nil {
		return false
	}
	_ = connection.Close() // it was open, and nothing is sent
	return true
}

// count counts one round and notifies of the clusters that it changed.
func (p *Prober) count(answers map[netip.AddrPort]bool) {
	p.mu.Lock()
	var flipped []types.NamespacedName
	for key, clusters := range p.watched {
		changed := false
		for id, s := range clusters {
			if s.add(answers) {
				changed = true
				p.opts.Log.Info("endpoints changed their answer", "namespace", key.Namespace, "name", key.Name, "cluster", id, "down", s.down)
			}
		}
		if changed {
			flipped = append(flipped, key)
		}
	}
	p.mu.Unlock()
	for _, key := range flipped {
		p.changed.Publish(key)
	}
}

// add adds one round; true if down changed. A sample that was added during the
// round was not probed, and is not counted.
func (s *state) add(answers map[netip.AddrPort]bool) bool {
	answered := false
	for _, target := range s.sample {
		answer, probed := answers[target]
		if !probed {
			return false
		}
		answered = answered || answer
	}
	if answered {
		s.ok, s.failed = s.ok+1, 0
	} else {
		s.ok, s.failed = 0, s.failed+1
	}
	down, up := s.down, s.up
	switch {
	case s.failed >= roundsToDown:
		s.down, s.up = true, false
	case s.ok >= roundsToUp:
		s.down, s.up = false, true
	}
	return s.down != down || s.up != up
}
