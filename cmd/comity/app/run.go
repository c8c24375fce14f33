// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package app runs the agent. It reads flags, waits for the
// CustomResourceDefinitions, reads the identity of the cluster, and connects the
// packages of Comity in one controller-runtime manager.
//
// It is the only package that may import all others. Run returns when its context
// ends, or after an error that a restart may resolve. It never exits the process.
// Call it once in a process, because metrics and controller names are global.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/comity/install"
)

// errStarting is the reason why a process is not ready that waits for nothing else.
var errStarting = errors.New("starting")

// Run serves health probes, waits for the CustomResourceDefinitions, and then runs
// all parts of the agent until ctx ends. The end of ctx is not an error.
func Run(ctx context.Context, o Options, log logr.Logger) error {
	cfg, err := restConfig(o)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	ready := &health{}
	starting := newCell(errStarting)
	ready.require(starting.get) // until start has set up the manager
	group.Go(func() error { return ready.serve(ctx, o.HealthAddress) })
	group.Go(func() error { return start(ctx, cfg, o, ready, starting, log) })
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// start waits for the CustomResourceDefinitions, sets up the manager and runs it.
func start(ctx context.Context, cfg *rest.Config, o Options, ready *health, starting *cell, log logr.Logger) error {
	served, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	if err := waitForCRDs(ctx, served, o.Timing.AwaitDefinitions, starting, log); err != nil {
		return err
	}
	scheme := newScheme()
	reader, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	self, err := findIdentity(ctx, reader, o)
	if err != nil {
		return err
	}
	if self.uid, err = findUID(ctx, reader); err != nil {
		return err
	}
	// The key is not "cluster", because that is the id of a peer in other lines.
	log = log.WithValues("self", self.cluster)
	log.Info("starting", "clusterset", self.set, "version", version)
	leading, own := newLeaderFence(o.Timing.RenewDeadline), &ownNamespace{name: o.Namespace, log: log}
	mgr, err := newManager(cfg, scheme, o, leading, own, log)
	if err != nil {
		return err
	}
	if err := own.watch(ctx, mgr.GetCache()); err != nil {
		return err
	}
	guard := transport.Wrappers(leading.guard, own.guard)
	if err := wire(mgr, o, self, guard, ready, log); err != nil {
		return err
	}
	defined := newCell(nil)
	ready.require(defined.get)
	if err := mgr.Add(crdWatch{discovery: served, interval: o.Timing.WatchDefinitions, log: log, report: defined.set}); err != nil {
		return fmt.Errorf("set up the watch of CustomResourceDefinitions: %w", err)
	}
	starting.set(nil)
	return mgr.Start(ctx)
}

// waitForCRDs waits until no definition is missing. The process is not ready
// meanwhile, nor directly after.
func waitForCRDs(ctx context.Context, served discovery.DiscoveryInterface, interval time.Duration, starting *cell, log logr.Logger) error {
	starting.set(errors.New("checking for the CustomResourceDefinitions"))
	return crdWatch{discovery: served, interval: interval, log: log, report: func(missing error) {
		starting.set(cmp.Or(missing, errStarting))
	}}.wait(ctx)
}

// restConfig returns the configuration of --kubeconfig, or of the service account
// of the Pod.
func restConfig(o Options) (*rest.Config, error) {
	cfg, err := install.RESTConfig(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = "comity/" + version
	// API priority and fairness limits the requests. A limit of the client would
	// only delay the first reconciliation of a large cluster.
	cfg.QPS = -1
	return cfg, nil
}
