// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package endpointprobe checks by TCP whether the endpoints of a cluster are reachable from here.
//
// It takes addresses by key and cluster; it gives the clusters of a key of which none
// accepts a connection, the second signal beside the Lease that a cluster is lost. A result
// changes only after several rounds that agree. It sends no byte, opens each address once
// in a round, and a bounded number at once.
package endpointprobe

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

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
	// Dial opens a connection and obeys its context; a net.Dialer's by default.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Interval is how often a round begins (10 s), Timeout how long one connection may
	// take (1 s), Concurrency how many are opened at once (64), and Sample how many
	// endpoints of a cluster are probed for one key (3).
	Interval, Timeout   time.Duration
	Concurrency, Sample int
	// Strict: an endpoint answers only if it sends a byte, or closes a connection that was
	// closed from here. The kernel accepts connections also for a process that is frozen.
	Strict bool
	// Log gets a line when a cluster starts or ceases to answer.
	Log logr.Logger
}

// Prober probes the addresses that it watches. All methods may be called from any goroutine.
type Prober struct {
	opts Options

	mu      sync.Mutex
	watched map[types.NamespacedName]map[model.ClusterID]*state
	changed notify.Notifier
}

// state is what is known of the endpoints of one cluster for one import.
type state struct {
	sample []netip.AddrPort
	// answers is what enough rounds agreed on, once known is true.
	answers, known bool
	failed, ok     int // rounds in a row
}

// New returns a Prober that watches nothing.
func New(opts Options) *Prober {
	if opts.Dial == nil {
		opts.Dial = (&net.Dialer{}).DialContext
	}
	opts.Interval, opts.Timeout = cmp.Or(opts.Interval, 10*time.Second), cmp.Or(opts.Timeout, time.Second)
	opts.Concurrency, opts.Sample = cmp.Or(opts.Concurrency, 64), cmp.Or(opts.Sample, 3)
	return &Prober{opts: opts, watched: map[types.NamespacedName]map[model.ClusterID]*state{}}
}

// Watch replaces the targets of key; without targets nothing is watched for it. A
// cluster without a target is not watched, and nothing is known of it. A cluster that was
// watched before stays as it was found; with other targets its rounds are counted again from zero.
func (p *Prober) Watch(key types.NamespacedName, targets map[model.ClusterID][]netip.AddrPort) {
	now := make(map[model.ClusterID]*state, len(targets))
	for id, all := range targets { // may be thousands; not under the lock
		if sample := sampleOf(all, p.opts.Sample); len(sample) > 0 {
			now[id] = &state{sample: sample}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(now) == 0 {
		delete(p.watched, key)
		return
	}
	for id, s := range now {
		if before := p.watched[key][id]; before != nil && slices.Equal(before.sample, s.sample) {
			now[id] = before
		} else if before != nil {
			s.answers, s.known = before.answers, before.known
		}
	}
	p.watched[key] = now
}

// Answers says of each cluster of key whether it answers; nothing of one that was not probed
// often enough yet.
func (p *Prober) Answers(key types.NamespacedName) map[model.ClusterID]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[model.ClusterID]bool{}
	for id, s := range p.watched[key] {
		if s.known {
			out[id] = s.answers
		}
	}
	return out
}

// Changed notifies of each key for which a round changed Answers.
func (p *Prober) Changed() *notify.Notifier { return &p.changed }

// Start probes until ctx ends, and returns once no connection is being opened.
func (p *Prober) Start(ctx context.Context) error {
	begun := time.Now()
	for notify.Await(ctx, time.After(p.opts.Interval-time.Since(begun)%p.opts.Interval)) { // none follows a long round at once
		p.Round(ctx)
	}
	return nil
}

// Round probes all that is watched once.
func (p *Prober) Round(ctx context.Context) {
	p.mu.Lock()
	targets := sets.New[netip.AddrPort]()
	for _, clusters := range p.watched {
		for _, s := range clusters {
			targets.Insert(s.sample...)
		}
	}
	p.mu.Unlock()
	answers := p.Dial(ctx, targets)
	if ctx.Err() == nil { // else the connections were canceled
		p.count(answers)
	}
}

// Dial says of each target whether it accepts a connection.
func (p *Prober) Dial(ctx context.Context, targets sets.Set[netip.AddrPort]) map[netip.AddrPort]bool {
	var mu sync.Mutex
	var dialing errgroup.Group
	dialing.SetLimit(p.opts.Concurrency)
	answers := make(map[netip.AddrPort]bool, len(targets))
	for target := range targets {
		dialing.Go(func() error {
			accepts := p.dial(ctx, target)
			mu.Lock()
			defer mu.Unlock()
			answers[target] = accepts
			return nil
		})
	}
	_ = dialing.Wait() // nothing returns an error
	return answers
}

func (p *Prober) dial(ctx context.Context, target netip.AddrPort) bool {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	connection, err := p.opts.Dial(ctx, "tcp", target.String())
	if err != nil {
		return false
	}
	defer func() { _ = connection.Close() }()
	if !p.opts.Strict {
		return true
	}
	if half, can := connection.(interface{ CloseWrite() error }); can {
		_ = half.CloseWrite() // nothing is sent
	}
	deadline, _ := ctx.Deadline()
	_ = connection.SetReadDeadline(deadline) // an error shows when it is read
	count, err := connection.Read(make([]byte, 1))
	return count > 0 || !errors.Is(err, os.ErrDeadlineExceeded)
}

// count counts one round and notifies of the clusters that it changed.
func (p *Prober) count(answers map[netip.AddrPort]bool) {
	p.mu.Lock()
	flipped := sets.New[types.NamespacedName]()
	for key, clusters := range p.watched {
		for id, s := range clusters {
			if s.add(answers) {
				flipped.Insert(key)
				of := []any{"peer", id, "answers", s.answers}
				if key.Name != "" { // else they are not those of one import
					of = append(of, "namespace", key.Namespace, "name", key.Name)
				}
				p.opts.Log.Info("endpoints changed their answer", of...)
			}
		}
	}
	p.mu.Unlock()
	for key := range flipped {
		p.changed.Key(key)
	}
}

// add adds one round; true if that changed what is known. A sample that was added during the
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
	if s.failed < roundsToDown && s.ok < roundsToUp || s.known && s.answers == answered {
		return false
	}
	s.known, s.answers = true, answered
	return true
}

// sampleOf picks at most size of all, in an order of its own: those of the
// smallest hashes. So a restart picks the same, however they are listed; when
// others come or go most of the sample stays; and imports that share endpoints
// share the probes of them.
func sampleOf(all []netip.AddrPort, size int) []netip.AddrPort {
	hashes := map[netip.AddrPort]string{}
	for _, target := range all {
		if target.IsValid() && target.Port() != 0 {
			hashes[target] = model.Hash(target.String(), 8)
		}
	}
	sorted := slices.SortedFunc(maps.Keys(hashes), func(a, b netip.AddrPort) int {
		return cmp.Or(cmp.Compare(hashes[a], hashes[b]), a.Compare(b))
	})
	return sorted[:min(len(sorted), size)]
}
