// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/test/install"
)

const (
	// certificateName is the serving certificate's, as the chart calls it.
	certificateName = "comity-webhook"
	webhookPort     = 9443
	// propagation bounds how long a kubelet takes to give Pods a changed Secret: its
	// period, the age of its cache, and a busy machine.
	propagation = 2 * time.Minute
	// injection bounds how long cert-manager takes to give the API server a new authority.
	injection = 6 * time.Minute
)

// certificates are the serving certificate of Comity and its authority's.
func certificates(ctx context.Context) (serving, authority *certmanagerv1.Certificate) {
	GinkgoHelper()
	var list certmanagerv1.CertificateList
	Expect(api.List(ctx, &list, client.InNamespace(install.Namespace))).To(Succeed())
	for i, c := range list.Items {
		if c.Spec.IsCA {
			authority = &list.Items[i]
		} else if c.Name == certificateName {
			serving = &list.Items[i]
		}
	}
	Expect(serving).NotTo(BeNil(), "no Certificate %s", certificateName)
	Expect(authority).NotTo(BeNil(), "no Certificate of an authority")
	return serving, authority
}

// renew has cert-manager issue a certificate now, as `cmctl renew` does, and gives
// the new one once it is in its Secret.
func renew(ctx context.Context, name string) *x509.Certificate {
	GinkgoHelper()
	certificate := &certmanagerv1.Certificate{}
	key := types.NamespacedName{Namespace: install.Namespace, Name: name}
	var before *x509.Certificate
	Eventually(ctx, func() error { // cert-manager may be writing its status too
		if err := api.Get(ctx, key, certificate); err != nil {
			return err
		}
		before = issued(ctx, certificate.Spec.SecretName)
		setIssuing(certificate)
		return api.Status().Update(ctx, certificate)
	}).Should(Succeed(), "renew Certificate %s", name)
	began := time.Now()
	var now *x509.Certificate
	Eventually(ctx, func() bool {
		now = issued(ctx, certificate.Spec.SecretName)
		return now.Equal(before)
	}).Should(BeFalse(), "Certificate %s is not issued anew", name)
	step("Certificate %s is renewed after %.1fs", name, time.Since(began).Seconds())
	return now
}

func setIssuing(certificate *certmanagerv1.Certificate) {
	now := metav1.Now()
	issuing := certmanagerv1.CertificateCondition{
		Type: certmanagerv1.CertificateConditionIssuing, Status: cmmeta.ConditionTrue, Reason: "ManuallyTriggered",
		Message: "the end-to-end test rotates certificates", LastTransitionTime: &now, ObservedGeneration: certificate.Generation,
	}
	conditions := slices.DeleteFunc(certificate.Status.Conditions, func(c certmanagerv1.CertificateCondition) bool { return c.Type == issuing.Type })
	certificate.Status.Conditions = append(conditions, issuing)
}

// issued is the certificate in a Secret.
func issued(ctx context.Context, secretName string) *x509.Certificate {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(api.Get(ctx, types.NamespacedName{Namespace: install.Namespace, Name: secretName}, secret)).To(Succeed())
	certificates, err := cert.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
	Expect(err).NotTo(HaveOccurred(), "Secret %s holds no certificate", secretName)
	return certificates[0]
}

// trusted are the authorities that the API server trusts for the webhook.
func trusted(ctx context.Context) ([]*x509.Certificate, error) {
	var list admissionv1.ValidatingWebhookConfigurationList
	if err := api.List(ctx, &list, client.MatchingLabels{"app.kubernetes.io/name": "comity"}); err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return cert.ParseCertsPEM(list.Items[0].Webhooks[0].ClientConfig.CABundle)
}

// served is the certificate that each replica of Comity serves, by Pod.
func served(ctx context.Context) (map[string]*x509.Certificate, error) {
	var pods corev1.PodList
	if err := api.List(ctx, &pods, client.InNamespace(install.Namespace), client.MatchingLabels{"app.kubernetes.io/name": "comity"}); err != nil {
		return nil, err
	}
	found := map[string]*x509.Certificate{}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		certificate, err := servedBy(ctx, pod.Name)
		if err != nil {
			return nil, fmt.Errorf("replica %s: %w", pod.Name, err)
		}
		found[pod.Name] = certificate
	}
	return found, nil
}

// servedBy asks one Pod, as `kubectl port-forward` reaches it.
func servedBy(ctx context.Context, pod string) (*x509.Certificate, error) {
	config := cluster.RESTConfig()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	url := typed.CoreV1().RESTClient().Post().Resource("pods").Namespace(install.Namespace).Name(pod).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	stop, ready := make(chan struct{}), make(chan struct{})
	defer close(stop)
	forwarder, err := portforward.New(dialer, []string{"0:" + strconv.Itoa(webhookPort)}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return nil, err
	}
	asker := tls.Dialer{NetDialer: &net.Dialer{Timeout: requestTimeout}, Config: &tls.Config{InsecureSkipVerify: true}} // which certificate it is, is the question
	connection, err := asker.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))))
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }()
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

const (
	perSecond      = 10 // more leave two processors no time to start the replicas
	rounds, period = 3, 15 * time.Second
)

// renewUnderLoad renews authority and certificate while exports are created. The authority changes as
// well, so that for a while some replicas serve a certificate of the old one and some of the new one.
func renewUnderLoad(ctx context.Context) {
	GinkgoHelper()
	serving, authority := certificates(ctx)
	creates := startLoad(ctx)
	defer creates.stop()
	var last *x509.Certificate
	for round := range rounds {
		began := time.Now()
		newAuthority := renew(ctx, authority.Name)
		Eventually(ctx, trusted).WithTimeout(injection).Should(ContainElement(Satisfy(newAuthority.Equal)), "authorities for which the API server trusts the webhook")
		last = renew(ctx, serving.Name)
		Expect(last.CheckSignatureFrom(newAuthority)).To(Succeed(), "the new certificate is signed by the new authority")
		if round == 1 {
			run(ctx, "helm upgrade comity %s --namespace comity-system %s --set-string podAnnotations.e2e=%d --wait --timeout 150s", chart, settings(), began.Unix())
		}
		Eventually(ctx, time.Since).WithArguments(began).WithTimeout(2 * period).Should(BeNumerically(">=", period))
		sent, late, failed := creates.soFar()
		step("%d creates after round %d of %d, %d late, %d failed", sent, round+1, rounds, late, len(failed))
		Expect(failed).To(BeEmpty())
	}
	Eventually(ctx, served).WithTimeout(propagation).WithPolling(3*time.Second).
		Should(And(HaveLen(2), HaveEach(Satisfy(last.Equal))), "replicas that serve the newest certificate, by Pod")
	Expect(trusted(ctx)).To(Not(Or(BeEmpty(), HaveLen(1))), "old authorities stay trusted")
	said := creates.stop()
	step("%s", said)
	AddReportEntry("creates during rotation and upgrade", said, ReportEntryVisibilityAlways)
	sent, late, failed := creates.soFar()
	Expect(failed).To(BeEmpty(), said)
	Expect(late).To(BeNumerically("<", sent/20), "a machine may be too busy for some while replicas start, but no rotation is a reason for it: %s", said)
	Expect(sent).To(BeNumerically(">", 100), "there was a load: %s", said) // how fast a machine sends it is no question here
}
