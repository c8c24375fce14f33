// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-logr/logr"
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
	"github.com/comity-mcs/comity/policies/engine/child"
	"github.com/comity-mcs/comity/policies/findings"
	"github.com/comity-mcs/comity/policies/replicas"
	"github.com/comity-mcs/comity/status"
	"github.com/comity-mcs/comity/sync/controllers"
	"github.com/comity-mcs/comity/sync/decide"
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

// wiring is what all parts of the agent are made with.
type wiring struct {
	ctrl.Manager
	Options
	self identity
	// guard wraps every transport that writes.
	guard transport.WrapperFunc
	ready *health
	peers *members.Set
	log   logr.Logger
	// policies evaluates, loaded is closed after its first load, cache keeps the verdicts on what is
	// stored, and changed notifies when they may have changed.
	policies *child.Client
	loaded   chan struct{}
	cache    *controllers.PolicyCache
	changed  *notify.Notifier
}

// wire connects the parts of the agent. Policies are evaluated with what the peers
// publish. The webhook and the controllers use the results. The status controller
// writes what the controllers report.
func (w *wiring) wire() error {
	local, err := localcluster.SetupWithManager(w.Manager, model.LocalCluster{PodCIDRs: w.pods, ServiceCIDRs: w.services})
	if err != nil {
		return err
	}
	w.peers = members.New(members.Options{
		Self: w.self.cluster, ClusterUID: w.self.uid, ClusterSet: w.self.set, Namespace: w.Namespace, LocalCluster: local.Get,
		LostAfter: w.LostAfter, Probe: w.Timing.Probe, StatusInterval: w.Timing.Status,
		Recorder: w.GetEventRecorder(model.FieldOwner), Registry: metrics.Registry, Log: w.log.WithName("peer"),
	})
	exchange, published, err := w.setupExchange()
	if err != nil {
		return err
	}
	if err := w.setupPolicies(published); err != nil {
		return err
	}
	prober := endpointprobe.New(endpointprobe.Options{Interval: 5 * w.Timing.Probe, Log: w.log.WithName("probe")})
	running, err := controllers.SetupWithManager(w.Manager, controllers.Options{
		Self: w.self.cluster, ClusterSet: w.self.set, ClusterUID: w.self.uid, Namespace: w.Namespace, Version: version,
		IdentityLabels: w.IdentityLabels, PublishNamespaces: w.publishNamespaces,
		Exchange: exchange, Peers: w.peers, Workers: w.Workers, HeartbeatInterval: w.HeartbeatInterval, Retry: w.Timing.Retry, Registry: metrics.Registry,
		Admitter: w.cache, ImportAdmitter: w.cache, PoliciesLoaded: w.loaded, PoliciesChanged: w.changed,
		LocalCluster: local.Get, LocalClusterChanged: local.Changed(), LocalClusterKnown: local.Known(), Prober: prober,
		ClusterLabels: w.ClusterLabels, ImportDisabled: !w.Import, MaintainSelectors: w.Selectors == selectorsMaintain, Takeover: w.Takeover == takeoverSveltos,
	})
	if err != nil {
		return err
	}
	w.setupReady()
	return errors.Join(
		w.Add(prober),
		w.peers.SetupWithManager(w.Manager),
		w.peers.SetupStatusWithManager(w.Manager, running),
		status.SetupWithManager(w.Manager, status.Options{
			Observations: running, Verdicts: w.cache, ForeignImports: !w.Import, PoliciesChanged: w.changed, Interval: w.Timing.Status,
		}),
		metrics.Registry.Register(objectMetrics{
			reader: w.GetClient(), elected: w.Elected(), imports: running.Count, certificate: filepath.Join(w.CertDir, "tls.crt"), log: w.log.WithName("metrics"),
		}),
		w.setupAgentInfo(describe(w.Options, w.self)),
	)
}

// setupReady says when the agent is ready: only if it can respond to admission requests.
func (w *wiring) setupReady() {
	serving := w.GetWebhookServer().StartedChecker()
	w.ready.started(
		func() error { return serving(nil) },
		func() error {
			if w.policies.Digest() == "" {
				return errors.New("the policies are not loaded yet")
			}
			return nil
		},
		peersRead(w.peers, clock.RealClock{}, w.Timing.PeersRead),
	)
}

// setupAgentInfo makes the leader publish its properties on the leader Lease, if
// leader election is enabled.
func (w *wiring) setupAgentInfo(info model.AgentInfo) error {
	if !w.LeaderElect {
		return nil
	}
	if info.ServiceAccount == "" {
		w.log.Info("the kubectl plugin will not find this agent", "reason", "environment variable POD_SERVICE_ACCOUNT is not set")
		return nil
	}
	return w.Add(&agentInfo{
		reader: w.GetAPIReader(), writer: w.GetClient(), info: info, interval: w.Timing.AgentInfo, log: w.log.WithName("agent-info"),
		lease: types.NamespacedName{Namespace: w.Namespace, Name: model.LeaderLease},
	})
}

