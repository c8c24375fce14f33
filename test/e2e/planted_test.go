// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/test/install"
)

const (
	// named is how soon the person on call is told the cause.
	named = time.Minute
	// servingSecret has the certificate of the webhook, as the chart calls it.
	servingSecret = "comity-webhook-cert"
)

// planted is a fault: how it comes about, which command names it, and how it ends.
type planted struct {
	plant func(ctx context.Context)
	// command is what the person on call runs, without "kubectl comity".
	command string
	// words are in the first cause.
	words []string
	// repair ends what no command of Comity can, as the owner of the object does. If nil,
	// the command that is printed ends it.
	repair func(ctx context.Context)
}

// diagnosis is what trace and diagnose print with -o json.
type diagnosis struct {
	Cause    *finding.Finding  `json:"cause"`
	Findings []finding.Finding `json:"findings"`
}

// first is the first cause.
func (d diagnosis) first() *finding.Finding {
	if d.Cause == nil && len(d.Findings) > 0 {
		return &d.Findings[0]
	}
	return d.Cause
}

// isNamedAndEnds plants a fault, reads its cause, follows the advice, and sees that all is well.
func (f planted) isNamedAndEnds(ctx context.Context) {
	GinkgoHelper()
	f.plant(ctx)
	var cause finding.Finding
	Eventually(ctx, func(g Gomega) {
		out, err := shell.try(ctx, "kubectl comity %s -o json 2>/dev/null", f.command)
		g.Expect(err).To(HaveOccurred(), "`kubectl comity %s` finds nothing", f.command)
		var found diagnosis
		g.Expect(json.Unmarshal([]byte(out), &found)).To(Succeed(), out)
		g.Expect(found.first()).NotTo(BeNil(), out)
		cause = *found.first()
		text, err := json.Marshal(cause)
		g.Expect(err).NotTo(HaveOccurred())
		for _, words := range f.words {
			g.Expect(string(text)).To(ContainSubstring(words))
		}
	}).WithTimeout(named).WithPolling(time.Second).Should(Succeed(), "the first cause of `kubectl comity %s`", f.command)
	step("%s: %s; fix: %s", cause.Check, cause.Message, cause.Fix)
	Expect(cause.Fix).NotTo(BeEmpty(), "the cause %v has no fix", cause)
	Expect(cause.Docs).To(HavePrefix(finding.Docs("")))
	if f.repair == nil {
		Expect(cause.Fix).To(HavePrefix("kubectl "))
		shell.run(ctx, "%s", strings.ReplaceAll(cause.Fix, "kubectl comity", "yes | kubectl comity"))
	} else {
		f.repair(ctx)
	}
	Eventually(ctx, func() error {
		out, err := shell.try(ctx, "kubectl comity %s", f.command)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}).WithPolling(time.Second).Should(Succeed(), "after the fix")
}

var _ = Describe("A fault of one Service is the first cause that trace names:", Ordered, ContinueOnFailure, beyond(), func() {
	const trace = "trace planted/web a b --from a --to b"
	key := types.NamespacedName{Namespace: "planted", Name: "web"}

	BeforeAll(func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.create(ctx, newNamespace(key.Namespace))
		}
		clusterA.create(ctx, newServer(key.Namespace, key.Name, 1), newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP), newExport(key.Namespace, key.Name))
		clusterB.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a")
	})

	DescribeTable("and its advice ends it", func(ctx SpecContext, f planted) { f.isNamedAndEnds(ctx) },
		Entry("a policy that denies", planted{
			plant: func(ctx context.Context) {
				policy := newPolicy("planted", `package comity.policies.planted
deny contains {"msg": "the owner is not known"} if {
	input.object.metadata.namespace == "planted"
	input.object.metadata.name == "web"
	not input.object.metadata.labels.owner
}`)
				policy.Spec.Existing = "Withdraw"
				clusterA.create(ctx, policy)
				DeferCleanup(func(ctx SpecContext) { Expect(clusterA.client.Delete(ctx, policy)).To(Succeed()) })
			},
			command: trace,
			words:   []string{"PolicyDenied", "planted", "the owner is not known"},
			repair: func(ctx context.Context) {
				Expect(clusterA.patch(ctx, newExport(key.Namespace, key.Name), `{"metadata": {"labels": {"owner": "web"}}}`)).To(Succeed())
			},
		}),
	)
})

