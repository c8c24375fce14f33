// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

// fault is something that is wrong in a cluster, with what is found of it.
type fault struct {
	title   string
	plant   func(SpecContext)
	found   finding.Finding
	message string
}

func (f fault) isNamed(by finding.Finding) bool {
	is := strings.Contains(by.Message, f.message)
	by.Message, by.Since = "", nil
	return is && by == f.found
}

var besideOthers = []fault{
	{"overlapping ranges", func(SpecContext) {
		create("b", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "overlapping", Labels: map[string]string{corev1.LabelTopologyZone: "z"}}, Spec: corev1.NodeSpec{PodCIDR: "10.1.7.0/24", PodCIDRs: []string{"10.1.7.0/24"}}})
	}, finding.Finding{Severity: finding.Error, Check: "Pod and Service ranges", Cluster: "b", Reason: "AddressOverlap",
		Fix: "who owns the networks of the clusters gives one of the two another range; no command of Comity can", Docs: finding.Docs("troubleshooting.md#overlapping-ranges")},
		"the pod range 10.1.7.0/24 of cluster b overlaps the pod range 10.1.0.0/16 of cluster a"},
	{"CoreDNS without the zone", func(SpecContext) {
		change("b", &corev1.ConfigMap{ObjectMeta: named("kube-system", "coredns")}, func(c *corev1.ConfigMap) {
			c.Data["Corefile"] = ".:53 {\n    kubernetes cluster.local {\n        pods insecure\n    }\n}\n"
		})
	}, finding.Finding{Severity: finding.Error, Check: "DNS", Cluster: "b", Object: "ConfigMap kube-system/coredns", Reason: "ZoneMissing",
		Fix: "kubectl comity coredns enable b", Docs: finding.Docs("coredns.md#two-things-in-every-recipe")}, "the Corefile does not have the zone clusterset.local"},
	{"the CoreDNS of kubeadm 1.34", func(SpecContext) {
		change("b", &appsv1.Deployment{ObjectMeta: named("kube-system", "coredns")}, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Image = "registry.k8s.io/coredns/coredns:v1.12.1"
		})
	}, finding.Finding{Severity: finding.Error, Check: "DNS", Cluster: "b", Object: "Deployment kube-system/coredns", Reason: "VersionTooOld",
		Fix: "kubectl --context b -n kube-system set image deployment/coredns coredns=registry.k8s.io/coredns/coredns:v1.12.4", Docs: finding.Docs("coredns.md#which-version")},
		"CoreDNS is 1.12.1"},
	{"CoreDNS without the right", func(SpecContext) {
		change("b", &rbacv1.ClusterRole{ObjectMeta: named("", "comity-coredns")}, func(r *rbacv1.ClusterRole) { r.Rules = nil })
	}, finding.Finding{Severity: finding.Error, Check: "DNS", Cluster: "b", Object: "ServiceAccount kube-system/coredns", Reason: "Forbidden",
		Fix: "kubectl comity coredns enable b", Docs: finding.Docs("coredns.md#two-things-in-every-recipe")}, "may not list and watch ServiceImports"},
	{"a NodeLocal DNSCache that does not forward the zone", func(SpecContext) {
		labels := map[string]string{"k8s-app": "node-local-dns"}
		create("b", &corev1.ConfigMap{ObjectMeta: named("kube-system", "node-local-dns"), Data: map[string]string{"Corefile": "cluster.local:53 {\n    forward . 10.96.0.10\n}\n"}},
			&appsv1.DaemonSet{ObjectMeta: named("kube-system", "node-local-dns"), Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "cache", Image: "x"}}}}}})
	}, finding.Finding{Severity: finding.Error, Check: "DNS", Cluster: "b", Object: "ConfigMap kube-system/node-local-dns", Reason: "ZoneNotForwarded",
		Fix: "add to the Corefile in it a copy of the server block of the cluster's own domain, for clusterset.local:53 and without its line health; " +
			"then kubectl --context b -n kube-system rollout restart daemonset/node-local-dns", Docs: finding.Docs("coredns.md#nodelocal-dnscache")}, "has no server block for clusterset.local"},
	{"a NetworkPolicy that admits no remote address", func(SpecContext) {
		export("closed")
		create("a", &networkingv1.NetworkPolicy{ObjectMeta: named("closed", "own-only"), Spec: networkingv1.NetworkPolicySpec{
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}}}}})
	}, finding.Finding{Severity: finding.Error, Check: "NetworkPolicies", Cluster: "a", Object: "NetworkPolicy closed/own-only", Reason: "NotAdmitted",
		Fix: "kubectl comity networkpolicy closed/web a | kubectl --context a apply -f -", Docs: finding.Docs("troubleshooting.md#networkpolicy")},
		"Pods of exported Service closed/web, such as web, admit no address of cluster b (10.2.0.0/16, spec.acceptedCIDRs of Peer b)"},
	{"a name that another object has", func(ctx SpecContext) {
		export("taken")
		e := &mcsv1beta1.ServiceExport{}
		Expect(api["a"].Get(ctx, client.ObjectKey{Namespace: "taken", Name: "web"}, e)).To(Succeed())
		e.Status.Conditions = []metav1.Condition{{Type: "Available", Status: metav1.ConditionFalse, Reason: "NameTaken", Message: "NameTaken in b: others have the names", LastTransitionTime: metav1.Now()}}
		Expect(api["a"].Status().Update(ctx, e)).To(Succeed())
	}, finding.Finding{Severity: finding.Error, Check: "names", Cluster: "a", Object: "ServiceExport taken/web", Reason: "NameTaken",
		Fix: "see which object it is, and what deletes it: kubectl comity trace taken/web a b", Docs: finding.Docs("troubleshooting.md#not-imported")},
		"Available is False (NameTaken): NameTaken in b: others have the names"},
	{"an expired certificate of the webhook", func(SpecContext) {
		change("a", &corev1.Secret{ObjectMeta: named(comity, "comity-webhook-cert")}, func(s *corev1.Secret) { s.Data[corev1.TLSCertKey] = expired() })
	}, finding.Finding{Severity: finding.Error, Check: "webhook", Cluster: "a", Object: "Secret comity-system/comity-webhook-cert", Reason: "CertificateNotTrusted",
		Fix: "kubectl --context a -n comity-system delete secret comity-webhook-cert", Docs: finding.Docs("install.md#without-cert-manager")}, "certificate has expired"},
	{"rights that the agent lost", func(SpecContext) {
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
		"the agent may not create endpointslices.discovery.k8s.io; patch endpointslices.discovery.k8s.io; update endpointslices.discovery.k8s.io; delete endpointslices.discovery.k8s.io"},
	{"definitions that do not serve v1alpha1", func(SpecContext) {
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
		"does not serve ServiceExport, ServiceImport of multicluster.x-k8s.io/v1alpha1, which CoreDNS, Envoy Gateway and Istio read"},
	{"a peer that is lost", func(ctx SpecContext) {
		peer := &v1alpha1.Peer{}
		Expect(api["b"].Get(ctx, client.ObjectKey{Name: "a"}, peer)).To(Succeed())
		meta.SetStatusCondition(&peer.Status.Conditions, metav1.Condition{Type: v1alpha1.PeerConnected, Status: metav1.ConditionFalse, Reason: "Lost", Message: "no heartbeat"})
		Expect(api["b"].Status().Update(ctx, peer)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { connect(ctx, api["b"]) })
	}, finding.Finding{Severity: finding.Error, Check: "peers", Cluster: "b", Object: "Peer a", Reason: "Lost",
		Fix: "start the agent of cluster a: kubectl --context a get pods -A -l app.kubernetes.io/name=comity", Docs: finding.Docs("troubleshooting.md#connection")}, "Connected is False (Lost): no heartbeat"},
	{"a Node without a zone", func(SpecContext) {
		create("b", &corev1.Node{ObjectMeta: named("", "nowhere")})
	}, finding.Finding{Severity: finding.Warning, Check: "zones of Nodes", Cluster: "b", Object: "Node nowhere", Reason: "ZoneMissing",
		Fix: "kubectl --context b label node nowhere topology.kubernetes.io/zone=ZONE", Docs: finding.Docs("settings.md#annotations")}, "1 of 3 Nodes have no label"},
	{"another implementation", func(SpecContext) {
		create("b", &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"app.kubernetes.io/managed-by": "submariner"}},
			Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Port: 80}}}})
	}, finding.Finding{Severity: finding.Warning, Check: "other implementations", Cluster: "b", Object: "ServiceImport default/web", Reason: "ForeignImport",
		Fix: "switch the other one off, or let it import: helm upgrade --install comity oci://ghcr.io/comity-mcs/charts/comity --kube-context b --namespace comity-system" +
			" --reset-then-reuse-values --set sync.import=false", Docs: finding.Docs("settings.md#modes")}, "it belongs to submariner"},
}

