// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/comity-mcs/comity/test/bench/fleet"
	"github.com/comity-mcs/comity/test/bench/result"
)

const (
	// endpointsPerSlice is what the figure is for.
	endpointsPerSlice = 10
	// slicesPerService keeps what an import costs, beside its slices, small.
	slicesPerService = 100
)

// memory measures what the agent of an importing cluster holds with half of the
// slices and with all of them: the difference is what slices cost, whatever the
// base is.
func (b *bench) memory(ctx context.Context) error {
	return b.with(ctx, fleet.Options{Size: 2}, func(ctx context.Context, f *fleet.Fleet) error {
		from, to := f.Members[0], f.Members[1]
		out := result.Memory{Endpoints: endpointsPerSlice, Load: result.Load1()}
		have, services := 0, max(2, b.slices/slicesPerService)
		for _, count := range []int{0, services / 2, services} {
			err := b.each(ctx, have, count, "services of slices", func(ctx context.Context, n int) error {
				name := fmt.Sprintf("many-%05d", n)
				for s := range slicesPerService {
					first := (n*slicesPerService + s) * endpointsPerSlice
					if err := from.CreateSlice(ctx, fleet.Slice(namespace, name, s, first, endpointsPerSlice)); err != nil {
						return err
					}
				}
				return from.Export(ctx, namespace, name)
			})
			if err != nil {
				return err
			}
			have = count
			if err := b.awaitSlices(ctx, to, namespace, count*slicesPerService); err != nil {
				return err
			}
			if err := settle(ctx, f); err != nil {
				return err
			}
			held, err := to.Memory(ctx)
			if err != nil {
				return err
			}
			b.say("%d slices: %.1f MiB live, %.1f MiB resident", count*slicesPerService, mib(held.Live), mib(held.Resident))
			out.Points = append(out.Points, result.MemoryPoint{Slices: count * slicesPerService, Live: held.Live, Resident: held.Resident})
		}
		b.results.Memory = &out
		return nil
	})
}

func mib(bytes int) float64 { return float64(bytes) / (1 << 20) }
