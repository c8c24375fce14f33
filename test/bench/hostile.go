// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/bench/fleet"
	"github.com/comity-mcs/comity/test/bench/result"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
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
	hostilePause = 100 * time.Millisecond
)

// hostileRow is what b does in one row; nil: nothing.
type hostileRow struct {
	name  string
	loops func(exchange string) *loops
}

var hostileRows = []hostileRow{
	{"no load", func(string) *loops { return nil }},
	{"a member that nobody reads", func(string) *loops { return &loops{rewrites: elsewhere, creates: elsewhere, flaps: elsewhere} }},
	{"a member within its budget", func(exchange string) *loops {
		return &loops{rewrites: elsewhere, creates: exchange, flaps: elsewhere, within: true}
	}},
	{"a hostile member", func(exchange string) *loops {
		return &loops{rewrites: exchange, creates: exchange, flaps: elsewhere, within: true}
	}},
	{"one that is not always valid", func(exchange string) *loops {
		return &loops{rewrites: exchange, creates: exchange, flaps: exchange, within: true}
	}},
}

// hostile measures how long a change takes from a to c, and what c's agent holds, in
// rows: b does nothing; then, in all others, as many writes as its API server can do, of
// which the others read none, those within its budget, those of a hostile member, or
// all. So the machine does the same work in these, but for what the agents do about it.
// Rows are measured in turns, each time with clusters of its own: what b published in
// one would be there in the next.
func (b *bench) hostile(ctx context.Context) error {
	out := &result.Hostile{For: b.hostileFor, Rounds: b.rounds, Load: result.Load1(), Phases: make([]result.HostilePhase, len(hostileRows))}
	took := make([][]time.Duration, len(hostileRows))
	for round := range b.rounds {
		for i, row := range hostileRows {
			err := b.with(ctx, fleet.Options{Size: 3}, func(ctx context.Context, f *fleet.Fleet) error {
				p, changes, err := b.hostileRow(ctx, f, row)
				if err != nil {
					return fmt.Errorf("%s: %w", row.name, err)
				}
				b.say("%s, %d of %d: %s", row.name, round+1, b.rounds, p)
				took[i] = append(took[i], changes...)
				before := out.Phases[i]
				out.Phases[i] = result.HostilePhase{
					Name: row.name, Took: result.Distribution(took[i]), Changes: len(took[i]),
					Attacks: before.Attacks + p.Attacks, Writes: before.Writes + p.Writes, Peak: max(before.Peak, p.Peak),
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	b.results.Hostile = out
	return nil
}

// hostileRow measures one row once.
func (b *bench) hostileRow(ctx context.Context, f *fleet.Fleet, row hostileRow) (p result.HostilePhase, took []time.Duration, err error) {
	attacker, to := f.Members[1], f.Members[2]
	w := &way{service: throughComity}
	if err := w.open(ctx, f); err != nil {
		return p, nil, err
	}
	// What b's agent published of its own is not measured, and it would delete
	// what the attack stores in its exchange namespaces.
	if err := errors.Join(settle(ctx, f), attacker.StopAgent(), yield(attacker)); err != nil {
		return p, nil, err
	}
	w.remote.arrived = w.remote.arrived[1:] // c alone
	w.local.arrived = nil
	a := &attack{member: attacker, exchange: model.ExchangeNamespace(model.ClusterID(attacker.ID()))}
	if err := errors.Join(attacker.CreateNamespace(ctx, elsewhere), a.export(ctx)); err != nil {
		return p, nil, err
	}
	beating, stop := context.WithCancel(ctx)
	defer stop()
	go a.beat(beating)
	if err := to.WaitIdle(ctx, "import", 0); err != nil {
		return p, nil, err
	}
	p, err = b.underLoad(ctx, to, w, a, row.loops(a.exchange))
	return p, w.remote.took, err
}

// yield has the control plane of a member take only the processor time that nobody else
// wants: elsewhere it has processors of its own.
func yield(m *fleet.Member) error {
	const lowest = 19
	return errors.Join(
		unix.Setpriority(unix.PRIO_PGRP, m.PID(controlplane.APIServer), lowest),
		unix.Setpriority(unix.PRIO_PGRP, m.PID(controlplane.Etcd), lowest),
	)
}

// loops are the namespaces in which b writes at full speed. If within, it also changes a
// small slice that the others read.
type loops struct {
	rewrites, creates, flaps string
	within                   bool
}

// underLoad measures changes for as long as one row takes. Without loops b does nothing.
func (b *bench) underLoad(ctx context.Context, to *fleet.Member, w *way, a *attack, in *loops) (result.HostilePhase, error) {
	var out result.HostilePhase
	if err := to.ResetPeak(); err != nil {
		return out, err
	}
	loading, stop := context.WithTimeout(ctx, b.hostileFor)
	defer stop()
	var load sync.WaitGroup
	if in != nil {
		load.Go(func() { a.rewrite(loading, in.rewrites, 1000) })
		load.Go(func() { a.rewrite(loading, in.rewrites, 100) })
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
