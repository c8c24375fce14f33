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
	"github.com/comity-mcs/comity/test/bench/simulated"
)

const (
	// calmFor is how long an agent is left alone before: the status of a Peer may be written some
	// seconds after all else.
	calmFor = 10 * time.Second
	// restFor is how long an idle agent is measured, changesFor how long changes are made;
	// both are half of that for the sizes that give the slopes.
	restFor    = 20 * time.Second
	changesFor = 40 * time.Second
	// ownPart is which part of the changes the measured member makes: one in so many.
	ownPart = 10
)

// Values of --topology.
const (
	topologyMesh = "mesh"
	topologyHub  = "hub"
	topologyBoth = "both"
)

// size is one clusterset of which one member is measured.
type size struct {
	hub                         bool
	members, exports, endpoints int
}

func (s size) String() string {
	in := "a mesh"
	if s.hub {
		in = "a hub"
	}
	return fmt.Sprintf("%d members of %s, %d exports, %d endpoints", s.members, in, s.exports, s.endpoints)
}

// sizes are the one that was asked for, and before it smaller ones: a tenth of everything,
// and the same with three times as many members, exports or endpoints, which gives the slopes.
// A hub changes what members cost, and nothing about exports and endpoints.
func (b *bench) sizes() (all []size) {
	full := size{false, b.members, b.scaleExports, b.scaleEndpoints}
	small := size{false, max(2, full.members/10), max(10, full.exports/10), max(10, full.endpoints/10)}
	more, exports, endpoints := small, small, small
	more.members *= 3
	exports.exports *= 3
	endpoints.endpoints *= 3
	if b.topology != topologyHub {
		all = append(all, small, more, exports, endpoints, full)
	}
	if b.topology != topologyMesh {
		small.hub, more.hub, full.hub = true, true, true
		all = append(all, small, more, full)
	}
	if !b.slopes {
		full.hub = false
		return slices.DeleteFunc(all, func(s size) bool { s.hub = false; return s != full })
	}
	return all
}