var _ = Describe("A fault of a cluster is the first cause that trace or diagnose names:", Ordered, ContinueOnFailure, Serial, beyond(), func() {
	const trace, diagnose = "trace planted-all/web a b --from a --to b", "diagnose a b"
	key := types.NamespacedName{Namespace: "planted-all", Name: "web"}

	BeforeAll(func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.create(ctx, newNamespace(key.Namespace))
		}
		clusterA.create(ctx, newServer(key.Namespace, key.Name, 1), newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP), newExport(key.Namespace, key.Name))
		clusterB.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a")
	})

	DescribeTable("and its advice ends it", func(ctx SpecContext, f planted) { f.isNamedAndEnds(ctx) },
		Entry("ranges that overlap", planted{
			plant: func(ctx context.Context) {
				clusterB.create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "overlaps"},
					Spec: corev1.NodeSpec{PodCIDR: "10.101.250.0/24", PodCIDRs: []string{"10.101.250.0/24"}, Unschedulable: true}})
			},
			command: diagnose,
			words:   []string{"10.101.250.0/24"},
			repair: func(ctx context.Context) {
				Expect(clusterB.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "overlaps"}})).To(Succeed())
			},
		}),
		Entry("CoreDNS without the zone", planted{
			plant: func(ctx context.Context) {
				shell.run(ctx, `kubectl --context b -n kube-system get configmap coredns -o json |
					sed 's/multicluster clusterset.local\\n *//' | kubectl --context b replace -f -
					kubectl --context b -n kube-system rollout restart deployment coredns
					kubectl --context b -n kube-system rollout status deployment coredns --timeout 150s`)
			},
			command: trace,
			words:   []string{"CoreDNS", "clusterset.local"},
		}),
		Entry("a packet filter between the clusters", planted{
			plant: func(ctx context.Context) {
				Expect(clusterA.DropFrom(ctx, clusterB.Cluster)).To(Succeed())
				DeferCleanup(func(ctx SpecContext) { Expect(clusterA.Unblock(ctx)).To(Succeed()) })
			},
			command: trace,
			words:   []string{"packet filter"},
			repair:  func(ctx context.Context) { Expect(clusterA.Unblock(ctx)).To(Succeed()) },
		}),
		// kind's network does not enforce it here, so that connections cannot tell.
		Entry("a NetworkPolicy that admits no address of the importing cluster", planted{
			plant: func(ctx context.Context) {
				Expect(clusterA.apply(ctx, `{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"namespace": "planted-all", "name": "closed"},
					"spec": {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [{"namespaceSelector": {}}]}]}}`)).To(Succeed())
			},
			command: diagnose,
			words:   []string{"NetworkPolicy planted-all/closed"},
		}),
		Entry("a certificate that has expired", planted{
			plant: func(ctx context.Context) {
				clusterB.scaleCertManager(ctx, 0) // it would replace a certificate that has expired
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: servingSecret}}
				certificate, key := expiredCertificate()
				patch, err := json.Marshal(map[string]any{"data": map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}})
				Expect(err).NotTo(HaveOccurred())
				Expect(clusterB.patch(ctx, secret, string(patch))).To(Succeed())
			},
			command: diagnose,
			words:   []string{"expired", "kubectl "},
			repair: func(ctx context.Context) {
				clusterB.scaleCertManager(ctx, 1)
				shell.run(ctx, "kubectl --context b -n %s delete secret %s", install.Namespace, servingSecret)
				clusterB.awaitComity(ctx)
			},
		}),
	)
})

// scaleCertManager runs count replicas of cert-manager's controller, and returns once as many run: one that is being
// stopped works on what changes meanwhile.
func (m *member) scaleCertManager(ctx context.Context, count int) {
	GinkgoHelper()
	shell.run(ctx, "kubectl --context %s -n cert-manager scale deployment cert-manager --replicas=%d && kubectl --context %s -n cert-manager rollout status deployment cert-manager --timeout 90s",
		m.ID(), count, m.ID())
	if count == 0 {
		shell.run(ctx, "kubectl --context %s -n cert-manager wait --for=delete pod --selector app.kubernetes.io/component=controller --timeout 90s", m.ID())
	}
}

// expiredCertificate is one of Comity's webhook that ended an hour ago, with its key.
func expiredCertificate() (certificate, key []byte) {
	GinkgoHelper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "comity"}, DNSNames: []string{"comity-webhook.comity-system.svc"},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	Expect(err).NotTo(HaveOccurred())
	encoded, err := x509.MarshalECPrivateKey(private)
	Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
}
