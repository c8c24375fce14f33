// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/comity-mcs/comity/policies/controller"
	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/webhook"
	"github.com/comity-mcs/comity/webhook/facts"
)

// alone is a clusterset of one cluster.
type alone struct{}

func (alone) Members() []model.Member                                     { return nil }
func (alone) Namespace(string) map[model.ClusterID]decision.PeerNamespace { return nil }

// guard lets the webhooks of the replica, which evaluates apart, decide on requests, as config/webhook says,
// and returns once they do. What it returns takes the webhooks away again.
func (r *replica) guard(ctx context.Context) (unguard func(context.Context)) {
	GinkgoHelper()
	install := envtest.WebhookInstallOptions{Paths: []string{filepath.Join("..", "..", "..", "config", "webhook")}}
	Expect(install.PrepWithoutInstalling()).To(Succeed())
	mgr, err := ctrl.NewManager(server, ctrl.Options{
		Scheme:  scheme,
		Logger:  GinkgoLogr,
		Metrics: metricsserver.Options{BindAddress: "0"},
		WebhookServer: ctrlwebhook.NewServer(ctrlwebhook.Options{
			Host: install.LocalServingHost, Port: install.LocalServingPort, CertDir: install.LocalServingCertDir,
		}),
	})
	Expect(err).NotTo(HaveOccurred())
	reader := facts.Reader{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Cluster: "a", Peers: alone{}}
	webhook.Register(mgr, webhook.Options{
		Reviewer:   facts.Reviewer{Reader: reader, Evaluator: r.engine},
		Policies:   &controller.Checker{Policies: r.apart, Source: reader},
		Registerer: prometheus.NewRegistry(),
	})
	running, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(running) }()
	DeferCleanup(func() {
		cancel()
		Expect(<-ended).To(Succeed())
		Expect(install.Cleanup()).To(Succeed())
	})
	for _, object := range []client.Object{&corev1.Namespace{}, &corev1.Service{}} {
		_, err := mgr.GetCache().GetInformer(running, object)
		Expect(err).NotTo(HaveOccurred())
	}
	Eventually(func() error { return mgr.GetWebhookServer().StartedChecker()(nil) }).Within(timeout).Should(Succeed())

	Expect(install.Install(server)).To(Succeed())
	unguard = func(ctx context.Context) {
		named := metav1.ObjectMeta{Name: "comity"}
		for _, o := range []client.Object{
			&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: named}, &admissionv1.MutatingWebhookConfiguration{ObjectMeta: named},
		} {
			Expect(client.IgnoreNotFound(direct.Delete(ctx, o))).To(Succeed())
		}
		// The API server learns of it a moment later.
		Eventually(func() error { return direct.Create(ctx, unreadable(), client.DryRunAll) }).Within(timeout).Should(Succeed())
	}
	DeferCleanup(unguard)
	Eventually(func() error { return direct.Create(ctx, unreadable(), client.DryRunAll) }).Within(timeout).
		Should(MatchError(ContainSubstring("ExportPolicy unreadable cannot be used")))
	return unguard
}

// unreadable is a policy that the webhook refuses.
func unreadable() *v1alpha1.ExportPolicy {
	object := policy("unreadable", "")
	object.Spec.Rego = "no rego"
	return object
}
