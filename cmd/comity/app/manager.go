// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/tls"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/compactslice"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/localcluster"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/restoredetect"
	"github.com/comity-mcs/comity/webhook"
)

// newScheme returns a scheme with every kind that the agent reads or writes.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, mcsv1alpha1.Install, mcsv1beta1.Install, policyv1alpha1.AddToScheme, exchangev1alpha1.AddToScheme)
	utilruntime.Must(kinds.AddToScheme(scheme))
	return scheme
}

func tls13(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }

// metricsOptions serve metrics to accounts that the API server authenticates and
// allows to get /metrics. The requests that ask it are no writes of the agent, so
// every replica sends them, not only the leader: cfg is not guarded.
func metricsOptions(cfg *rest.Config, o Options) metricsserver.Options {
	options := metricsserver.Options{BindAddress: o.MetricsAddress}
	if !o.MetricsSecure {
		return options
	}
	options.SecureServing, options.CertDir = true, o.CertDir
	options.TLSOpts = []func(*tls.Config){tls13}
	options.FilterProvider = func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
		httpClient, err := rest.HTTPClientFor(cfg)
		if err != nil {
			return nil, fmt.Errorf("connect to the API server for the authentication of metrics: %w", err)
		}
		return filters.WithAuthenticationAndAuthorization(cfg, httpClient)
	}
	return options
}

// newManager returns the manager. All parts read its cache, and its Lease selects
// the replica that writes. election wraps the transport of leader election, guard all others.
func newManager(cfg *rest.Config, scheme *runtime.Scheme, o Options, election, guard transport.WrapperFunc, log logr.Logger) (ctrl.Manager, error) {
	host, port, err := splitAddress(o.WebhookAddress)
	if err != nil {
		return nil, err
	}
	tlsOptions := []func(*tls.Config){tls13}
	if o.WebhookClientCAFile != "" {
		verify, err := webhook.ClientCertificates(o.WebhookClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("--webhook-client-ca-file: %w", err)
		}
		tlsOptions = append(tlsOptions, verify)
	}
	electing, guarded := rest.CopyConfig(cfg), rest.CopyConfig(cfg)
	electing.Wrap(election)
	guarded.Wrap(guard)
	return ctrl.NewManager(guarded, ctrl.Options{
		Scheme: scheme,
		Logger: log,
		Cache: cache.Options{
			DefaultTransform: compactslice.Shrink,
			NewInformer:      restoredetect.NewInformer(log),
			// The agent reads Secrets only in its own namespace.
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Secret{}: {Namespaces: map[string]cache.Config{o.Namespace: {}}},
				&corev1.Node{}:   {Transform: localcluster.TrimNode},
			},
		},
		WebhookServer: ctrlwebhook.NewServer(ctrlwebhook.Options{
			Host: host, Port: port, CertDir: o.CertDir,
			TLSOpts: tlsOptions,
		}),
		Metrics:                 metricsOptions(cfg, o),
		HealthProbeBindAddress:  "0", // served by health, which starts before the manager
		LeaderElection:          o.LeaderElect,
		LeaderElectionID:        model.LeaderLease,
		LeaderElectionNamespace: o.Namespace,
		LeaderElectionConfig:    electing,
		LeaseDuration:           ptr.To(o.Timing.LeaseDuration),
		RenewDeadline:           ptr.To(o.Timing.RenewDeadline),
		RetryPeriod:             ptr.To(o.Timing.RetryPeriod),
		// The process ends with the manager, so another replica may lead at once.
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       ptr.To(o.ShutdownTimeout),
	})
}
