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
// all parts of the agent until o.ShutdownDelay after asked ends, which is not an error.
func Run(asked context.Context, o Options, log logr.Logger) error {
	cfg, err := restConfig(o)
	if err != nil {
		return err
	}
	o.stopping = asked.Done()
	ctx, cancel := context.WithCancel(context.WithoutCancel(asked))
	defer cancel()
	defer context.AfterFunc(asked, func() { time.AfterFunc(o.ShutdownDelay, cancel) })()
	group, ctx := errgroup.WithContext(ctx)
	ready := &health{state: errStarting}
	group.Go(func() error { return ready.serve(ctx, o.HealthAddress) })
	group.Go(func() error { return start(ctx, cfg, o, ready, log) })
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// start waits for the CustomResourceDefinitions, sets up the manager and runs it.
func start(ctx context.Context, cfg *rest.Config, o Options, ready *health, log logr.Logger) error {
	served, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	// The process is not ready while it waits, nor directly after.
	ready.set(errors.New("checking for the CustomResourceDefinitions"))
	definitions := crdWatch{discovery: served, interval: o.Timing.AwaitDefinitions, log: log, report: func(missing error) {
		ready.set(cmp.Or(missing, errStarting))
	}}
	if err := definitions.wait(ctx); err != nil {
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
	leading, own := &leaderFence{now: time.Now, deadline: o.Timing.RenewDeadline}, &ownNamespace{name: o.Namespace, log: log}
	guard := transport.Wrappers(leading.guard, own.guard)
	mgr, err := newManager(cfg, scheme, o, leading.election, guard, log)
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	if err := own.watch(ctx, mgr.GetCache()); err != nil {
		return err
	}
	if err := (wiring{Manager: mgr, Options: o, self: self, guard: guard, ready: ready, log: log}).wire(); err != nil {
		return fmt.Errorf("set up the agent: %w", err)
	}
	definitions.log, definitions.interval, definitions.report = log, o.Timing.WatchDefinitions, ready.set
	if err := mgr.Add(definitions); err != nil {
		return err
	}
	ready.set(nil)
	return mgr.Start(ctx)
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
