// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package webhook_test runs the webhooks behind a real API server, with the
// manifests of config/webhook and the baseline policies.
//
// It takes etcd, kube-apiserver and kubectl from KUBEBUILDER_ASSETS, and the
// other members of the clusterset from a table. It gives what a user sees: what
// is stored, what is refused and with which words. It never skips.
package webhook_test

import (
	"context"
	"crypto/tls"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/controller"
	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/envtest/suite"
	"github.com/comity-mcs/comity/test/envtest/suite/evaluator"
	"github.com/comity-mcs/comity/webhook"
	"github.com/comity-mcs/comity/webhook/conflict"
	"github.com/comity-mcs/comity/webhook/facts"
)

// This cluster is cluster-1. Of its peers, cluster-3 has not the namespaces
// whose names say so, and nothing is known of cluster-4 yet.
const self model.ClusterID = "cluster-1"

const absentNamespace = "only-in-cluster-2"

type table struct{}

func (table) Members() []model.Member {
	return []model.Member{{ID: "cluster-2", Synced: true}, {ID: "cluster-3", Synced: true}, {ID: "cluster-4"}}
}

func (table) Namespace(name string) map[model.ClusterID]decision.PeerNamespace {
	third := decision.Present
	if name == absentNamespace {
		third = decision.Absent
	}
	return map[model.ClusterID]decision.PeerNamespace{"cluster-2": {Presence: decision.Present}, "cluster-3": {Presence: third}}
}

var (
	environment *envtest.Environment
	// k8s is an administrator; it notes the warnings that the API server sends.
	k8s      client.Client
	warnings = &recorder{}
	judges   *bench
	// serving reads the facts for the webhooks.
	serving facts.Reader
	others  = &exporters{}
	// clients is the CA of the certificate that the API server presents to webhooks.
	clients *authority
)

// labelPublished, on an export, stands for a record of it in the exchange.
const labelPublished = "test.comity.dev/published"

func isPublished(_ context.Context, export *mcsv1beta1.ServiceExport) (decision.Publication, error) {
	return decision.Publication{Published: export.Labels[labelPublished] != ""}, nil
}

func TestMain(m *testing.M) { evaluator.Main(m) }

func TestWebhook(t *testing.T) {
	suite.Run(t, "webhook", suite.Waits{})
}

var _ = BeforeSuite(func() {
	ctrl.SetLogger(GinkgoLogr)

	scheme := suite.Scheme()
	environment = suite.APIServer()
	environment.Scheme = scheme
	environment.WebhookInstallOptions.Paths = []string{filepath.Join("..", "..", "..", "config", "webhook")}
	clients = newAuthority(GinkgoT().TempDir())
	clients.client("api-server")
	environment.ControlPlane.GetAPIServer().Configure().Set("admission-control-config-file", clients.admissionConfig("api-server"))
	cfg := suite.Start(environment)[0]

	noted := rest.CopyConfig(cfg)
	noted.WarningHandlerWithContext = warnings
	direct, err := client.NewWithWatch(noted, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	k8s = interceptor.NewClient(direct, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			return suite.Evaluated(func() error { return c.Create(ctx, o, options...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			return suite.Evaluated(func() error { return c.Update(ctx, o, options...) })
		},
	})
	judges = newBench()
	serving = serve(cfg, scheme, environment.WebhookInstallOptions, nil)
})

// serve runs the webhooks until the suite or the spec ends, and returns once they
// answer. Clients need one of the names, if there are any. It returns what reads the
// facts for them.
func serve(cfg *rest.Config, scheme *runtime.Scheme, install envtest.WebhookInstallOptions, names []string, tlsOptions ...func(*tls.Config)) facts.Reader {
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:     scheme,
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		WebhookServer: ctrlwebhook.NewServer(ctrlwebhook.Options{
			Host: install.LocalServingHost, Port: install.LocalServingPort, CertDir: install.LocalServingCertDir, TLSOpts: tlsOptions,
		}),
	})
	Expect(err).NotTo(HaveOccurred())
	reader := facts.Reader{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Cluster: self, Peers: table{}, Published: isPublished}
	webhook.Register(mgr, webhook.Options{
		Reviewer:    facts.Reviewer{Reader: reader, Evaluator: judges},
		Conflicts:   conflict.Forecaster{Peers: others, Client: mgr.GetClient(), View: decide.ImportView{Self: self}, Clock: clock.RealClock{}},
		Policies:    &controller.Checker{Policies: judges.engine, Source: reader},
		Registerer:  prometheus.NewRegistry(),
		ClientNames: names,
	})

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	DeferCleanup(func() {
		cancel()
		Eventually(done).WithTimeout(time.Minute).Should(Receive(BeNil()))
	})
	started := mgr.GetWebhookServer().StartedChecker()
	Eventually(func() error { return started(nil) }).WithTimeout(30 * time.Second).Should(Succeed())
	for _, object := range []client.Object{&corev1.Namespace{}, &corev1.Service{}, &mcsv1beta1.ServiceImport{}} {
		_, err := mgr.GetCache().GetInformer(ctx, object)
		Expect(err).NotTo(HaveOccurred())
	}
	return reader
}

// newNamespace makes a namespace of a name of its own and returns the name.
func newNamespace(ctx context.Context, annotations map[string]string) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-", Annotations: annotations}}
	Expect(k8s.Create(ctx, namespace)).To(Succeed())
	return namespace.Name
}
