// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/clusters/ports"
	"github.com/comity-mcs/comity/test/install"
)

// agentTimeout bounds how long Comity may take to become ready: about two
// seconds, of which most is the load of three of them at once.
const agentTimeout = 60 * time.Second

// processes runs control planes and Comity as processes: no Docker, no root.
type processes struct {
	world    *World
	clusters []*controlplane.Cluster
	ports    map[string][]int // of the agents, by cluster id

	mu     sync.Mutex
	agents map[string]*install.Agent // by cluster id
}

func (p *processes) binary() string { return p.world.path("bin", "comity") }

func (p *processes) build(ctx context.Context) error {
	p.world.Out.Command("go", "build", "-o", p.binary(), "./cmd/comity")
	return p.world.Out.Wait("go build ./cmd/comity", func() error { return install.Build(ctx, p.binary()) })
}

func (p *processes) start(ctx context.Context, ids []string) ([]clusters.Cluster, error) {
	err := p.world.Out.Wait("the clusters start", func() (err error) {
		p.clusters, err = controlplane.Start(ctx, controlplane.Options{IDs: ids, Dir: p.world.path("clusters")})
		return err
	})
	if err != nil {
		return nil, err
	}
	// All at once, so that no two agents get the same.
	free, err := ports.Free(len(ids) * install.PortsPerAgent)
	if err != nil {
		return nil, err
	}
	p.ports = map[string][]int{}
	for i, id := range ids {
		p.ports[id] = free[i*install.PortsPerAgent : (i+1)*install.PortsPerAgent]
	}
	return asClusters(p.clusters), nil
}

func (p *processes) install(ctx context.Context) error {
	return p.world.Out.Wait("Comity is installed", func() error {
		group, ctx := errgroup.WithContext(ctx)
		for _, m := range p.world.Members {
			group.Go(func() error {
				if err := p.installOne(ctx, m); err != nil {
					return fmt.Errorf("install Comity in %s: %w", m.ID(), err)
				}
				return nil
			})
		}
		return group.Wait()
	})
}

func (p *processes) installOne(ctx context.Context, m *Member) error {
	agent, err := install.Prepare(ctx, install.Target{
		Cluster: m.Cluster, Set: Set, Kubectl: p.world.kubectl, Dir: p.world.path("comity", m.ID()), Ports: p.ports[m.ID()],
	}, p.binary())
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.agents[m.ID()] = agent
	p.mu.Unlock()
	if err := agent.Start(); err != nil {
		return err
	}
	return agent.WaitReady(ctx, agentTimeout)
}

// join does what `kubectl comity join` does once its checks, which need Pods, are done.
func (p *processes) join(ctx context.Context) error {
	w := p.world
	for i, a := range w.Members {
		for _, b := range w.Members[i+1:] {
			made := 0
			opts := join.Options{Progress: func(s join.Step) {
				if s.Verb == join.Created {
					made++
				}
			}}
			err := w.Out.Wait("join", func() error { return install.Join(ctx, nil, []join.Cluster{side(a), side(b)}, opts) })
			if err != nil {
				return fmt.Errorf("join %s and %s: %w", a.ID(), b.ID(), err)
			}
			w.Out.Output(fmt.Sprintf("%s and %s joined: %d objects made", a.ID(), b.ID(), made))
		}
	}
	return nil
}

// side is how a takes part in a join.
func side(a *Member) join.Cluster {
	return join.Cluster{
		ID: model.ClusterID(a.ID()), Set: Set, Namespace: install.Namespace, ServiceAccount: install.Account,
		RESTConfig: a.RESTConfig(), Server: a.PeerServer(), AcceptedCIDRs: a.Network().PodCIDRs,
	}
}

func (p *processes) place() string { return "as a process beside each API server" }

func (p *processes) close() error {
	var errs []error
	for _, agent := range p.agents {
		// The clusters go with it, so there is nothing to leave in order.
		errs = append(errs, agent.Kill())
	}
	return errors.Join(append(errs, controlplane.Close(p.clusters))...)
}

func (p *processes) logs(id string) string { return "less " + p.world.path("comity", id, "comity.log") }

func (p *processes) tail(_ context.Context, id string) string {
	if agent := p.agents[id]; agent != nil {
		return agent.LogTail(15)
	}
	return "not started"
}
