// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/comity-mcs/comity/cmd/comity/app/fence"
	policycontroller "github.com/comity-mcs/comity/policies/controller"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/status"
	"github.com/comity-mcs/comity/sync/hub"
	"github.com/comity-mcs/comity/sync/localcluster"
	"github.com/comity-mcs/comity/sync/loop"
	"github.com/comity-mcs/comity/sync/loop/verdict"
	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/probe"
	"github.com/comity-mcs/comity/sync/report"
	"github.com/comity-mcs/comity/webhook"
	"github.com/comity-mcs/comity/webhook/facts"
)

// wire joins the parts: peers and policies give facts to the judge, the judge's
// verdicts go to webhook, publisher and status, and what came of it to the peers.
func wire(mgr ctrl.Manager, o Options, self identity, leading *fence.Fence, ready *health, log logr.Logger) error {
	here, hereChanged, err := setupHome(mgr, o)
	if err != nil {
		return err
	}
	peers := members.New(members.Options{
		Self: self.cluster, ClusterSet: self.set, Namespace: o.Namespace, LocalCluster: here.Get,
		StaleAfter: o.StaleAfter, LostAfter: o.LostAfter, DeletionHold: o.DeletionHold,
		Imported: func(ctx context.Context) (map[model.ClusterID][]types.NamespacedName, error) {
			return loop.Imported(ctx, mgr.GetClient())
		},
		Recorder: mgr.GetEventRecorder(model.FieldOwner), Registry: metrics.Registry, Log: log.WithName("peer"),
	})
	if err := peers.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up peers: %w", err)
	}
	law, err := setupPolicies(mgr, self, peers)
	if err != nil {
		return err
	}
	exchange, err := findExchange(mgr, o, self, peers, leading, log)
	if err != nil {
		return err
	}
	prober := probe.New(probe.Options{Log: log.WithName("probe")})
	if err := mgr.Add(prober); err != nil {
		return fmt.Errorf("set up probes: %w", err)
	}
	syncing, err := loop.SetupWithManager(mgr, loop.Options{
		Self: self.cluster, ClusterSet: self.set, Namespace: o.Namespace, Version: version, IdentityLabels: o.IdentityLabels,
		Exchange: exchange, Peers: peers, Workers: o.Workers, Registry: metrics.Registry,
		Admitter: law.verdicts, PolicyLoaded: law.loaded, PolicyChanged: law.publisher.out,
		LocalCluster: here.Get, LocalClusterChanged: hereChanged, LocalClusterKnown: here.Known(), Prober: prober,
		AddOn: !o.Import, MaintainSelectors: o.Selectors == selectorsMaintain, Takeover: o.Takeover == takeoverSveltos,
	})
	if err != nil {
		return err
	}
	reports, err := setupReports(mgr, o, self, peers, exchange, syncing, law.conditions)
	if err != nil {
		return err
	}
	err = status.SetupWithManager(mgr, status.Options{
		Observations: syncing, Verdicts: law.verdicts, Destinations: reports, ForeignImports: !o.Import,
		Changed: syncing.Changed(), Recheck: law.conditions.out,
	})
	if err != nil {
		return err
	}
	requireServing(mgr, law.policies, ready)
	return setupAgentInfo(mgr, o, self, log)
}

// setupAgentInfo has the leader describe itself on its Lease, if there is one.
func setupAgentInfo(mgr ctrl.Manager, o Options, self identity, log logr.Logger) error {
	if !o.LeaderElect {
		return nil
	}
	info, err := describe(o, self)
	if err != nil {
		return err
	}
	return mgr.Add(&agentInfo{
		reader: mgr.GetAPIReader(), writer: mgr.GetClient(), info: info, log: log.WithName("agent-info"),
		lease: types.NamespacedName{Namespace: o.Namespace, Name: model.LeaderLease},
	})
}

