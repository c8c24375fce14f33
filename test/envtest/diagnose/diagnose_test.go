// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/diagnose"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// faults are what diagnose finds, worst first, without what is well.
func faults(ctx context.Context, args ...string) (all []finding.Finding) {
	GinkgoHelper()
	got := run(ctx, append([]string{"diagnose", "-o", "json"}, args...)...)
	var report diagnose.Report
	Expect(json.Unmarshal([]byte(got.out), &report)).To(Succeed(), got.err)
	for _, f := range report.Findings {
		if f.Severity != finding.OK {
			all = append(all, f)
		}
	}
	Expect(report.Healthy).To(Equal(got.code == 0))
	return all
}

// export makes Service shop/web in a namespace of its own, its Pod, and its ServiceExport.
func export(namespace string) {
	GinkgoHelper()
	labels := map[string]string{"app": "web"}
	own := metav1.ObjectMeta{Namespace: namespace, Name: "web", Labels: labels}
	Expect(client.IgnoreAlreadyExists(api["a"].Create(context.Background(), &corev1.Namespace{ObjectMeta: named("", namespace)}))).To(Succeed())
	Expect(client.IgnoreAlreadyExists(api["b"].Create(context.Background(), &corev1.Namespace{ObjectMeta: named("", namespace)}))).To(Succeed())
	create("a",
		&corev1.ServiceAccount{ObjectMeta: named(namespace, "default")},
		&corev1.Service{ObjectMeta: own, Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{
			{Name: "http", Port: 80, TargetPort: intstr.FromString("web")}, {Name: "admin", Port: 8081}}}},
		&corev1.Pod{ObjectMeta: own, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:test"}}}},
		&mcsv1beta1.ServiceExport{ObjectMeta: own},
	)
}

