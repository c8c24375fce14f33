// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	policycontroller "github.com/comity-mcs/comity/policies/controller"
	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/engine/limited"
	"github.com/comity-mcs/comity/policies/findings"
	"github.com/comity-mcs/comity/policies/replicas"
	"github.com/comity-mcs/comity/status"
	"github.com/comity-mcs/comity/sync/controllers"
	"github.com/comity-mcs/comity/sync/endpointprobe"
	"github.com/comity-mcs/comity/sync/hub"
	"github.com/comity-mcs/comity/sync/localcluster"
	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/webhook"
	"github.com/comity-mcs/comity/webhook/conflict"
	"github.com/comity-mcs/comity/webhook/facts"
)

// wire connects the parts of the agent. Policies are evaluated with what the peers
// publish. The webhook and the controllers use the results. The status controller
// writes what the controllers report. guard wraps every transport that writes.
func wire(mgr ctrl.Manager, o Options, self identity, guard transport.WrapperFunc, ready *health, log logr.Logger) error {
	local, err := setupLocalCluster(mgr, o)
	if err != nil {
		return err
	}
	peers := members.New(members.Options{
		Self: self.cluster, ClusterUID: self.uid, ClusterSet: self.set, Namespace: o.Namespace, LocalCluster: local.Get,
		StaleAfter: o.StaleAfter, LostAfter: o.LostAfter, StatusInterval: o.Timing.Status,
		Recorder: mgr.GetEventRecorder(model.FieldOwner), Registry: metrics.Registry, Log: log.WithName("peer"),
	})
	if err := peers.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up peers: %w", err)
	}
	exchange, published, err := setupExchange(mgr, o, self, peers, guard, log)
	if err != nil {
		return err
	}
	evaluation, err := setupPolicies(mgr, o, self, peers, published, log)
	if err != nil {
		return err
	}
	prober := endpointprobe.New(endpointprobe.Options{Interval: o.Timing.Probe, Log: log.WithName("probe")})
	if err := mgr.Add(prober); err != nil {
		return fmt.Errorf("set up probes: %w", err)
	}
	publishNamespaces, err := labels.Parse(o.PublishNamespaces)
	if err != nil {
		return fmt.Errorf("--publish-namespaces: %w", err)
	}
	running, err := controllers.SetupWithManager(mgr, controllers.Options{
		Self: self.cluster, ClusterSet: self.set, ClusterUID: self.uid, Namespace: o.Namespace, Version: version,
		IdentityLabels: o.IdentityLabels, PublishNamespaces: publishNamespaces,
		Exchange: exchange, Peers: peers, Workers: o.Workers, HeartbeatInterval: o.HeartbeatInterval, Registry: metrics.Registry,
		WaitForMembers: o.Timing.Retry, MissingRetry: o.Timing.Retry, DriftDelay: o.Timing.Retry,
		Admitter: evaluation, ImportAdmitter: evaluation.imports, PoliciesLoaded: evaluation.loaded, PoliciesChanged: evaluation.changed,
		LocalCluster: local.Get, LocalClusterChanged: local.Changed(), LocalClusterKnown: local.Known(), Prober: prober,
		ImportDisabled: !o.Import, MaintainSelectors: o.Selectors == selectorsMaintain, Takeover: o.Takeover == takeoverSveltos,
	})
	if err != nil {
		return err
	}
	if err := peers.SetupStatusWithManager(mgr, running.Imports()); err != nil {
		return err
	}
	err = status.SetupWithManager(mgr, status.Options{
		Observations: running, Verdicts: evaluation.PolicyCache, Destinations: running, ForeignImports: !o.Import,
		Changed: running.Changed(), DestinationsChanged: running.DestinationsChanged(), PoliciesChanged: evaluation.changed, Interval: o.Timing.Status,
	})
	if err != nil {
		return err
	}
	requireServing(mgr, evaluation.engine, ready)
	ready.require(peersRead(peers, clock.RealClock{}, o.Timing.PeersRead))
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
		reader: mgr.GetAPIReader(), writer: mgr.GetClient(), info: info, interval: o.Timing.AgentInfo, log: log.WithName("agent-info"),
		lease: types.NamespacedName{Namespace: o.Namespace, Name: model.LeaderLease},
	})
}

// setupLocalCluster watches the properties of this cluster.
func setupLocalCluster(mgr ctrl.Manager, o Options) (*localcluster.Watcher, error) {
	pods, services, err := o.ranges()
	if err != nil {
		return nil, err
	}
	return localcluster.SetupWithManager(mgr, localcluster.Options{PodCIDRs: pods, ServiceCIDRs: services})
}

// policyEvaluation evaluates policies, and notifies when their results may have
// changed.
type policyEvaluation struct {
	*controllers.PolicyCache
	engine   *engine.Engine
	loaded   <-chan struct{} // closed after the first load of the policies
	imports  *controllers.ImportPolicyCache
	changed  *notify.Notifier
	findings *findings.Findings
}

// Forget drops the answer and what was found of an export that is gone.
func (p *policyEvaluation) Forget(key types.NamespacedName) {
	p.PolicyCache.Forget(key)
	p.findings.Forget(key)
}