// hiding keep others from being looked for.
var hiding = []fault{
	{"a stopped agent", func(ctx SpecContext) {
		pod := &corev1.Pod{ObjectMeta: named(comity, "comity-0")}
		Expect(api["a"].Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		runs(ctx, api["a"], pod, corev1.PodFailed)
		DeferCleanup(func(ctx SpecContext) { runs(ctx, api["a"], pod, corev1.PodRunning) })
	}, finding.Finding{Severity: finding.Error, Check: "agent", Cluster: "a", Object: "Deployment comity-system/comity", Reason: "NotRunning",
		Fix: "kubectl --context a -n comity-system scale deployment comity --replicas=2", Docs: finding.Docs("troubleshooting.md#connection")}, "no replica of the agent leads"},
	{"a webhook without a CA bundle", func(SpecContext) {
		change("a", &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named("", "comity")}, func(w *admissionregistrationv1.ValidatingWebhookConfiguration) {
			w.Webhooks[0].ClientConfig.CABundle = nil
		})
	}, finding.Finding{Severity: finding.Error, Check: "webhook", Cluster: "a", Object: "ValidatingWebhookConfiguration comity", Reason: "CABundleMissing",
		Fix: "kubectl --context a get pods -A -l app.kubernetes.io/name=cainjector", Docs: finding.Docs("install.md#without-cert-manager")}, "has no CA bundle"},
}
