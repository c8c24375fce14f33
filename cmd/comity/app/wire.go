// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	policycontroller "github.com/comity-mcs/comity/policies/controller"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/status"
	"github.com/comity-mcs/comity/sync/loop"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/peer"
	"github.com/comity-mcs/comity/webhook"
	"github.com/comity-mcs/comity/webhook/facts"
)

// wire joins the parts: peers and policies give facts to the judge, and the
// judge's verdicts go to webhook, publisher and status.
func wire(mgr ctrl.Manager, o Options, self identity, ready *health, log logr.Logger) error {
	peers := peer.New(peer.Options{
		Self: self.cluster, ClusterSet: self.set, Namespace: o.Namespace,
		Recorder: mgr.GetEventRecorder(model.FieldOwner), Registry: metrics.Registry, Log: log.WithName("peer"),
	})
	if err := peers.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up peers: %w", err)
	}
	policies, err := engine.New(engine.Options{})
	if err != nil {
		return fmt.Errorf("set up the policy engine: %w", err)
	}
	judge := facts.Judge{
		Reader:    facts.Reader{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Cluster: self.cluster, Peers: peers},
		Evaluator: policies,
	}
	publisher, conditions := newRecheck(), newRecheck()
	for _, r := range []*recheck{publisher, conditions} {
		if err := mgr.Add(r); err != nil {
			return err
		}
		peers.SubscribeNamespaces(r.namespace, func(model.ClusterID) { r.all() })
	}
	loaded := make(chan struct{})
	load := sync.OnceFunc(func() { close(loaded) })
	err = policycontroller.SetupWithManager(mgr, policycontroller.Options{
		// The first load, be it of no policy at all, is a change too.
		Engine: policies, Changed: func() { load(); publisher.all(); conditions.all() },
	})
	if err != nil {
		return fmt.Errorf("set up policies: %w", err)
	}
	if err := webhook.Register(mgr, webhook.Options{Judge: judge, Policies: policycontroller.Checker{Engine: policies}}); err != nil {
		return fmt.Errorf("set up the webhook: %w", err)
	}
	syncing, err := loop.SetupWithManager(mgr, loop.Options{
		Self: self.cluster, ClusterSet: self.set, Namespace: o.Namespace, Version: version, IdentityLabels: o.IdentityLabels,
		Peers: peers, Admitter: judge, PolicyLoaded: loaded, PolicyChanged: publisher.out, Workers: o.Workers, Registry: metrics.Registry,
	})
	if err != nil {
		return err
	}
	err = status.SetupWithManager(mgr, status.Options{
		Observations: syncing, Verdicts: judge, Changed: syncing.Changed(), Recheck: conditions.out,
	})
	if err != nil {
		return err
	}
	requireServing(mgr, policies, ready)
	return nil
}

// requireServing makes readiness mean that an admission request would be answered.
func requireServing(mgr ctrl.Manager, policies *engine.Engine, ready *health) {
	serving := mgr.GetWebhookServer().StartedChecker()
	ready.require(func() error { return serving(nil) })
	ready.require(func() error {
		if !policies.Loaded() {
			return errors.New("the policies are not loaded yet")
		}
		return nil
	})
}
