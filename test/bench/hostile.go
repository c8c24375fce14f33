// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/bench/fleet"
	"github.com/comity-mcs/comity/test/bench/result"
)

const (
	// hostileAddresses is how many addresses each of the 1,000 endpoints of the
	// hostile slice has: as many as are imported.
	hostileAddresses = 2
	// hostileRecords is how many ExportRecords the hostile member creates at most.
	hostileRecords = 50_000
	// elsewhere is a namespace of the hostile member that no other member reads.
	elsewhere = "bench-elsewhere"
	// hostilePause is the time between two measured changes.
	hostilePause = 150 * time.Millisecond
)

// hostile measures how long a change takes from a to c, and what c's agent holds,
// in phases: b does nothing; then, in all others, as many writes as its API server can
// do, of which the others read none, those within its budget, those of a hostile member,
// or all. So the machine does the same work in these, but for what the agents do about it.
func (b *bench) hostile(ctx context.Context) error {
	return b.with(ctx, fleet.Options{Size: 3}, func(ctx context.Context, f *fleet.Fleet) error {
		attacker, to := f.Members[1], f.Members[2]
		w := &way{service: throughComity}
		if err := w.open(ctx, f); err != nil {
			return err
		}
		// What b's agent published of its own is not measured, and it would delete
		// what the attack stores in its exchange namespaces.
		if err := errors.Join(settle(ctx, f), attacker.StopAgent()); err != nil {
			return err
		}
		w.remote.arrived = w.remote.arrived[1:] // c alone
		w.local.arrived = nil
		a := &attack{member: attacker, exchange: model.ExchangeNamespace(model.ClusterID(attacker.ID()))}
		if err := errors.Join(attacker.CreateNamespace(ctx, elsewhere), a.export(ctx)); err != nil {
			return err
		}
		go a.beat(ctx)
		out := &result.Hostile{For: b.hostileFor, Load: result.Load1()}
		for _, phase := range []struct {
			name  string
			loops *loops
		}{
			{"no load", nil},
			{"a member that nobody reads", &loops{rewrites: elsewhere, creates: elsewhere, flaps: elsewhere}},
			{"a member within its budget", &loops{rewrites: elsewhere, creates: a.exchange, flaps: elsewhere, within: true}},
			{"a hostile member", &loops{rewrites: a.exchange, creates: a.exchange, flaps: elsewhere, within: true}},
			{"one that is not always valid", &loops{rewrites: a.exchange, creates: a.exchange, flaps: a.exchange, within: true}},
		} {
			if err := settleMember(ctx, to); err != nil {
				return err
			}
			p, err := b.underLoad(ctx, to, w, a, phase.loops)
			if err != nil {
				return fmt.Errorf("%s: %w", phase.name, err)
			}
			p.Name = phase.name
			out.Phases = append(out.Phases, p)
			b.say("%s: %s", phase.name, p)
		}
		b.results.Hostile = out
		return nil
	})
}

func settleMember(ctx context.Context, m *fleet.Member) error { return m.WaitIdle(ctx, "import", 0) }

// loops are the namespaces in which b writes at full speed. If within, it also changes a
// small slice that the others read.
type loops struct {
	rewrites, creates, flaps string
	within                   bool
}

// underLoad measures changes for as long as one phase takes. Without loops b does nothing.
func (b *bench) underLoad(ctx context.Context, to *fleet.Member, w *way, a *attack, in *loops) (result.HostilePhase, error) {
	var out result.HostilePhase
	if err := to.ResetPeak(); err != nil {
		return out, err
	}
	loading, stop := context.WithTimeout(ctx, b.hostileFor)
	defer stop()
	var load sync.WaitGroup
	a.writes.Store(0)
	if in != nil {
		load.Go(func() { a.rewrite(loading, in.rewrites) })
		load.Go(func() { a.rewrite(loading, in.rewrites) })
		load.Go(func() { a.create(loading, in.creates) })
		load.Go(func() { a.flap(loading, in.flaps) })
		if in.within {
			load.Go(func() { a.budget(loading) })
		}
	}
	begun := time.Now()
	w.remote.took = nil
	for loading.Err() == nil {
		if err := w.change(ctx); err != nil {
			stop()
			load.Wait()
			return out, err
		}
		time.Sleep(hostilePause)
	}
	load.Wait()
	writes, err := to.AgentWrites(begun)
	if err != nil {
		return out, err
	}
	out.Changes, out.Took = len(w.remote.took), result.Distribution(w.remote.took)
	out.Attacks, out.Writes = int(a.writes.Load()), len(writes)
	out.Peak, err = to.Peak()
	return out, err
}