// scale measures one member of a large clusterset: how long it takes until it has everything,
// how long a change takes, and what the agent and the API server use. The others are simulated.
func (b *bench) scale(ctx context.Context) error {
	out := &result.Scale{Rate: b.rate, Load: result.Load1()}
	for _, size := range b.sizes() {
		b.say("%s", size)
		options := fleet.Options{Size: 1}
		if size.hub { // which is the second cluster, without an agent
			options = fleet.Options{Size: 2, Spare: true}
		}
		err := b.with(ctx, options, func(ctx context.Context, f *fleet.Fleet) error {
			point, err := b.scalePoint(ctx, f, size)
			out.Points = append(out.Points, point)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", size, err)
		}
		b.say("%s", out.Points[len(out.Points)-1])
		b.results.Scale = out
		if err := b.save(); err != nil {
			return err
		}
	}
	return nil
}

// scalePoint measures one size.
func (b *bench) scalePoint(ctx context.Context, f *fleet.Fleet, of size) (p result.ScalePoint, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &crowd{
		bench: b, member: f.Members[0], exchange: f.Members[len(f.Members)-1], hub: of.hub, restFor: restFor, changesFor: changesFor,
		world: simulated.World{Measured: "a", Set: fleet.ClusterSet, Members: of.members, Exports: of.exports, Endpoints: of.endpoints},
	}
	if of.members != b.members || of.exports != b.scaleExports || of.endpoints != b.scaleEndpoints {
		c.restFor, c.changesFor = restFor/2, changesFor/2
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.prepare(ctx); err != nil {
		return p, err
	}
	p = result.ScalePoint{Hub: of.hub, Members: of.members, Exports: of.exports, Endpoints: of.endpoints}
	for _, measure := range []func(context.Context, *result.ScalePoint) error{c.converge, c.rest, c.hold, c.change} {
		if err := measure(ctx, &p); err != nil {
			return p, err
		}
	}
	return p, nil
}

// converge starts the agent, which knows none of the others, and waits until it has everything.
func (c *crowd) converge(ctx context.Context, p *result.ScalePoint) error {
	begun := time.Now()
	if err := c.member.StartAgent(ctx); err != nil {
		return err
	}
	if err := c.member.WaitIdle(ctx, "import", c.world.Services()); err != nil {
		return err
	}
	if err := c.awaitSlices(ctx, c.member, "", c.world.Exports); err != nil {
		return err
	}
	if err := c.member.WaitIdle(ctx, "import", 0); err != nil {
		return err
	}
	writes, err := c.member.AgentWrites(begun)
	if err != nil {
		return err
	}
	for _, w := range writes {
		if w.Resource == "discovery.k8s.io/endpointslices" {
			p.Converged = max(p.Converged, w.Time.Sub(begun))
		}
	}
	elsewhere, err := c.hubWrites(begun)
	if err != nil {
		return err
	}
	p.Writes = len(writes) + len(elsewhere)
	c.say("the last slice after %v; %s", p.Converged.Round(time.Millisecond), counted(slices.Concat(writes, elsewhere)))
	agent, children, err := c.member.AgentUsage()
	p.ConvergedCPU = agent.CPU + children.CPU
	return err
}

// rest measures the agent while nothing changes.
func (c *crowd) rest(ctx context.Context, p *result.ScalePoint) error {
	if err := pause(ctx, calmFor); err != nil {
		return err
	}
	begun := time.Now()
	used, err := c.during(c.restFor, func() error { return pause(ctx, c.restFor) })
	if err != nil {
		return err
	}
	p.Rest = used
	writes, err := c.member.AgentWrites(begun)
	if err != nil {
		return err
	}
	elsewhere, err := c.hubWrites(begun)
	if err != nil {
		return err
	}
	writes = append(writes, elsewhere...)
	p.RestWrites = len(writes)
	if len(writes) > 0 {
		c.say("writes at rest: %s", counted(writes))
	}
	return nil
}

// hold measures memory and connections.
func (c *crowd) hold(ctx context.Context, p *result.ScalePoint) error {
	held, err := c.member.Memory(ctx)
	if err != nil {
		return err
	}
	p.Live, p.Resident = held.Live, held.Resident
	_, children, err := c.member.AgentUsage()
	if err != nil {
		return err
	}
	p.Children = children.Resident
	if p.Peak, err = c.member.Peak(); err != nil {
		return err
	}
	server, err := c.exchange.ServerUsage()
	if err != nil {
		return err
	}
	p.Server, p.ServerWatches, p.ServerWatchesNeeded = server.Resident, c.readers.Open(), c.readers.Needed
	address := c.exchange.RESTConfig().Host
	if c.server != nil {
		address = c.server.URL
	}
	p.Connections, err = c.member.Connections(address)
	return err
}

// during is what the agent with its children, and the API server of the exchange, use meanwhile.
func (c *crowd) during(d time.Duration, do func() error) (out result.ScaleUse, err error) {
	before, childrenBefore, err := c.member.AgentUsage()
	if err != nil {
		return out, err
	}
	serverBefore, err := c.exchange.ServerUsage()
	if err != nil {
		return out, err
	}
	if err := do(); err != nil {
		return out, err
	}
	after, children, err := c.member.AgentUsage()
	if err != nil {
		return out, err
	}
	server, err := c.exchange.ServerUsage()
	out.Agent = (after.CPU + children.CPU - before.CPU - childrenBefore.CPU).Seconds() / d.Seconds()
	out.Server = (server.CPU - serverBefore.CPU).Seconds() / d.Seconds()
	return out, err
}

// change makes changes at a constant rate, most of them in other members.
func (c *crowd) change(ctx context.Context, p *result.ScalePoint) error {
	in, out, err := c.observe(ctx)
	if err != nil {
		return err
	}
	p.Busy, err = c.during(c.changesFor, func() error { return c.changeAll(ctx, in, out) })
	if err != nil {
		return err
	}
	if p.In, err = in.result(ctx); err != nil {
		return fmt.Errorf("changes of other members: %w", err)
	}
	if p.Out, err = out.result(ctx); err != nil {
		return fmt.Errorf("changes of the measured member: %w", err)
	}
	p.Changes = len(in.took) + len(out.took)
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