var _ = Describe("diagnose", func() {
	It("finds nothing where all is well, and shows each check once", func(ctx SpecContext) {
		export("well")
		got := run(ctx, "diagnose", "a", "b")
		Expect(got.code).To(BeZero(), got.out+got.err)
		Expect(got.out).To(Equal(`OK:
  Pod and Service ranges: a, b
  Kubernetes version: a, b
  clocks: a, b
  definitions: a, b
  other implementations: a, b
  agent: a, b
  webhook: a, b
  rights of the agent: a, b
  tokens: a, b
  peers: a, b
  DNS: a, b
  zones of Nodes: a, b
  NetworkPolicies: a, b
  names: a, b
`))
	})

	It("reads the other clusters if one does not answer", func(ctx SpecContext) {
		found := faults(ctx, "a", "dead")
		Expect(found).To(HaveLen(1))
		Expect(found[0]).To(And(HaveField("Cluster", "dead"), HaveField("Reason", "Unreachable"), HaveField("Severity", finding.Error)))
		Expect(run(ctx, "diagnose", "a", "dead").out).To(And(HavePrefix("Error:\n  dead: agent (Unreachable): "), ContainSubstring("  agent: a\n")))
	})

	DescribeTable("names planted faults, with what fixes them", func(ctx SpecContext, planted []fault) {
		for _, f := range planted {
			By(f.title)
			f.plant(ctx)
		}
		Eventually(func(g Gomega) {
			found := faults(ctx, "a", "b")
			var unnamed []string
			for _, f := range planted {
				if !slices.ContainsFunc(found, f.isNamed) {
					unnamed = append(unnamed, f.title)
				}
			}
			g.Expect(unnamed).To(BeEmpty(), "among %+v", found)
			g.Expect(found).To(HaveLen(len(planted)))
		}).Should(Succeed())
	},
		Entry("of which none hides another", besideOthers),
		Entry("that hide others", hiding),
	)

	It("names a revoked token, and the command mends it", func(ctx SpecContext) {
		account := &corev1.ServiceAccount{ObjectMeta: named(comity, model.PeerName("b"))}
		Expect(api["a"].Delete(ctx, account)).To(Succeed())
		Expect(api["a"].Create(ctx, &corev1.ServiceAccount{ObjectMeta: account.ObjectMeta}))
		const fix = "kubectl comity join a b"
		Eventually(ctx, func(g Gomega) {
			found := faults(ctx, "a", "b")
			g.Expect(found).NotTo(BeEmpty())
			g.Expect(found[0]).To(And(HaveField("Check", "tokens"), HaveField("Cluster", "b"), HaveField("Object", "Secret comity-system/peer-a"), HaveField("Reason", "Unauthorized"),
				HaveField("Fix", fix), HaveField("Message", ContainSubstring("cluster a does not accept the token by which it is read"))))
		}).WithTimeout(30 * time.Second).Should(Succeed()) // an API server remembers for 10 s that a token is good
		got := run(ctx, "join", "b", "a", "--skip-reachability")
		Expect(got.code).To(BeZero(), got.err)
		Eventually(ctx, func() []finding.Finding { return faults(ctx, "a", "b") }).Should(BeEmpty())
	})

	It("names a Secret that is missing, as seen from one cluster", func(ctx SpecContext) {
		secret := &corev1.Secret{ObjectMeta: named(comity, model.PeerName("a"))}
		Expect(api["b"].Get(ctx, client.ObjectKeyFromObject(secret), secret)).To(Succeed())
		Expect(api["b"].Delete(ctx, secret)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			secret.ResourceVersion, secret.UID = "", ""
			Expect(api["b"].Create(ctx, secret)).To(Succeed())
		})
		found := faults(ctx, "b")
		Expect(found).To(HaveLen(1))
		Expect(found[0]).To(And(HaveField("Reason", "SecretMissing"), HaveField("Fix", "kubectl comity join CONTEXT-OF-a b")))
	})

	It("checks before the installation only what it needs", func(ctx SpecContext) {
		found := faults(ctx, "a", "b", "--pre")
		Expect(found).To(HaveLen(2))
		for _, f := range found {
			Expect(f).To(And(HaveField("Severity", finding.Warning), HaveField("Check", "cert-manager"), HaveField("Reason", "Missing")))
		}
		got := run(ctx, "diagnose", "a", "b", "--pre")
		Expect(got.code).To(BeZero())
		Expect(got.out).To(HaveSuffix("OK:\n  Pod and Service ranges: a, b\n  Kubernetes version: a, b\n  clocks: a, b\n  other implementations: a, b\n  DNS: a, b\n"))
	})

	It("names a token that is expired, whatever the status of the Peer says", func(ctx SpecContext) {
		claims := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"system:serviceaccount:comity-system:peer-b","iat":1700000000,"exp":1700003600}`))
		change("b", &corev1.Secret{ObjectMeta: named(comity, model.PeerName("a"))}, func(s *corev1.Secret) {
			var err error
			s.Data[kubeconfig.SecretKey], err = kubeconfig.WithToken(s.Data[kubeconfig.SecretKey], "x."+claims+".x")
			Expect(err).NotTo(HaveOccurred())
		})
		found := faults(ctx, "b", "a")
		Expect(found).To(HaveLen(1))
		Expect(found[0]).To(And(HaveField("Check", "tokens"), HaveField("Reason", "Expired"), HaveField("Fix", "kubectl comity join a b"),
			HaveField("Message", "the token by which cluster a is read expired at 2023-11-14T23:13:20Z")))
	})

	It("says what may not be read, and checks the rest", func(ctx SpecContext) {
		viewer := &rbacv1.ClusterRole{ObjectMeta: named("", "viewer"), Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}}}}
		create("a", viewer, &rbacv1.ClusterRoleBinding{ObjectMeta: named("", "viewer"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "viewer"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "viewer"}}})
		Eventually(ctx, func(g Gomega) {
			found := faults(ctx, "a", "--as", "viewer")
			g.Expect(found).To(HaveLen(2))
			for i, name := range []string{"rights of the agent", "DNS"} {
				g.Expect(found[i]).To(And(HaveField("Severity", finding.NotRead), HaveField("Check", name), HaveField("Message", ContainSubstring(`User "viewer" cannot create resource "subjectaccessreviews"`))))
			}
		}).Should(Succeed())
		found := faults(ctx, "a", "--as", "nobody")
		Expect(found).To(HaveLen(1))
		Expect(found[0].Message).To(ContainSubstring(`User "nobody" cannot get resource "namespaces"`))
	})

	It("says how to install where no agent is, and what the installation needs", func(ctx SpecContext) {
		lease := &coordinationv1.Lease{ObjectMeta: named(comity, model.LeaderLease)}
		Expect(api["b"].Get(ctx, client.ObjectKeyFromObject(lease), lease)).To(Succeed())
		Expect(api["b"].Delete(ctx, lease)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			lease.ResourceVersion, lease.UID = "", ""
			Expect(api["b"].Create(ctx, lease)).To(Succeed())
		})
		found := faults(ctx, "b")
		Expect(found).To(HaveLen(2))
		Expect(found[0]).To(And(HaveField("Reason", "NotInstalled"), HaveField("Fix", HavePrefix("helm upgrade --install comity oci://ghcr.io/comity-mcs/charts/comity --kube-context b --namespace comity-system --create-namespace"))))
		Expect(found[1].Check).To(Equal("cert-manager"))
	})

	It("refuses two contexts of one cluster", func(ctx SpecContext) {
		got := run(ctx, "diagnose", "a", "a", "--pre")
		Expect(got.code).To(Equal(2))
		Expect(got.err).To(ContainSubstring("lead to one cluster"))
	})
})

var _ = Describe("networkpolicy", func() {
	It("prints the policy that admits the importing clusters, and diagnose is content with it", func(ctx SpecContext) {
		export("open")
		create("a", &networkingv1.NetworkPolicy{ObjectMeta: named("open", "nobody")})
		got := run(ctx, "networkpolicy", "open/web", "a")
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.err).To(BeEmpty())
		Expect(got.out).To(Equal(`# For context a. It admits to the Pods of exported Service open/web:
#   cluster b: 10.2.0.0/16
# If Pods connect from other addresses, such as those of Nodes, pass them: --pod-cidrs b=RANGE,...
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: web-from-clusterset
  namespace: open
spec:
  ingress:
  - from:
    - ipBlock:
        cidr: 10.2.0.0/16
    ports:
    - port: web
      protocol: TCP
    - port: 8081
      protocol: TCP
  podSelector:
    matchLabels:
      app: web
  policyTypes:
  - Ingress
`))
		policy := &networkingv1.NetworkPolicy{}
		Expect(yaml.UnmarshalStrict([]byte(got.out), policy)).To(Succeed())
		Expect(faults(ctx, "a", "b")).NotTo(BeEmpty())
		create("a", policy)
		Expect(faults(ctx, "a", "b")).To(BeEmpty())
	})
	It("takes the ranges that are given, and skips a cluster that does not answer", func(ctx SpecContext) {
		export("other")
		got := run(ctx, "networkpolicy", "other/web")
		Expect(got.err).To(ContainSubstring("no NetworkPolicy selects the Pods of Service other/web"))
		got = run(ctx, "networkpolicy", "other/web", "dead", "a", "--pod-cidrs", "b=192.168.0.0/24,fd00:2::/48")
		Expect(got.out).To(And(ContainSubstring("cidr: 192.168.0.0/24"), ContainSubstring("cidr: fd00:2::/48"), Not(ContainSubstring("10.2.0.0/16"))))
		Expect(got.err).To(ContainSubstring(`context "dead"`))
	})
	DescribeTable("says why it prints none",
		func(ctx SpecContext, plant func(), message string, args ...string) {
			plant()
			got := run(ctx, append([]string{"networkpolicy"}, args...)...)
			Expect(got.code).To(Equal(2))
			Expect(got.out).To(BeEmpty())
			Expect(got.err).To(ContainSubstring(message))
		},
		Entry("no export", func() {}, "none of the clusters that were read has a ServiceExport shop/none", "shop/none", "a", "b"),
		Entry("no name", func() {}, "expected NAMESPACE/NAME", "web"),
		Entry("a range that is none", func() { export("range") }, "--pod-cidrs b=10.2.0.0: ", "range/web", "--pod-cidrs", "b=10.2.0.0"),
		Entry("ranges of a cluster that is not in the scope", func() { export("typo") },
			"--pod-cidrs bb=10.2.0.0/16: cluster bb is not in the scope of ServiceExport typo/web; expected one that is: b", "typo/web", "--pod-cidrs", "bb=10.2.0.0/16"),
		Entry("a Service without a selector", func() {
			export("bare")
			change("a", &corev1.Service{ObjectMeta: named("bare", "web")}, func(s *corev1.Service) { s.Spec.Selector = nil })
		}, "Service bare/web has no selector", "bare/web"),
		Entry("a scope with no other cluster", func() {
			export("alone")
			change("a", &mcsv1beta1.ServiceExport{ObjectMeta: named("alone", "web")}, func(e *mcsv1beta1.ServiceExport) { e.Annotations = map[string]string{model.AnnotationExportTo: "a"} })
		}, "no other cluster is in the scope of ServiceExport alone/web", "alone/web"),
		Entry("unknown ranges", func() {
			export("unknown")
			change("a", &v1alpha1.Peer{ObjectMeta: named("", "b")}, func(p *v1alpha1.Peer) { p.Spec.AcceptedCIDRs = nil })
		}, "no Pod range of cluster b is known; pass the addresses from which its Pods connect as --pod-cidrs b=10.20.0.0/16", "unknown/web"),
	)
})