// setupPolicies connects policies, peers and stored objects. The webhook evaluates
// each request; the controllers evaluate an export again only after a change.
func setupPolicies(mgr ctrl.Manager, o Options, self identity, peers *members.Set, published controllers.Published, log logr.Logger) (*policyEvaluation, error) {
	policies, err := newEngine(o)
	if err != nil {
		return nil, err
	}
	peerCache := facts.NewPeerCache()
	reviewer := facts.Reviewer{
		Reader: facts.Reader{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Cluster: self.cluster, Peers: peers, PeerCache: peerCache, Published: published.Of,
		},
		Evaluator: policies,
	}
	changed, found := &notify.Notifier{}, findings.New()
	audit := func(ctx context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict {
		verdict := reviewer.Admit(ctx, export)
		found.Record(client.ObjectKeyFromObject(export), "", verdict)
		return verdict
	}
	cache := controllers.NewPolicyCache(controllers.PolicyCacheOptions{
		Evaluate: audit, Reader: mgr.GetClient(), Policies: policies.Digest, Published: published.Of,
	})
	peers.SubscribeNamespaces(func(notify.Change) {
		peerCache.Changed()
		cache.PeersChanged() // before any controller evaluates again
		changed.All()
	}, func(c model.MemberChange) {
		peerCache.Changed()
		if !c.OnlyLiveness {
			cache.PeersChanged()
			changed.All()
		}
	})
	loaded := make(chan struct{})
	load := sync.OnceFunc(func() { close(loaded) })
	enforcing, err := setupReplicas(mgr, o, log)
	if err != nil {
		return nil, err
	}
	err = policycontroller.SetupWithManager(mgr, policycontroller.Options{
		// The first load is also a change, even if it loads no policy.
		Engine: policies, Changed: func() { load(); changed.All() },
		Findings: found, Replicas: enforcing, StatusInterval: o.Timing.Status,
	})
	if err != nil {
		return nil, fmt.Errorf("set up policies: %w", err)
	}
	if err := setupWebhook(mgr, o, self, peers, policies, reviewer); err != nil {
		return nil, err
	}
	imports := controllers.NewImportPolicyCache(controllers.ImportPolicyCacheOptions{
		Evaluate: func(ctx context.Context, in decision.ImportInput) decision.Verdict {
			return facts.InBackground(ctx, func() decision.Verdict { return policies.EvaluateImport(ctx, in) })
		},
		Active: policies.HasImportPolicies, Policies: policies.Digest, Findings: found,
	})
	return &policyEvaluation{PolicyCache: cache, engine: policies, loaded: loaded, imports: imports, changed: changed, findings: found}, nil
}

// newEngine is the policy engine, without policies yet.
func newEngine(o Options) (*engine.Engine, error) {
	options := engine.Options{Required: o.RequiredPolicies, Registerer: metrics.Registry}
	if o.compileApart {
		compiler, err := limited.New(limited.Options{})
		if err != nil {
			return nil, err
		}
		options.Trial = compiler.Try
	}
	policies, err := engine.New(options)
	if err != nil {
		return nil, fmt.Errorf("set up the policy engine: %w", err)
	}
	return policies, nil
}

// setupWebhook serves admission requests.
func setupWebhook(mgr ctrl.Manager, o Options, self identity, peers *members.Set, policies *engine.Engine, reviewer facts.Reviewer) error {
	stored := facts.Stored{Reader: reviewer.Reader}
	if o.Import {
		stored.ImportInputs = controllers.StoredImports{Self: self.cluster, Reader: mgr.GetClient(), Peers: peers}.Inputs
	}
	err := webhook.Register(mgr, webhook.Options{
		Reviewer: reviewer, Policies: policycontroller.Checker{Engine: policies}, ClientNames: o.WebhookClientNames,
		Previewer: policycontroller.NewPreviewer(policies, stored, nil),
		Conflicts: conflict.Forecaster{
			Peers: peers, Client: mgr.GetClient(), Self: self.cluster, Clock: clock.RealClock{},
			IdentityLabels: o.IdentityLabels, MaintainSelectors: o.Selectors == selectorsMaintain,
			ComityNamespace: o.Namespace, ImportDisabled: !o.Import,
		},
	})
	if err != nil {
		return fmt.Errorf("set up the webhook: %w", err)
	}
	return nil
}

// setupReplicas makes this replica state which policies it enforces.
func setupReplicas(mgr ctrl.Manager, o Options, log logr.Logger) (*replicas.Replicas, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read the name of this host, which names the replica: %w", err)
	}
	_, port, err := splitAddress(o.WebhookAddress)
	if err != nil {
		return nil, err
	}
	enforcing := replicas.New(replicas.Options{
		Namespace: o.Namespace, Name: replicas.Name(host, port),
		Reader: mgr.GetAPIReader(), Writer: mgr.GetClient(), Log: log.WithName("replicas"),
	})
	return enforcing, mgr.Add(enforcing)
}

// setupExchange sets up the hub, if there is one. A nil Exchange means that this
// cluster publishes in its own API server.
func setupExchange(mgr ctrl.Manager, o Options, self identity, peers *members.Set, guard transport.WrapperFunc, log logr.Logger) (*controllers.Exchange, controllers.Published, error) {
	published := controllers.Published{Records: mgr.GetClient()}
	if o.ExchangeKubeconfig == "" {
		return nil, published, nil
	}
	shared, err := hub.New(hub.Options{
		Self: self.cluster, Kubeconfig: o.ExchangeKubeconfig, Namespace: o.Namespace,
		Scheme: mgr.GetScheme(), Peers: peers, Wrap: guard, Log: log.WithName("hub"), CheckInterval: o.Timing.Hub,
	})
	if err != nil {
		return nil, published, fmt.Errorf("set up the exchange: %w", err)
	}
	if err := shared.SetupWithManager(mgr); err != nil {
		return nil, published, fmt.Errorf("set up the exchange: %w", err)
	}
	published = controllers.Published{Records: shared.Client(), Read: shared.Read}
	return &controllers.Exchange{
		Client: shared.Client(), Indexer: shared.Indexer(), Watch: shared.Watch, Problem: shared.Problem, Changed: shared.Changed(),
	}, published, nil
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
