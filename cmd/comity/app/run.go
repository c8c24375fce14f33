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
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/comity/install"
	"github.com/comity-mcs/comity/cmd/comity/probe"
	"github.com/comity-mcs/comity/policies/engine/child"
	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/compactslice"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/listwatch"
	"github.com/comity-mcs/comity/sync/localcluster"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/webhook"
)

// Run serves health probes, waits for the CustomResourceDefinitions, and then runs
// all parts of the agent until o.ShutdownDelay after asked ends, which is not an error.
func Run(asked context.Context, o Options, log logr.Logger) error {
	cfg, err := install.RESTConfig(o.Kubeconfig)
	if err != nil {
		return err
	}
	cfg.UserAgent = "comity/" + version
	// API priority and fairness limits the requests. A limit of the client would
	// only delay the first reconciliation of a large cluster.
	cfg.QPS = -1
	// To compress lists costs this cluster's API server, which is near, more time than it saves.
	// Peers, which may be far away, are asked to.
	cfg.DisableCompression = true
	o.stopping = asked.Done()
	ctx, cancel := context.WithCancel(context.WithoutCancel(asked))
	defer cancel()
	defer context.AfterFunc(asked, func() { time.AfterFunc(o.ShutdownDelay, cancel) })()
	group, ctx := errgroup.WithContext(ctx)
	ready := &health{}
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
	startable := make(chan struct{})
	go watchDefinitions(ctx, served, o.Timing.Definitions, log, ready.set, func() { close(startable) })
	if !notify.Await(ctx, startable) {
		return ctx.Err()
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
	// The key is not "cluster", because that is the id of a peer in other lines.
	log = log.WithValues("self", self.cluster)
	log.Info("starting", "clusterset", self.set, "version", version)
	leading, own := &leaderFence{now: time.Now, deadline: o.Timing.RenewDeadline}, &ownNamespace{name: o.Namespace, log: log}
	guard := refusing(leading.refusal, own.refusal)
	mgr, err := newManager(cfg, scheme, o, leading.election, guard, log)
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	own.reader = mgr.GetCache()
	if err := (&wiring{Manager: mgr, Options: o, self: self, guard: guard, ready: ready, log: log}).wire(); err != nil {
		return fmt.Errorf("set up the agent: %w", err)
	}
	return mgr.Start(ctx)
}

// newScheme returns a scheme with every kind that the agent reads or writes.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, mcsv1alpha1.Install, mcsv1beta1.Install, policyv1alpha1.AddToScheme, exchangev1alpha1.AddToScheme)
	utilruntime.Must(kinds.AddToScheme(scheme))
	return scheme
}

func tls13(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }

// metricsOptions serve metrics to accounts that the API server authenticates and
// allows to get /metrics.
func metricsOptions(o Options) metricsserver.Options {
	options := metricsserver.Options{BindAddress: o.MetricsAddress, SecureServing: o.MetricsSecure, CertDir: o.CertDir, TLSOpts: []func(*tls.Config){tls13}}
	if o.MetricsSecure {
		options.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	return options
}

// newManager returns the manager. All parts read its cache, and its Lease selects
// the replica that writes. election wraps the transport of leader election, guard all others.
func newManager(cfg *rest.Config, scheme *runtime.Scheme, o Options, election, guard transport.WrapperFunc, log logr.Logger) (ctrl.Manager, error) {
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
			NewInformer:      listwatch.NewInformer(log),
			// The agent reads Secrets only in its own namespace.
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Secret{}: {Namespaces: map[string]cache.Config{o.Namespace: {}}},
				&corev1.Node{}:   {Transform: localcluster.TrimNode},
			},
		},
		WebhookServer: ctrlwebhook.NewServer(ctrlwebhook.Options{
			Host: o.webhookHost, Port: o.webhookPort, CertDir: o.CertDir, TLSOpts: tlsOptions,
		}),
		Metrics:                 metricsOptions(o),
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

// version is set by the linker.
var version = "dev"

// Main runs the agent with options o, which flags override, or the subcommand in args,
// until it ends or the process receives SIGTERM or SIGINT. It returns the exit code: 0 after success or a
// requested stop, 1 for errors.
func Main(o Options, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	root := NewCommand(o)
	root.SetArgs(args)
	if root.ExecuteContext(ctx) != nil {
		return 1
	}
	return 0
}

// NewCommand returns the command line of the binary, with o as the defaults of the
// flags. Without a subcommand it runs the agent.
func NewCommand(o Options) *cobra.Command {
	root := &cobra.Command{
		Use:   "comity",
		Short: "Run the agent of a member cluster: webhook, status controller and sync controllers in one process",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("%q is neither a flag nor a subcommand; see comity --help", args[0])
			}
			return o.Validate()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := newLog(o, os.Stderr)
			ctrl.SetLogger(log)
			klog.SetLogger(log) // that of client-go
			err := Run(cmd.Context(), o, log)
			if err != nil {
				log.Error(err, "stopped")
				cmd.SilenceErrors = true // it is in the log
			}
			return err
		},
		Version:           version,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // the image has no shell
	}
	root.SetErrPrefix("comity:")
	root.SetVersionTemplate("{{.Version}}\n")
	o.AddFlags(root.Flags())
	root.AddCommand(install.NewCommand(version), probe.NewCommand(), probe.NewServeCommand(), child.Command())
	return root
}

// newLog is the log in the format of --log-format. A failure is one line, without a stack.
func newLog(o Options, to io.Writer) logr.Logger {
	encoder := zap.JSONEncoder()
	if o.LogFormat == logText {
		encoder = zap.ConsoleEncoder()
	}
	return zap.New(zap.WriteTo(to), zap.Level(zapcore.Level(-o.Verbosity)), zap.StacktraceLevel(zapcore.PanicLevel), encoder)
}