// setupPolicies connects policies, peers and stored objects. The webhook evaluates
// each request; the controllers evaluate an export again only after a change.
func (w *wiring) setupPolicies(published controllers.Published) error {
	w.policies = child.New(engine.Options{Required: w.RequiredPolicies, Registerer: metrics.Registry})
	peerCache := facts.NewPeerCache()
	reviewer := facts.Reviewer{
		Reader: facts.Reader{
			Client: w.GetClient(), Live: w.GetAPIReader(), Cluster: w.self.cluster, Peers: w.peers, PeerCache: peerCache, Published: published.Of,
		},
		Evaluator: w.policies,
	}
	found := findings.New()
	w.changed, w.loaded = &notify.Notifier{}, make(chan struct{})
	w.cache = &controllers.PolicyCache{
		Evaluate: reviewer.Admit, Reader: w.GetClient(), Published: published.Of,
		EvaluateImport: func(ctx context.Context, in decision.ImportInput) decision.Verdict {
			return facts.InBackground(ctx, func() decision.Verdict { return w.policies.EvaluateImport(ctx, in) })
		},
		HasImportPolicies: w.policies.HasImportPolicies, Policies: w.policies.Digest, Findings: found,
	}
	w.peers.Subscribe(func(c model.MemberChange) {
		switch c.What {
		case model.ExportChanged, model.EndpointsChanged, model.ReportChanged:
			return
		}
		peerCache.Changed()
		if c.What == model.MemberOther || c.What == model.NamespaceChanged {
			w.cache.PeersChanged() // before any controller evaluates again
		}
		switch c.What {
		case model.MemberOther:
			w.changed.All()
		case model.NamespaceChanged:
			keys, _ := notify.ListKeys(context.Background(), w.GetClient(), &mcsv1beta1.ServiceExportList{}, notify.Itself, client.InNamespace(c.Key.Name)) // a cache
			for _, key := range keys {
				w.changed.Publish(notify.Change{From: notify.Origin(c.ID), Key: key})
			}
		}
	})
	load := sync.OnceFunc(func() { close(w.loaded) })
	enforcing, err := w.setupReplicas()
	if err != nil {
		return err
	}
	w.setupWebhook(reviewer)
	return policycontroller.SetupWithManager(w.Manager, policycontroller.Options{
		// The first load is also a change, even if it loads no policy.
		Engine: w.policies, Changed: func() { load(); w.changed.All() },
		Findings: found, Replicas: enforcing, StatusInterval: w.Timing.Status,
	})
}

// setupWebhook serves admission requests.
func (w *wiring) setupWebhook(reviewer facts.Reviewer) {
	if w.Import {
		reviewer.Reader.ImportInputs = func(ctx context.Context) ([]decision.ImportInput, error) {
			return controllers.StoredImports(ctx, w.self.cluster, w.GetClient(), w.peers)
		}
	}
	webhook.Register(w.Manager, webhook.Options{
		Reviewer: reviewer, Policies: &policycontroller.Checker{Policies: w.policies, Source: reviewer.Reader}, ClientNames: w.WebhookClientNames, Stopping: w.stopping,
		Registerer: metrics.Registry,
		Conflicts: conflict.Forecaster{
			Peers: w.peers, Client: w.GetClient(), Clock: clock.RealClock{},
			View: decide.ImportView{
				Self: w.self.cluster, ComityNamespace: w.Namespace, IdentityLabels: w.IdentityLabels,
				MaintainSelectors: w.Selectors == selectorsMaintain, ImportDisabled: !w.Import,
			},
		},
	})
}

// setupReplicas makes this replica state which policies it enforces.
func (w *wiring) setupReplicas() (*replicas.Replicas, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read the name of this host, which names the replica: %w", err)
	}
	enforcing := replicas.New(replicas.Options{
		Namespace: w.Namespace, Name: replicas.Name(host, w.webhookPort),
		Reader: w.GetAPIReader(), Writer: w.GetClient(),
	})
	return enforcing, w.Add(enforcing)
}

// setupExchange sets up the hub, if there is one. A nil Exchange means that this
// cluster publishes in its own API server.
func (w *wiring) setupExchange() (*controllers.Exchange, controllers.Published, error) {
	published := controllers.Published{Records: w.GetClient()}
	if w.ExchangeKubeconfig == "" {
		return nil, published, nil
	}
	shared, err := hub.New(hub.Options{
		Self: w.self.cluster, Kubeconfig: w.ExchangeKubeconfig,
		Scheme: w.GetScheme(), Peers: w.peers, Wrap: w.guard, Log: w.log.WithName("hub"), CheckInterval: w.Timing.Hub,
	})
	if err != nil {
		return nil, published, err
	}
	exchange := &controllers.Exchange{
		Client: shared.Client, Live: shared.Client, Indexer: shared.Indexer(), Watch: shared.Watch, Problem: shared.Problem, Changed: &shared.Changed,
	}
	return exchange, controllers.Published{Records: shared.Client, Read: shared.Read}, w.Add(shared)
}