// setupHome finds out what this cluster is like, and tells when that changes.
func setupHome(mgr ctrl.Manager, o Options) (*localcluster.Watcher, <-chan event.GenericEvent, error) {
	pods, err := prefixes(o.PodCIDRs)
	if err != nil {
		return nil, nil, fmt.Errorf("--pod-cidrs: %w", err)
	}
	services, err := prefixes(o.ServiceCIDRs)
	if err != nil {
		return nil, nil, fmt.Errorf("--service-cidrs: %w", err)
	}
	here, err := localcluster.SetupWithManager(mgr, localcluster.Options{PodCIDRs: pods, ServiceCIDRs: services})
	if err != nil {
		return nil, nil, err
	}
	changed := make(chan event.GenericEvent, 1)
	here.Changed(func() {
		select {
		case changed <- event.GenericEvent{}:
		default: // it was told and is not read yet
		}
	})
	return here, changed, nil
}

// law is what decides about exports, and who has to ask again when it changes.
type law struct {
	policies              *engine.Engine
	loaded                <-chan struct{}
	verdicts              *verdict.Cache
	publisher, conditions *recheck
}

// setupPolicies makes policies, peers and what is stored here one judge, whom
// the webhook asks each time and everybody else only about what is new.
func setupPolicies(mgr ctrl.Manager, self identity, peers *members.Set) (*law, error) {
	policies, err := engine.New(engine.Options{})
	if err != nil {
		return nil, fmt.Errorf("set up the policy engine: %w", err)
	}
	judge := facts.Judge{
		Reader:    facts.Reader{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Cluster: self.cluster, Peers: peers},
		Evaluator: policies,
	}
	verdicts := verdict.New(verdict.Options{Admitter: judge, Reader: mgr.GetClient(), Policies: policies.Digest})
	publisher, conditions := newRecheck(), newRecheck()
	for _, r := range []*recheck{publisher, conditions} {
		if err := mgr.Add(r); err != nil {
			return nil, err
		}
	}
	again := func(namespace string) {
		verdicts.PeersChanged() // before anybody asks again
		publisher.namespace(namespace)
		conditions.namespace(namespace)
	}
	peers.SubscribeNamespaces(again, func(id model.ClusterID) {
		if verdicts.MemberChanged(id, peers.Members()) {
			again("")
		}
	})
	loaded := make(chan struct{})
	load := sync.OnceFunc(func() { close(loaded) })
	err = policycontroller.SetupWithManager(mgr, policycontroller.Options{
		// The first load, be it of no policy at all, is a change too.
		Engine: policies, Changed: func() { load(); publisher.all(); conditions.all() },
	})
	if err != nil {
		return nil, fmt.Errorf("set up policies: %w", err)
	}
	if err := webhook.Register(mgr, webhook.Options{Judge: judge, Policies: policycontroller.Checker{Engine: policies}}); err != nil {
		return nil, fmt.Errorf("set up the webhook: %w", err)
	}
	return &law{policies: policies, loaded: loaded, verdicts: verdicts, publisher: publisher, conditions: conditions}, nil
}

// setupReports tells the peers what came of their exports, and learns it of ours.
func setupReports(mgr ctrl.Manager, o Options, self identity, peers *members.Set, exchange *loop.Exchange, syncing *loop.Loop, conditions *recheck) (*report.Reporter, error) {
	opts := report.Options{
		Self: self.cluster, ClusterUID: self.uid, Namespace: o.Namespace, Peers: peers, Import: o.Import,
		Observations: syncing, Observed: syncing.Changed(), Interval: o.HeartbeatInterval,
		Registry: metrics.Registry, Changed: conditions.export,
	}
	if exchange != nil {
		opts.Exchange = report.Exchange{Client: exchange.Client, Cache: exchange.Cache, Problem: syncing.Problem, Changed: syncing.ExchangeChanged()}
	}
	return report.SetupWithManager(mgr, opts)
}

// findExchange sets up the hub if there is one; nil is this cluster's own API server.
func findExchange(mgr ctrl.Manager, o Options, self identity, peers *members.Set, leading *fence.Fence, log logr.Logger) (*loop.Exchange, error) {
	if o.ExchangeKubeconfig == "" {
		return nil, nil
	}
	shared, err := hub.New(hub.Options{
		Self: self.cluster, Kubeconfig: o.ExchangeKubeconfig, Namespace: o.Namespace,
		Scheme: mgr.GetScheme(), Peers: peers, Wrap: leading.Guard, Log: log.WithName("hub"),
	})
	if err != nil {
		return nil, fmt.Errorf("set up the exchange: %w", err)
	}
	if err := shared.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("set up the exchange: %w", err)
	}
	return shared.Exchange(), nil
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
