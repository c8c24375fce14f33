// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/comity-mcs/comity/test/bench/fleet"
	"github.com/comity-mcs/comity/test/bench/result"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
)

// namespaces of the imports, so that none is larger than what people have.
const namespaces = 20

// restart measures how long an agent takes that starts in an empty cluster with
// so many exports to import, and what agents write that start where everything
// is as it should be.
func (b *bench) restart(ctx context.Context) error {
	return b.with(ctx, fleet.Options{Size: 3, ExportOnly: true, Spare: true, AuditBodies: true}, func(ctx context.Context, f *fleet.Fleet) error {
		from, to, spare := f.Members[0], f.Members[1], f.Members[2]
		out := result.Restart{Imports: b.imports, Load: result.Load1()}
		if err := b.fill(ctx, f); err != nil {
			return err
		}
		writes, err := b.coldStart(ctx, from, to, &out)
		if err != nil {
			return err
		}
		for _, m := range []*fleet.Member{to, from} {
			b.say("a restart of the agent of %s", m.ID())
			took, writes, err := again(ctx, m, b.imports)
			if err != nil {
				return err
			}
			b.say("idle after %v, %d writes %s", took.Round(time.Millisecond), len(writes), counted(writes))
			out.Restarts = append(out.Restarts, result.Converged{Exporting: m == from, Took: took, Writes: len(writes)})
		}
		held, err := to.Memory(ctx)
		if err != nil {
			return err
		}
		out.Live, out.Resident = held.Live, held.Resident
		for _, m := range []*fleet.Member{to, from} {
			if err := m.StopAgent(); err != nil {
				return err
			}
		}
		if err := fleet.Join(ctx, f.Members); err != nil {
			return err
		}
		if out.Bare, err = b.bare(ctx, to.ID(), spare, writes); err != nil {
			return err
		}
		b.results.Restart = &out
		return nil
	})
}

// coldStart starts the importing agent, and gives what it wrote until all was idle.
func (b *bench) coldStart(ctx context.Context, from, to *fleet.Member, out *result.Restart) ([]controlplane.Write, error) {
	b.say("a cold start of the importing agent")
	begun := time.Now()
	if err := to.StartAgent(ctx); err != nil {
		return nil, err
	}
	// Nothing is listed meanwhile: that would cost the API server more than the imports do.
	for _, m := range []*fleet.Member{to, from} {
		if err := m.WaitIdle(ctx, "import", b.imports); err != nil {
			return nil, err
		}
	}
	if err := b.awaitSlices(ctx, to, "", b.imports); err != nil {
		return nil, err
	}
	writes, err := to.AgentWrites(begun)
	if err != nil {
		return nil, err
	}
	out.ColdWrites = len(writes)
	for _, w := range writes {
		out.ColdAll = max(out.ColdAll, w.Time.Sub(begun))
		if w.Resource == "discovery.k8s.io/endpointslices" {
			out.Cold = max(out.Cold, w.Time.Sub(begun))
		}
	}
	b.say("the last slice after %v, the last write after %v; %s", out.Cold.Round(time.Millisecond), out.ColdAll.Round(time.Millisecond), counted(writes))
	return writes, nil
}

// counted is how many writes there were of each kind.
func counted(writes []controlplane.Write) string {
	counts := map[string]int{}
	for _, w := range writes {
		counts[w.Verb+" "+w.Resource]++
	}
	var out []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%d × %s", counts[what], what))
	}
	return strings.Join(out, ", ")
}

// fill has the first cluster publish everything while the second has no agent.
func (b *bench) fill(ctx context.Context, f *fleet.Fleet) error {
	from, to := f.Members[0], f.Members[1]
	for n := range namespaces {
		for _, m := range f.Members {
			if err := m.CreateNamespace(ctx, fmt.Sprintf("bench-%02d", n)); err != nil {
				return err
			}
		}
	}
	if err := to.StopAgent(); err != nil {
		return err
	}
	b.say("exporting %d Services", b.imports)
	err := b.each(ctx, 0, b.imports, "Services", func(ctx context.Context, n int) error {
		in, name := fmt.Sprintf("bench-%02d", n%namespaces), fmt.Sprintf("service-%05d", n)
		if err := from.CreateSlice(ctx, fleet.Slice(in, name, 0, n, 1)); err != nil {
			return err
		}
		return from.Export(ctx, in, name)
	})
	if err != nil {
		return err
	}
	b.say("waiting until all of it is published")
	return from.WaitIdle(ctx, "import", b.imports)
}

// again restarts an agent and gives how long it took to look at everything, and
// what it wrote.
func again(ctx context.Context, m *fleet.Member, imports int) (time.Duration, []controlplane.Write, error) {
	if err := m.StopAgent(); err != nil {
		return 0, nil, err
	}
	begun := time.Now()
	if err := m.StartAgent(ctx); err != nil {
		return 0, nil, err
	}
	idle, err := m.IdleSince(ctx, time.Second/4, "import", imports)
	if err != nil {
		return 0, nil, err
	}
	writes, err := m.AgentWrites(begun)
	return idle.Sub(begun), writes, err
}
