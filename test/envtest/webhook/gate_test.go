// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/comity-mcs/comity/test/envtest/suite"
	"github.com/comity-mcs/comity/webhook"
)

// authority signs the certificates of clients.
type authority struct {
	dir         string
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func newAuthority(dir string) *authority {
	GinkgoHelper()
	a := &authority{dir: dir}
	a.key, a.certificate = a.issue("ca", &x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// issue writes name.crt and name.key.
func (a *authority) issue(name string, template *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	Expect(err).NotTo(HaveOccurred())
	keyDER, err := x509.MarshalECPrivateKey(key)
	Expect(err).NotTo(HaveOccurred())
	Expect(writeFile(filepath.Join(a.dir, name+".crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))).To(Succeed())
	Expect(writeFile(filepath.Join(a.dir, name+".key"), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})))).To(Succeed())
	certificate, err := x509.ParseCertificate(der)
	Expect(err).NotTo(HaveOccurred())
	return key, certificate
}

func (a *authority) client(name string) tls.Certificate {
	GinkgoHelper()
	a.issue(name, &x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	pair, err := tls.LoadX509KeyPair(filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key"))
	Expect(err).NotTo(HaveOccurred())
	return pair
}

// admissionConfig makes the API server present a certificate to all webhooks.
func (a *authority) admissionConfig(name string) string {
	GinkgoHelper()
	kubeconfig, file := filepath.Join(a.dir, "webhooks.kubeconfig"), filepath.Join(a.dir, "admission.yaml")
	Expect(writeFile(kubeconfig, fmt.Sprintf(`{apiVersion: v1, kind: Config, users: [{name: "*", user: {client-certificate: %q, client-key: %q}}]}`,
		filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")))).To(Succeed())
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for _, plugin := range []string{"ValidatingAdmissionWebhook", "MutatingAdmissionWebhook"} {
		text += fmt.Sprintf("- name: %s\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %q}\n", plugin, kubeconfig)
	}
	Expect(writeFile(file, text)).To(Succeed())
	return file
}

// to sends a body to a webhook from a plain client, and returns code and answer.
func to(address string, body io.Reader, certificates ...tls.Certificate) (int, string, error) {
	//nolint:gosec // whose certificate the webhook has is not what is tested
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Post("https://"+address+webhook.PathValidateServiceExport, "application/json", body)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	var text bytes.Buffer
	_, err = text.ReadFrom(response.Body)
	return response.StatusCode, text.String(), err
}

// untilClosed is the end of a body that comes once a channel is closed.
type untilClosed <-chan struct{}

func (u untilClosed) Read([]byte) (int, error) {
	<-u
	return 0, io.EOF
}

var _ = Describe("The door of the webhook", func() {
	It("answers the API server while a plain client sends 8 large requests at a time", func(ctx SpecContext) {
		install := environment.WebhookInstallOptions
		address := fmt.Sprintf("%s:%d", install.LocalServingHost, install.LocalServingPort)
		large := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"` + strings.Repeat("x", 6<<20) + `"}}`
		ended := make(chan struct{})
		var sent sync.WaitGroup
		var refused atomic.Int32
		for range 8 {
			sent.Go(func() {
				code, _, err := to(address, io.MultiReader(strings.NewReader(large), untilClosed(ended)))
				if err != nil || code == http.StatusTooManyRequests { // refused unread: its connection is closed while it sends
					refused.Add(1)
				}
			})
		}
		DeferCleanup(func() { close(ended); sent.Wait() })
		Eventually(refused.Load).WithContext(ctx).Should(BeNumerically(">", 0), "all slots of large requests are taken")
		namespace := newNamespace(ctx, nil)
		for i := range 10 {
			Expect(k8s.Create(ctx, export("v1beta1", namespace, fmt.Sprint("web-", i)))).To(Succeed())
		}
	}, SpecTimeout(time.Minute))

	It("opens to the API server's certificate alone, where its CA is configured", func(ctx SpecContext) {
		cfg := environment.Config
		install := envtest.WebhookInstallOptions{Paths: environment.WebhookInstallOptions.Paths}
		Expect(install.PrepWithoutInstalling()).To(Succeed())
		namespace := newNamespace(ctx, nil)
		ask := func(ctx context.Context) error {
			return k8s.Create(ctx, export("v1beta1", namespace, "asking"), client.DryRunAll)
		}
		DeferCleanup(func(ctx SpecContext) { // this door is closed
			Eventually(ctx, ask).Should(Succeed())
			Expect(install.Cleanup()).To(Succeed())
		}, NodeTimeout(time.Minute))
		verify, err := webhook.ClientCertificates(filepath.Join(clients.dir, "ca.crt"))
		Expect(err).NotTo(HaveOccurred())
		var entered atomic.Int32
		serve(cfg, suite.Scheme(), install, []string{"api-server"}, verify, func(c *tls.Config) {
			c.VerifyConnection = func(tls.ConnectionState) error { entered.Add(1); return nil }
		})
		DeferCleanup(func() { Expect(environment.WebhookInstallOptions.Install(cfg)).To(Succeed()) })
		Expect(install.Install(cfg)).To(Succeed())
		Eventually(func() int32 { // the API server learns a moment later at which door to ask
			Expect(ask(ctx)).To(Succeed())
			return entered.Load()
		}).WithContext(ctx).Should(BeNumerically(">", 0))
		Expect(k8s.Create(ctx, export("v1beta1", namespace, "web"))).To(Succeed())

		address := fmt.Sprintf("%s:%d", install.LocalServingHost, install.LocalServingPort)
		_, _, err = to(address, strings.NewReader("{}"))
		Expect(err).To(MatchError(ContainSubstring("certificate required")))
		_, _, err = to(address, strings.NewReader("{}"), newAuthority(GinkgoT().TempDir()).client("api-server"))
		Expect(err).To(HaveOccurred(), "a certificate of another CA")
		code, text, err := to(address, strings.NewReader("{}"), clients.client("kubelet"))
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(http.StatusForbidden))
		Expect(text).To(ContainSubstring("has none of the names api-server"))
	})
})
