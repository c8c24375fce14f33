// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
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
  versions: a, b
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
		Expect(run(ctx, "diagnose", "a", "dead").out).To(And(HavePrefix("Error:\n  dead: cluster (Unreachable): "), ContainSubstring("  agent: a\n")))
	})

	DescribeTable("names a planted fault as the first, with what fixes it",
		func(ctx SpecContext, plant func(SpecContext), want finding.Finding, message string) {
			plant(ctx)
			Eventually(func(g Gomega) {
				found := faults(ctx, "a", "b")
				g.Expect(found).NotTo(BeEmpty())
				g.Expect(found[0].Message).To(ContainSubstring(message))
				found[0].Message, found[0].Since = "", nil
				g.Expect(found[0]).To(Equal(want))
			}).Should(Succeed())
		},
		Entry("overlapping ranges", func(SpecContext) {
			create("b", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "overlapping", Labels: map[string]string{corev1.LabelTopologyZone: "z"}}, Spec: corev1.NodeSpec{PodCIDR: "10.1.7.0/24", PodCIDRs: []string{"10.1.7.0/24"}}})
		}, finding.Finding{Severity: finding.Error, Check: "Pod and Service ranges", Cluster: "b", Reason: "AddressOverlap",
			Fix: "who owns the networks of the clusters gives one of the two another range; no command of Comity can", Docs: finding.Docs("troubleshooting.md#overlapping-ranges")},
			"the pod range 10.1.7.0/24 of cluster b overlaps the pod range 10.1.0.0/16 of cluster a"),
		Entry("CoreDNS without the zone", func(SpecContext) {
			change("b", &corev1.ConfigMap{ObjectMeta: named("kube-system", "coredns")}, func(c *corev1.ConfigMap) {
				c.Data["Corefile"] = ".:53 {\n    kubernetes cluster.local {\n        pods insecure\n    }\n}\n"
			})
		}, finding.Finding{Severity: finding.Error, Check: "DNS", Cluster: "b", Object: "ConfigMap kube-system/coredns", Reason: "ZoneMissing",
			Fix: "kubectl comity coredns enable b", Docs: finding.Docs("coredns.md#two-things-in-every-recipe")}, "the Corefile does not have the zone clusterset.local"),
		Entry("the CoreDNS of kubeadm 1.34", func(SpecContext) {
			change("b", &appsv1.Deployment{ObjectMeta: named("kube-system", "coredns")}, func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image = "registry.k8s.io/coredns/coredns:v1.12.1"
			})
		}, finding.Finding{Severity: finding.Error, Check: "DNS", Cluster: "b", Object: "Deployment kube-system/coredns", Reason: "VersionTooOld",
			Fix: "kubectl --context b -n kube-system set image deployment/coredns coredns=registry.k8s.io/coredns/coredns:v1.12.4", Docs: finding.Docs("coredns.md#which-version")},
			"CoreDNS is 1.12.1"),
		Entry("CoreDNS without the right", func(SpecContext) {
			change("b", &rbacv1.ClusterRole{ObjectMeta: named("", "comity-coredns")}, func(r *rbacv1.ClusterRole) { r.Rules = nil })
		}, finding.Finding{Severity: finding.Error, Check: "DNS", Cluster: "b", Object: "ServiceAccount kube-system/coredns", Reason: "Forbidden",
			Fix: "kubectl comity coredns enable b", Docs: finding.Docs("coredns.md#two-things-in-every-recipe")}, "may not list and watch ServiceImports"),
		Entry("a NodeLocal DNSCache that does not forward the zone", func(SpecContext) {
			labels := map[string]string{"k8s-app": "node-local-dns"}
			create("b", &corev1.ConfigMap{ObjectMeta: named("kube-system", "node-local-dns"), Data: map[string]string{"Corefile": "cluster.local:53 {\n    forward . 10.96.0.10\n}\n"}},
				&appsv1.DaemonSet{ObjectMeta: named("kube-system", "node-local-dns"), Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "cache", Image: "x"}}}}}})
		}, finding.Finding{Severity: finding.Error, Check: "DNS", Cluster: "b", Object: "ConfigMap kube-system/node-local-dns", Reason: "ZoneNotForwarded",
			Fix: "add this server block to the Corefile in ConfigMap kube-system/node-local-dns, and restart it (kubectl --context b -n kube-system rollout restart daemonset/node-local-dns):\n" +
				"    clusterset.local:53 {\n        forward . 10.96.0.10\n    }", Docs: finding.Docs("coredns.md#nodelocal-dnscache")}, "sends queries for clusterset.local elsewhere"),
		Entry("a NetworkPolicy that admits no remote address", func(SpecContext) {
			export("closed")
			create("a", &networkingv1.NetworkPolicy{ObjectMeta: named("closed", "own-only"), Spec: networkingv1.NetworkPolicySpec{
				Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}}}}})
		}, finding.Finding{Severity: finding.Error, Check: "NetworkPolicies", Cluster: "a", Object: "NetworkPolicy closed/own-only", Reason: "NotAdmitted",
			Fix: "kubectl comity networkpolicy closed/web a | kubectl --context a apply -f -", Docs: finding.Docs("troubleshooting.md#networkpolicy")},
			"Pods of exported Service closed/web, such as web, admit no address of cluster b (10.2.0.0/16, spec.acceptedCIDRs of Peer b)"),
		Entry("a name taken by a foreign Service", func(SpecContext) {
			export("taken")
			create("b", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "taken", Name: model.DerivedName("web"), Labels: map[string]string{"app.kubernetes.io/managed-by": "team-x"}},
				Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
		}, finding.Finding{Severity: finding.Error, Check: "names", Cluster: "b", Object: "Service taken/" + model.DerivedName("web"), Reason: "NameTaken",
			Fix: "rename it, or: kubectl --context b -n taken delete service " + model.DerivedName("web"), Docs: finding.Docs("troubleshooting.md#not-imported")},
			"has the name of the derived Service of import taken/web; it belongs to team-x"),
		Entry("a ServiceImport of somebody else", func(SpecContext) {
			export("foreign")
			create("b", &mcsv1beta1.ServiceImport{ObjectMeta: named("foreign", "web"), Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Port: 80}}}})
		}, finding.Finding{Severity: finding.Error, Check: "names", Cluster: "b", Object: "ServiceImport foreign/web", Reason: "ForeignImport",
			Fix: "rename it, or: kubectl --context b -n foreign delete serviceimport web", Docs: finding.Docs("troubleshooting.md#not-imported")}, "nothing of that name is imported; it belongs to field owner"),
		Entry("a stopped agent", func(ctx SpecContext) {
			pod := &corev1.Pod{ObjectMeta: named(comity, "comity-0")}
			Expect(api["a"].Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
			runs(ctx, api["a"], pod, corev1.PodFailed)
			DeferCleanup(func(ctx SpecContext) { runs(ctx, api["a"], pod, corev1.PodRunning) })
		}, finding.Finding{Severity: finding.Error, Check: "agent", Cluster: "a", Object: "Deployment comity-system/comity", Reason: "NotRunning",
			Fix: "kubectl --context a -n comity-system scale deployment comity --replicas=2", Docs: finding.Docs("troubleshooting.md#connection")}, "no replica of the agent leads"),
		Entry("an expired certificate of the webhook", func(SpecContext) {
			change("a", &corev1.Secret{ObjectMeta: named(comity, "comity-webhook-cert")}, func(s *corev1.Secret) { s.Data[corev1.TLSCertKey] = expired() })
		}, finding.Finding{Severity: finding.Error, Check: "webhook", Cluster: "a", Object: "Secret comity-system/comity-webhook-cert", Reason: "CertificateExpired",
			Fix: "kubectl --context a -n comity-system delete secret comity-webhook-cert", Docs: finding.Docs("install.md#without-cert-manager")}, "the certificate of the webhook expired at "),
		Entry("a webhook without a CA bundle", func(SpecContext) {
			change("a", &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named("", "comity")}, func(w *admissionregistrationv1.ValidatingWebhookConfiguration) {
				w.Webhooks[0].ClientConfig.CABundle = nil
			})
		}, finding.Finding{Severity: finding.Error, Check: "webhook", Cluster: "a", Object: "ValidatingWebhookConfiguration comity", Reason: "CABundleMissing",
			Fix: "kubectl --context a get pods -A -l app.kubernetes.io/name=cainjector", Docs: finding.Docs("install.md#without-cert-manager")}, "has no CA bundle"),
		Entry("rights that the agent lost", func(SpecContext) {
			change("a", &rbacv1.ClusterRole{ObjectMeta: named("", "comity")}, func(r *rbacv1.ClusterRole) {
				for i := range r.Rules {
					if r.Rules[i].Resources[0] == "endpointslices" {
						r.Rules[i].Verbs = []string{"list", "watch"}
					}
				}
			})
		}, finding.Finding{Severity: finding.Error, Check: "rights of the agent", Cluster: "a", Object: "ServiceAccount comity-system/comity", Reason: "Forbidden",
			Fix:  "helm upgrade --install comity oci://ghcr.io/comity-mcs/charts/comity --kube-context a --namespace comity-system --reset-then-reuse-values",
			Docs: finding.Docs("security.md#a-stolen-token-of-the-agent")},
			"the agent may not create endpointslices.discovery.k8s.io; patch endpointslices.discovery.k8s.io; update endpointslices.discovery.k8s.io; delete endpointslices.discovery.k8s.io"),
		Entry("definitions that do not serve v1alpha1", func(SpecContext) {
			for _, name := range []string{"serviceexports", "serviceimports"} {
				change("b", &apiextensionsv1.CustomResourceDefinition{ObjectMeta: named("", name+".multicluster.x-k8s.io")}, func(d *apiextensionsv1.CustomResourceDefinition) {
					for i := range d.Spec.Versions {
						d.Spec.Versions[i].Served = d.Spec.Versions[i].Name != "v1alpha1"
					}
				})
			}
		}, finding.Finding{Severity: finding.Error, Check: "definitions", Cluster: "b", Reason: "NotServed",
			Fix: "kubectl --context b apply --server-side --force-conflicts -f https://raw.githubusercontent.com/kubernetes-sigs/mcs-api/v0.5.2/config/crd/multicluster.x-k8s.io_serviceexports.yaml" +
				" -f https://raw.githubusercontent.com/kubernetes-sigs/mcs-api/v0.5.2/config/crd/multicluster.x-k8s.io_serviceimports.yaml", Docs: finding.Docs("install.md#2-install-comity")},
			"does not serve ServiceExport, ServiceImport of multicluster.x-k8s.io/v1alpha1, which CoreDNS, Envoy Gateway and Istio read"),
		Entry("a peer that is lost", func(ctx SpecContext) {
			peer := &v1alpha1.Peer{}
			Expect(api["b"].Get(ctx, client.ObjectKey{Name: "a"}, peer)).To(Succeed())
			meta.SetStatusCondition(&peer.Status.Conditions, metav1.Condition{Type: v1alpha1.PeerConnected, Status: metav1.ConditionFalse, Reason: "Lost", Message: "no heartbeat"})
			Expect(api["b"].Status().Update(ctx, peer)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { connect(ctx, api["b"]) })
		}, finding.Finding{Severity: finding.Error, Check: "peers", Cluster: "b", Object: "Peer a", Reason: "Lost",
			Fix: "start the agent of cluster a: kubectl --context a get pods -A -l app.kubernetes.io/name=comity", Docs: finding.Docs("troubleshooting.md#connection")}, "Connected is False (Lost): no heartbeat"),
		Entry("a Node without a zone", func(SpecContext) {
			create("b", &corev1.Node{ObjectMeta: named("", "nowhere")})
		}, finding.Finding{Severity: finding.Warning, Check: "zones of Nodes", Cluster: "b", Object: "Node nowhere", Reason: "ZoneMissing",
			Fix: "kubectl --context b label node nowhere topology.kubernetes.io/zone=ZONE", Docs: finding.Docs("settings.md#annotations")}, "1 of 2 Nodes have no label"),
		Entry("another implementation", func(SpecContext) {
			labels := map[string]string{"app": "lighthouse"}
			create("b", &appsv1.Deployment{ObjectMeta: named("default", "submariner-lighthouse-agent"), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}}}}})
		}, finding.Finding{Severity: finding.Warning, Check: "other implementations", Cluster: "b", Object: "Deployment default/submariner-lighthouse-agent", Reason: "ForeignImport",
			Fix: "switch off Submariner Lighthouse, or let it import: helm upgrade --install comity oci://ghcr.io/comity-mcs/charts/comity --kube-context b --namespace comity-system" +
				" --reset-then-reuse-values --set sync.import=false", Docs: finding.Docs("settings.md#modes")}, "Submariner Lighthouse implements the MCS API here, too"),
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
#   cluster b: 10.2.0.0/16 (spec.acceptedCIDRs of Peer b)
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
		Entry("a range that is none", func() {}, "--pod-cidrs b=10.2.0.0", "shop/web", "--pod-cidrs", "b=10.2.0.0"),
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
