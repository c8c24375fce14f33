// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package app turns options into a running agent: it reads flags, waits for the
// CustomResourceDefinitions, finds out which cluster this is, and joins the
// packages of Comity in one controller-runtime manager.
//
// It is the only package that may import all others. Run returns when its
// context ends or when something failed that a restart may mend, and never exits
// the process. A process runs it once: metrics and controller names are the process's.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errStarting is why a process is not ready that waits for nothing in particular.
var errStarting = errors.New("starting")

// Run serves health probes at once, waits for the CustomResourceDefinitions, and
// then runs every part of the agent until ctx ends, which is no error.
func Run(ctx context.Context, o Options, log logr.Logger) error {
	cfg, err := restConfig(o)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	ready := &health{}
	starting := newCell(errStarting)
	ready.require(starting.get) // until all that has to be ready has said so
	group.Go(func() error { return ready.serve(ctx, o.HealthAddress) })
	group.Go(func() error { return start(ctx, cfg, o, ready, starting, log) })
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// start brings up the manager once there is something to manage.
func start(ctx context.Context, cfg *rest.Config, o Options, ready *health, starting *cell, log logr.Logger) error {
	served, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	if err := waitForCRDs(ctx, served, starting, log); err != nil {
		return err
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}
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
	// Not under "cluster", which in a line about a peer is the peer.
	log = log.WithValues("self", self.cluster)
	log.Info("starting", "clusterset", self.set, "version", version)
	leading := newLeaderFence()
	mgr, err := newManager(cfg, scheme, o, leading, log)
	if err != nil {
		return err
	}
	if err := wire(mgr, o, self, leading, ready, log); err != nil {
		return err
	}
	defined := newCell(nil)
	ready.require(defined.get)
	if err := mgr.Add(crdWatch{discovery: served, log: log, report: defined.set}); err != nil {
		return fmt.Errorf("set up the watch of CustomResourceDefinitions: %w", err)
	}
	starting.set(nil)
	return mgr.Start(ctx)
}

// waitForCRDs keeps the process alive and not ready while kinds are missing, and
// not ready after that.
func waitForCRDs(ctx context.Context, served discovery.DiscoveryInterface, starting *cell, log logr.Logger) error {
	starting.set(errors.New("looking for the CustomResourceDefinitions"))
	return crdWait{discovery: served, log: log, report: func(missing error) {
		starting.set(cmp.Or(missing, errStarting))
	}}.wait(ctx)
}

// restConfig reads --kubeconfig, or the Pod's service account.
func restConfig(o Options) (*rest.Config, error) {
	var (
		cfg *rest.Config
		err error
	)
	if o.Kubeconfig == "" {
		if cfg, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("no --kubeconfig given and not running in a Pod: %w", err)
		}
	} else if cfg, err = clientcmd.BuildConfigFromFlags("", o.Kubeconfig); err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", o.Kubeconfig, err)
	}
	cfg.UserAgent = "comity/" + version
	// The API server's priority and fairness is the limit; a client-side one
	// would only delay the first pass over a large cluster.
	cfg.QPS = -1
	return cfg, nil
}
