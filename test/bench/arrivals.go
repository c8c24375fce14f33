// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/bench/result"
	"github.com/comity-mcs/comity/test/bench/simulated"
)

// arrivals are changes that are under way, and how long those took that have arrived.
type arrivals struct {
	mu sync.Mutex
	// due are those of each export in the order in which they were made, and of which export an
	// address is.
	due  map[simulated.ExportID][]due
	of   map[string]simulated.ExportID
	took []time.Duration
}

type due struct {
	address string
	since   time.Time
}

func newArrivals() *arrivals {
	return &arrivals{due: map[simulated.ExportID][]due{}, of: map[string]simulated.ExportID{}}
}

// expect begins the time of a change.
func (a *arrivals) expect(export simulated.ExportID, address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.due[export] = append(a.due[export], due{address, time.Now()})
	a.of[address] = export
}

// arrive ends that of each change that a slice shows, and of those before it of the same
// export: the latest state is what is written.
func (a *arrivals) arrive(in arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range in.slice.Endpoints {
		address := in.slice.Endpoints[i].Addresses[0]
		export := a.of[address]
		shown := slices.IndexFunc(a.due[export], func(d due) bool { return d.address == address })
		for _, d := range a.due[export][:shown+1] {
			a.took = append(a.took, in.at.Sub(d.since))
			delete(a.of, d.address)
		}
		a.due[export] = a.due[export][shown+1:]
	}
}

// result waits until everything has arrived.
func (a *arrivals) result(ctx context.Context) (result.Quantiles, error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	for {
		a.mu.Lock()
		missing, took := len(a.of), a.took
		a.mu.Unlock()
		switch {
		case missing == 0 && len(took) > 0:
			return result.Distribution(took), nil
		case missing == 0:
			return result.Quantiles{}, errors.New("none was made")
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return result.Quantiles{}, fmt.Errorf("%d of %d have not arrived: %w", missing, missing+len(took), err)
		}
	}
}

// observe watches where changes arrive: those of others in the member, its own where it publishes.
func (c *crowd) observe(ctx context.Context) (in, out *arrivals, err error) {
	in, out = newArrivals(), newArrivals()
	follow := func(to *arrivals, events <-chan arrival) {
		for event := range events {
			to.arrive(event)
		}
	}
	imported, err := watch(ctx, c.member.Typed, "", model.LabelSourceCluster)
	if err != nil {
		return nil, nil, err
	}
	published, err := watch(ctx, c.exchange.Typed, model.ExchangeNamespace(c.world.Measured), "")
	if err != nil {
		return nil, nil, err
	}
	go follow(in, imported)
	go follow(out, published)
	return in, out, nil
}

// changeAll makes changes at the rate for as long as it takes, whether those before have
// arrived or not. Each is of another export, as long as there are enough.
func (c *crowd) changeAll(ctx context.Context, in, out *arrivals) error {
	own := c.exports(func(e simulated.Export) bool { return e.Of == 0 })
	others := c.exports(func(e simulated.Export) bool { return e.Of != 0 })
	group, groupCtx := errgroup.WithContext(ctx)
	tick := time.NewTicker(time.Second / time.Duration(c.rate))
	defer tick.Stop()
	total := int(c.changesFor.Seconds()) * c.rate
	for n := 1; n <= total && groupCtx.Err() == nil; n++ {
		<-tick.C
		to, e := in, others[n*stride%len(others)]
		if n%ownPart == 0 {
			to, e = out, own[n/ownPart%len(own)]
		}
		group.Go(func() error {
			to.expect(e.ID(), simulated.Address(n))
			return c.changeOne(groupCtx, e, n)
		})
	}
	return group.Wait()
}

// stride is a prime, so that changes reach all exports, and those next to each other rarely one Service.
const stride = 7919
