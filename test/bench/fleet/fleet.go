// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package fleet starts control planes with Comity beside each, all joined, for
// the benchmark to measure.
//
// It takes cluster ids and a directory of its own; it gives members that make
// exports, count the agent's writes and read its metrics. Only etcd and the API
// server of a cluster run, so nothing but agents and benchmark write to it. It
// measures nothing.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters/binaries"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/clusters/ports"
	"github.com/comity-mcs/comity/test/install"
)

const (
	// ClusterSet is the one that all belong to.
	ClusterSet = "bench"
	// readyTimeout bounds the start of one agent.
	readyTimeout = 2 * time.Minute
)

// Addresses are where endpoints of the benchmark are.
var Addresses = netip.MustParsePrefix("10.96.0.0/12")

// Fleet is joined clusters with Comity in each.
type Fleet struct {
	Members  []*Member
	dir      string
	clusters []*controlplane.Cluster
}

// Options configure a Fleet.
type Options struct {
	// Size is how many clusters there are, called a, b, c and so on.
	Size int
	// Agent is the program to measure; built if empty.
	Agent string
	// ExportOnly leaves the first cluster without imports of its own exports.
	ExportOnly bool
	// Spare leaves the last cluster alone: its agent does not run, and it is joined by Join.
	Spare bool
	// AuditBodies has Writes of the members return the bodies of requests too.
	AuditBodies bool
	// Say is told of progress.
	Say func(format string, args ...any)
}

// Start starts clusters and agents and joins each with every other. What was
// started is in the Fleet also beside an error, for Close to end.
func Start(ctx context.Context, o Options) (*Fleet, error) {
	f := &Fleet{}
	var err error
	if f.dir, err = os.MkdirTemp("", "comity-bench-"); err != nil {
		return f, fmt.Errorf("make a directory for the benchmark: %w", err)
	}
	kubectl, err := install.Kubectl(ctx)
	if err != nil {
		return f, err
	}
	if o.Agent == "" {
		o.Say("go build ./cmd/comity")
		o.Agent = filepath.Join(f.dir, "comity")
		if err := install.Build(ctx, o.Agent); err != nil {
			return f, err
		}
	}
	o.Say("starting %d clusters", o.Size)
	ids := make([]string, o.Size)
	for i := range ids {
		ids[i] = string(rune('a' + i))
	}
	f.clusters, err = controlplane.Start(ctx, controlplane.Options{IDs: ids, Dir: filepath.Join(f.dir, "clusters"), APIServerOnly: true, AuditBodies: o.AuditBodies})
	if err != nil {
		return f, err
	}
	o.Say("installing Comity in each and joining them")
	if err := f.install(ctx, o, kubectl); err != nil {
		return f, err
	}
	joined := f.Members
	if o.Spare {
		last := len(joined) - 1
		if err := joined[last].StopAgent(); err != nil {
			return f, err
		}
		joined = joined[:last]
	}
	return f, Join(ctx, joined)
}

func (f *Fleet) install(ctx context.Context, o Options, kubectl string) error {
	free, err := ports.Free(install.PortsPerAgent * len(f.clusters))
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for i, c := range f.clusters {
		m, err := newMember(c, filepath.Join(f.dir, "agents", c.ID()))
		if err != nil {
			return err
		}
		f.Members = append(f.Members, m)
		own := free[i*install.PortsPerAgent : (i+1)*install.PortsPerAgent]
		var flags []string
		if i == 0 && o.ExportOnly {
			flags = append(flags, "--import=false")
		}
		group.Go(func() error { return m.install(groupCtx, o.Agent, kubectl, own, flags) })
	}
	return group.Wait()
}

// Join joins each of the members with every other.
func Join(ctx context.Context, members []*Member) error {
	for i, m := range members {
		for _, other := range members[:i] {
			if err := install.Join(ctx, nil, []join.Cluster{other.side(), m.side()}, join.Options{}); err != nil {
				return fmt.Errorf("join %s and %s: %w", other.ID(), m.ID(), err)
			}
		}
	}
	return nil
}

// side is how m takes part in a join.
func (m *Member) side() join.Cluster {
	return join.Cluster{
		ID: model.ClusterID(m.ID()), Set: ClusterSet, Namespace: install.Namespace, ServiceAccount: install.Account,
		RESTConfig: m.RESTConfig(), Server: m.PeerServer(), AcceptedCIDRs: []netip.Prefix{Addresses},
	}
}

// Versions names the programs that the clusters run.
func (f *Fleet) Versions() (string, error) {
	api, err := f.Members[0].Typed.Discovery().ServerVersion()
	if err != nil {
		return "", fmt.Errorf("ask for the API server's version: %w", err)
	}
	return fmt.Sprintf("kube-apiserver %s, etcd %s", api.GitVersion, binaries.EtcdVersion), nil
}

// Close ends everything and removes what it left on disk.
func (f *Fleet) Close() error {
	var errs []error
	for _, m := range f.Members {
		if m.agent != nil {
			errs = append(errs, m.agent.Kill())
		}
	}
	return errors.Join(append(errs, controlplane.Close(f.clusters), os.RemoveAll(f.dir))...)
}
