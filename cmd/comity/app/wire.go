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
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	policycontroller "github.com/comity-mcs/comity/policies/controller"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/status"
	"github.com/comity-mcs/comity/sync/controllers"
	"github.com/comity-mcs/comity/sync/hub"
	"github.com/comity-mcs/comity/sync/localcluster"
	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/probe"
	"github.com/comity-mcs/comity/webhook"
	"github.com/comity-mcs/comity/webhook/facts"
)

// wire connects the parts of the agent. Policies are evaluated with what the peers
// publish. The webhook and the controllers use the results. The status controller
// writes what the controllers report.
func wire(mgr ctrl.Manager, o Options, self identity, leading *leaderFence, ready *health, log logr.Logger) error {
	local, err := setupLocalCluster(mgr, o)
	if err != nil {
		return err
	}
	peers := members.New(members.Options{
		Self: self.cluster, ClusterSet: self.set, Namespace: o.Namespace, LocalCluster: local.Get,
		StaleAfter: o.StaleAfter, LostAfter: o.LostAfter, DeletionHold: o.DeletionHold,
		Imported: func(ctx context.Context) (map[model.ClusterID][]types.NamespacedName, error) {
			return controllers.Imported(ctx, mgr.GetClient())
		},
		Recorder: mgr.GetEventRecorder(model.FieldOwner), Registry: metrics.Registry, Log: log.WithName("peer"),
	})
	if err := peers.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up peers: %w", err)
	}
	evaluation, err := setupPolicies(mgr, self, peers)
	if err != nil {
		return err
	}
	exchange, err := setupExchange(mgr, o, self, peers, leading, log)
	if err != nil {
		return err
	}
	prober := probe.New(probe.Options{Log: log.WithName("probe")})
	if err := mgr.Add(prober); err != nil {
		return fmt.Errorf("set up probes: %w", err)
	}
	running, err := controllers.SetupWithManager(mgr, controllers.Options{
		Self: self.cluster, ClusterSet: self.set, ClusterUID: self.uid, Namespace: o.Namespace, Version: version, IdentityLabels: o.IdentityLabels,
		Exchange: exchange, Peers: peers, Workers: o.Workers, HeartbeatInterval: o.HeartbeatInterval, Registry: metrics.Registry,
		Admitter: evaluation.cache, PoliciesLoaded: evaluation.loaded, PoliciesChanged: evaluation.changed,
		LocalCluster: local.Get, LocalClusterChanged: local.Changed(), LocalClusterKnown: local.Known(), Prober: prober,
		ImportDisabled: !o.Import, MaintainSelectors: o.Selectors == selectorsMaintain, Takeover: o.Takeover == takeoverSveltos,
	})
	if err != nil {
		return err
	}
	err = status.SetupWithManager(mgr, status.Options{
		Observations: running, Verdicts: evaluation.cache, Destinations: running, ForeignImports: !o.Import,
		Changed: running.Changed(), DestinationsChanged: running.DestinationsChanged(), PoliciesChanged: evaluation.changed,
	})
	if err != nil {
		return err
	}
	requireServing(mgr, evaluation.engine, ready)
	return setupAgentInfo(mgr, o, self, log)
}

// setupAgentInfo makes the leader publish its properties on the leader Lease, if
// leader election is enabled.
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

// setupLocalCluster watches the properties of this cluster.
func setupLocalCluster(mgr ctrl.Manager, o Options) (*localcluster.Watcher, error) {
	pods, err := prefixes(o.PodCIDRs)
	if err != nil {
		return nil, fmt.Errorf("--pod-cidrs: %w", err)
	}
	services, err := prefixes(o.ServiceCIDRs)
	if err != nil {
		return nil, fmt.Errorf("--service-cidrs: %w", err)
	}
	return localcluster.SetupWithManager(mgr, localcluster.Options{PodCIDRs: pods, ServiceCIDRs: services})
}

// policyEvaluation evaluates policies, and notifies when their results may have
// changed.
type policyEvaluation struct {
	engine  *engine.Engine
	loaded  <-chan struct{} // closed after the first load of the policies
	cache   *controllers.PolicyCache
	changed *notify.Notifier
}

// setupPolicies connects policies, peers and stored objects. The webhook evaluates
// each request; the controllers evaluate an export again only after a change.
func setupPolicies(mgr ctrl.Manager, self identity, peers *members.Set) (*policyEvaluation, error) {
	policies, err := engine.New(engine.Options{})
	if err != nil {
		return nil, fmt.Errorf("set up the policy engine: %w", err)
	}
	reviewer := facts.Reviewer{
		Reader:    facts.Reader{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Cluster: self.cluster, Peers: peers},
		Evaluator: policies,
	}
	changed := &notify.Notifier{}
	cache := controllers.NewPolicyCache(controllers.PolicyCacheOptions{Evaluate: reviewer.Admit, Reader: mgr.GetClient(), Policies: policies.Digest})
	peers.SubscribeNamespaces(func(string) {
		cache.PeersChanged() // before any controller evaluates again
		changed.All()
	}, func(id model.ClusterID) {
		if cache.MemberChanged(id, peers.Members()) {
			changed.All()
		}
	})
	loaded := make(chan struct{})
	load := sync.OnceFunc(func() { close(loaded) })
	err = policycontroller.SetupWithManager(mgr, policycontroller.Options{
		// The first load is also a change, even if it loads no policy.
		Engine: policies, Changed: func() { load(); changed.All() },
	})
	if err != nil {
		return nil, fmt.Errorf("set up policies: %w", err)
	}
	if err := webhook.Register(mgr, webhook.Options{Reviewer: reviewer, Policies: policycontroller.Checker{Engine: policies}}); err != nil {
		return nil, fmt.Errorf("set up the webhook: %w", err)
	}
	return &policyEvaluation{engine: policies, loaded: loaded, cache: cache, changed: changed}, nil
}

// setupExchange sets up the hub, if there is one. nil means that this cluster
// publishes in its own API server.
func setupExchange(mgr ctrl.Manager, o Options, self identity, peers *members.Set, leading *leaderFence, log logr.Logger) (*controllers.Exchange, error) {
	if o.ExchangeKubeconfig == "" {
		return nil, nil
	}
	shared, err := hub.New(hub.Options{
		Self: self.cluster, Kubeconfig: o.ExchangeKubeconfig, Namespace: o.Namespace,
		Scheme: mgr.GetScheme(), Peers: peers, Wrap: leading.guard, Log: log.WithName("hub"),
	})
	if err != nil {
		return nil, fmt.Errorf("set up the exchange: %w", err)
	}
	if err := shared.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("set up the exchange: %w", err)
	}
	return &controllers.Exchange{Client: shared.Client(), Cache: shared.Cache(), Problem: shared.Problem, Changed: shared.Changed()}, nil
}

// requireServing makes the agent ready only if it can respond to admission requests.
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
