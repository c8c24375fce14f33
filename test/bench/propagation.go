// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/comity-mcs/comity/test/bench/fleet"
	"github.com/comity-mcs/comity/test/bench/result"
)

const (
	namespace = "bench"
	// These are the Services whose slices are copied: by Comity to the other
	// clusters and to the own import, by the relay to either or to both.
	throughComity, throughRelay, throughLocalRelay, throughFullRelay = "comity", "relay", "local-relay", "full-relay"
)

// propagation measures with more and more exports between two clusters, then
// with one export among more clusters.
func (b *bench) propagation(ctx context.Context) error {
	b.say("with %s exports, then among %s clusters", list(b.exports), list(b.clusters))
	exports := slices.Sorted(slices.Values(b.exports))
	if len(exports) > 0 {
		if err := b.with(ctx, fleet.Options{Size: 2}, func(ctx context.Context, f *fleet.Fleet) error { return b.carry(ctx, f, exports) }); err != nil {
			return err
		}
	}
	for _, n := range slices.Sorted(slices.Values(b.clusters)) {
		if n == 2 && slices.Contains(exports, 1) {
			continue // measured already
		}
		if err := b.with(ctx, fleet.Options{Size: n}, func(ctx context.Context, f *fleet.Fleet) error { return b.carry(ctx, f, []int{1}) }); err != nil {
			return err
		}
	}
	return nil
}

// carry measures one fleet, with as many exports as asked, one after the other.
func (b *bench) carry(ctx context.Context, f *fleet.Fleet, exports []int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := startRelay(ctx, f)
	if err != nil {
		return err
	}
	comity, relay, local, full := &way{service: throughComity}, &way{service: throughRelay}, &way{service: throughLocalRelay}, &way{service: throughFullRelay}
	ways := []*way{comity, relay, local, full}
	for _, w := range ways {
		if err := w.open(ctx, f); err != nil {
			return err
		}
	}
	changes, loaded := max(20, b.changes*2/len(f.Members)), 1
	for _, n := range exports {
		if err := b.load(ctx, f, loaded, n); err != nil {
			return err
		}
		loaded = n
		b.say("%d changes in each way, %d exports, %d clusters", b.warmup+changes, n, len(f.Members))
		if err := b.changeAll(ctx, r, ways, b.warmup); err != nil {
			return err
		}
		load, begun := result.Load1(), time.Now()
		if err := b.changeAll(ctx, r, ways, changes); err != nil {
			return err
		}
		writes, err := writesOf(f, begun)
		if err != nil {
			return err
		}
		b.results.AddPropagation(result.Propagation{
			Clusters: len(f.Members), Exports: n, Changes: changes, Load: load,
			Remote: comparison(comity.remote, relay.remote, full.remote),
			Local:  comparison(comity.local, local.local, full.local),
			Writes: float64(len(writes)) / float64(changes),
		})
		b.say("%s", b.results.Propagation[len(b.results.Propagation)-1])
		if err := b.save(); err != nil {
			return err
		}
	}
	return nil
}

func comparison(comity, relay, full route) result.Comparison {
	return result.Comparison{Comity: result.Distribution(comity.took), Relay: result.Distribution(relay.took), Full: result.Distribution(full.took)}
}

// changeAll makes changes on all ways in turn, so that the other load of the machine
// meets all of them. The pause lets writes that nobody waits for end.
func (b *bench) changeAll(ctx context.Context, r *relay, ways []*way, changes int) error {
	for _, w := range ways {
		w.remote.took, w.local.took = nil, nil
	}
	said := time.Now()
	for n := range changes {
		for _, w := range ways {
			if err := errors.Join(w.change(ctx), r.failure()); err != nil {
				return fmt.Errorf("change %d through %s: %w", n+1, w.service, err)
			}
			time.Sleep(b.pause)
		}
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			b.say("%d of %d", n+1, changes)
		}
	}
	return nil
}
