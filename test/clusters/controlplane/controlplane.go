// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs Kubernetes clusters as plain processes on 127.0.0.1:
// etcd, the control plane, CoreDNS, and kwok in the place of kubelets. No Docker, no root.
//
// It takes cluster ids and options and gives running clusters, with real RBAC,
// certificates, service account tokens and an audit log. Pods are scheduled, get
// an address and become ready, but nothing runs in them. It never disables TLS
// verification, and signals only processes that it started.
package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/binaries"
	"github.com/comity-mcs/comity/test/clusters/process"
)

// Names of the components, for Kill, Stop, Start, Pause and Resume.
const (
	Etcd              = binaries.Etcd
	APIServer         = binaries.APIServer
	ControllerManager = binaries.ControllerManager
	Scheduler         = binaries.Scheduler
	CoreDNS           = binaries.CoreDNS
	Kwok              = binaries.Kwok
)

// startTimeout is for one component; an API server takes 3 s alone and more beside others on two cores.
const startTimeout = 90 * time.Second

// Options say which clusters to start. The zero value but for IDs is a full set.
type Options struct {
	// IDs are the cluster ids, in order of their networks.
	IDs []string
	// FirstNetwork numbers the network of the first cluster; default 1. See clusters.NetworkOf.
	FirstNetwork int
	// Dir keeps certificates, kubeconfigs, data and logs, one directory a cluster.
	// Default: a temporary one, which Close removes; a directory named here stays.
	Dir string
	// APIServerOnly leaves out all but etcd and kube-apiserver: cheap, for faults of many
	// members. There are no EndpointSlices but those a test writes, and no DNS.
	APIServerOnly bool
	// WithoutMCS leaves the MCS API's definitions out, and so CoreDNS.
	WithoutMCS bool
	// Manifests are applied before the cluster counts as ready, for example config/crd by clusters.Files.
	Manifests [][]byte
	// APIServerArgs are flags beside ours, as --feature-gates=X=true; a repeated flag overrides.
	APIServerArgs []string
	// Nodes per cluster, each in a zone of its own (<id>-1, <id>-2, ...); default 2.
	Nodes int
	// Family is that of Pods and Services: IPv4, the default, or both. API servers here listen on IPv4, and
	// refuse Services that have no address of it.
	Family clusters.Family
	// AuditBodies has Writes return the bodies of requests too.
	AuditBodies bool
}

// Cluster is one running control plane. It implements clusters.Cluster.
type Cluster struct {
	id        string
	number    int
	dir       string
	removeDir string // what Close removes besides; empty if the caller owns the directory
	options   Options
	network   clusters.Network
	paths     map[string]string
	ports     componentPorts
	pki       *authority
	config    *rest.Config
	// components in the order in which they start; they end in the opposite one.
	components []*process.Process
	ready      map[string]func(context.Context) error
	audited    audited
}

var _ clusters.Cluster = (*Cluster)(nil)

// Start starts all clusters at once and returns when every one is ready: the
// API server serves, and unless APIServerOnly its nodes are ready, controllers
// run and DNS answers. On error nothing is left running. The error has the end
// of the log of the component that failed.
func Start(ctx context.Context, options Options) ([]*Cluster, error) {
	if options.FirstNetwork == 0 {
		options.FirstNetwork = 1
	}
	if options.Nodes == 0 {
		options.Nodes = 2
	}
	if options.Family == clusters.IPv6 {
		return nil, fmt.Errorf("control planes as processes cannot have the family %s alone: expected %s or %s; kind clusters can", clusters.IPv6, clusters.IPv4, clusters.DualStack)
	}
	provider, err := binaries.New()
	if err != nil {
		return nil, err
	}
	paths, err := provider.Ensure(ctx, programs(options)...)
	if err != nil {
		return nil, err
	}
	base, temporary := options.Dir, ""
	if base == "" {
		if base, err = os.MkdirTemp("", "comity-clusters-"); err != nil {
			return nil, fmt.Errorf("make a directory for the clusters: %w", err)
		}
		temporary = base
	}
	free, err := choosePorts(len(options.IDs))
	if err != nil {
		return nil, err
	}
	all := make([]*Cluster, len(options.IDs))
	group, groupCtx := errgroup.WithContext(ctx)
	for i, id := range options.IDs {
		network, err := clusters.NetworkOf(options.FirstNetwork+i, cmp.Or(options.Family, clusters.IPv4))
		if err != nil {
			return nil, err
		}
		all[i] = &Cluster{
			id: id, number: options.FirstNetwork + i, dir: filepath.Join(base, id), removeDir: temporary,
			options: options, network: network, paths: paths, ports: free[i], ready: map[string]func(context.Context) error{},
		}
		group.Go(func() error {
			if err := all[i].start(groupCtx); err != nil {
				return fmt.Errorf("start cluster %s: %w", id, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, errors.Join(err, Close(all))
	}
	return all, nil
}

// Close closes several clusters; all are tried.
func Close(all []*Cluster) error {
	var errs []error
	for _, c := range all {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// programs are those that the options need.
func programs(o Options) []string {
	names := []string{Etcd, APIServer}
	if !o.APIServerOnly {
		names = append(names, ControllerManager, Scheduler, Kwok)
		if !o.WithoutMCS {
			names = append(names, CoreDNS)
		}
	}
	return names
}

// ID implements clusters.Cluster.
func (c *Cluster) ID() string { return c.id }

// Dir has the cluster's files: kubeconfig, pki, data, and <component>.log.
func (c *Cluster) Dir() string { return c.dir }

// Kubeconfig implements clusters.Cluster.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "kubeconfig") }

// RESTConfig implements clusters.Cluster.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// PeerServer implements clusters.Cluster: here everyone is on 127.0.0.1.
func (c *Cluster) PeerServer() string { return c.config.Host }

// Network implements clusters.Cluster.
func (c *Cluster) Network() clusters.Network { return c.network }

// DNSAddress implements clusters.Cluster.
func (c *Cluster) DNSAddress() string {
	if c.component(CoreDNS) == nil {
		return ""
	}
	return address(c.ports.dns)
}

// Close implements clusters.Cluster. The last of a set also removes the temporary directory.
func (c *Cluster) Close() error {
	var errs []error
	for i := len(c.components) - 1; i >= 0; i-- {
		// Nothing of it is wanted any more, so there is no reason to wait for a clean end.
		errs = append(errs, c.components[i].Kill())
	}
	if c.removeDir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
		_ = os.Remove(c.removeDir) // refuses until it is empty
	}
	return errors.Join(errs...)
}
