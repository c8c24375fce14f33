// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/test/install"
	"github.com/comity-mcs/comity/test/promquery"
)

// expectAuthentication expects that a replica serves metrics by TLS, to accounts that may read them.
func (m *member) expectAuthentication(ctx SpecContext, replica *install.Agent) {
	GinkgoHelper()
	scrape := scraper(m.dir, strings.Replace(replica.MetricsURL(), "http:", "https:", 1))
	code, _ := scrape("")
	Expect(code).To(Equal(http.StatusUnauthorized), "without a token")
	code, _ = scrape("made.up.token")
	Expect(code).To(BeNumerically(">=", http.StatusUnauthorized), "with a token that is none")
	code, body := scrape(m.token(ctx, install.Account))
	Expect(code).To(Equal(http.StatusForbidden), "with a token of an account that may not: %s", body)
	code, body = scrape(m.token(ctx, "comity-metrics-reader"))
	Expect(code).To(Equal(http.StatusOK), body)
	Expect(body).To(ContainSubstring("\nworkqueue_depth"))
	code, _ = get(replica.MetricsURL())
	Expect(code).To(Equal(http.StatusBadRequest), "by plain HTTP")
}

// onlyWhen are metrics that are not there before something happened.
var onlyWhen = map[string]string{
	"comity_imports_frozen":         "an import is frozen",
	"comity_takeovers_held":         "a takeover is held",
	"comity_webhook_rejected_total": "a request is rejected before it is decoded",
}

// expectMetrics expects that the agents serve the metrics that alerts and dashboard query.
func expectMetrics(ctx SpecContext) {
	queries, err := promquery.All(filepath.Join("..", "..", "..", "config", "prometheus"))
	Expect(err).NotTo(HaveOccurred())
	Expect(len(queries)).To(BeNumerically(">", 40))
	Eventually(func(g Gomega) {
		served := map[string]bool{}
		for _, m := range members {
			all, err := m.metrics("comity_")
			g.Expect(err).NotTo(HaveOccurred())
			for _, s := range all {
				name, _, _ := strings.Cut(s.series, "{")
				served[name] = true
			}
		}
		for _, side := range []string{"export", "import"} {
			g.Expect(members["a"].metrics(fmt.Sprintf("comity_sync_change_seconds_count{side=%q}", side))).To(ConsistOf(WithTransform(func(s sample) float64 { return s.value }, BeNumerically(">", 0))), side)
		}
		for _, query := range queries {
			for _, name := range promquery.Metrics(query) {
				if _, rare := onlyWhen[name]; !rare {
					g.Expect(served).To(HaveKey(name), query)
				}
			}
		}
	}).WithContext(ctx).WithTimeout(ready).Should(Succeed())
}

// scraper reads url with a token; none if it is empty. It verifies that the
// certificate is that of the webhook, as Prometheus does.
func scraper(dir, url string) func(token string) (int, string) {
	GinkgoHelper()
	certificate, err := os.ReadFile(filepath.Join(dir, "tls.crt"))
	Expect(err).NotTo(HaveOccurred())
	pool := x509.NewCertPool()
	Expect(pool.AppendCertsFromPEM(certificate)).To(BeTrue())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}}
	DeferCleanup(transport.CloseIdleConnections)
	c := &http.Client{Transport: transport, Timeout: httpClient.Timeout}
	return func(token string) (int, string) {
		GinkgoHelper()
		request, err := http.NewRequest(http.MethodGet, url, nil)
		Expect(err).NotTo(HaveOccurred())
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := c.Do(request)
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		Expect(err).NotTo(HaveOccurred())
		return response.StatusCode, string(body)
	}
}

// token is one of an account in Comity's namespace.
func (m *member) token(ctx SpecContext, account string) string {
	GinkgoHelper()
	request := &authenticationv1.TokenRequest{}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: account}}
	Expect(m.client.SubResource("token").Create(ctx, of, request)).To(Succeed())
	return request.Status.Token
}
