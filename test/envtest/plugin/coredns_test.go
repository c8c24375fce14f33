// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const corefile = `.:53 {
    errors # all
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
    }
    cache 30 {
       disable success cluster.local
    }
    reload
}
`

const enabled = `.:53 {
    errors # all
    kubernetes cluster.local clusterset.local in-addr.arpa ip6.arpa {
       multicluster clusterset.local
       pods insecure
    }
    cache 30 {
       disable success cluster.local clusterset.local
    }
    reload
}
`

// coreDNS is what kubeadm makes, with no replica: nothing runs Pods here.
func coreDNS(image, text string) []client.Object {
	labels := map[string]string{"k8s-app": "kube-dns"}
	meta := metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"}
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"Corefile": text}},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](0),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{ServiceAccountName: "coredns", Containers: []corev1.Container{{Name: "coredns", Image: image}}},
			},
		}},
	}
}

// settle says what the Deployment's controller would.
func settle() {
	GinkgoHelper()
	var d appsv1.Deployment
	Expect(target.Client.Get(scratch, client.ObjectKey{Namespace: "kube-system", Name: "coredns"}, &d)).To(Succeed())
	d.Status.ObservedGeneration = d.Generation + 1
	Expect(target.Client.Status().Update(scratch, &d)).To(Succeed())
}

func stored() string {
	GinkgoHelper()
	var config corev1.ConfigMap
	Expect(target.Client.Get(scratch, client.ObjectKey{Namespace: "kube-system", Name: "coredns"}, &config)).To(Succeed())
	return config.Data["Corefile"]
}

func roleGone() bool {
	GinkgoHelper()
	for _, object := range []client.Object{&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}} {
		err := target.Client.Get(scratch, client.ObjectKey{Name: "comity-coredns"}, object)
		if !apierrors.IsNotFound(err) {
			Expect(err).NotTo(HaveOccurred())
			return false
		}
	}
	return true
}

var _ = Describe("coredns", func() {
	const image = "registry.k8s.io/coredns/coredns:v1.12.4"

	It("enables and disables the zone, each once", func() {
		create(coreDNS(image, corefile)...)
		settle()

		dry := run("coredns", "enable", "a", "--dry-run")
		Expect(dry.code).To(BeZero(), dry.err)
		Expect(dry.out).To(And(ContainSubstring("+       multicluster clusterset.local"), ContainSubstring("+ClusterRole and ClusterRoleBinding comity-coredns")))
		Expect(stored()).To(Equal(corefile))
		Expect(roleGone()).To(BeTrue())

		first := run("coredns", "enable", "a")
		Expect(first.code).To(BeZero(), first.err)
		Expect(first.out).To(ContainSubstring("-    kubernetes cluster.local in-addr.arpa ip6.arpa {\n+    kubernetes cluster.local clusterset.local in-addr.arpa ip6.arpa {\n"))
		Expect(stored()).To(Equal(enabled))
		var role rbacv1.ClusterRole
		Expect(target.Client.Get(scratch, client.ObjectKey{Name: "comity-coredns"}, &role)).To(Succeed())
		Expect(role.Rules).To(Equal([]rbacv1.PolicyRule{{APIGroups: []string{"multicluster.x-k8s.io"}, Resources: []string{"serviceimports"}, Verbs: []string{"list", "watch"}}}))

		var before corev1.ConfigMap
		Expect(target.Client.Get(scratch, client.ObjectKey{Namespace: "kube-system", Name: "coredns"}, &before)).To(Succeed())
		Eventually(func() string { return run("coredns", "enable", "a").out }).Should(ContainSubstring("nothing to change"), "once the API server knows the role")
		var after corev1.ConfigMap
		Expect(target.Client.Get(scratch, client.ObjectKeyFromObject(&before), &after)).To(Succeed())
		Expect(after.ResourceVersion).To(Equal(before.ResourceVersion))

		settle()
		undone := run("coredns", "disable", "a")
		Expect(undone.code).To(BeZero(), undone.err)
		Expect(undone.out).To(And(ContainSubstring("-ClusterRole and ClusterRoleBinding comity-coredns"), ContainSubstring("every replica of CoreDNS has the change")))
		Expect(stored()).To(Equal(corefile))
		Expect(roleGone()).To(BeTrue())
		Expect(run("coredns", "disable", "a").out).To(ContainSubstring("nothing to change"))
	})

	It("makes no role where CoreDNS may read ServiceImports already", func() {
		create(coreDNS(image, corefile)...)
		settle()
		create(
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{"multicluster.x-k8s.io"}, Resources: []string{"serviceimports"}, Verbs: []string{"get", "list", "watch"}}}},
			&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "by-hand"},
				Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kube-system", Name: "coredns"}}},
		)
		Eventually(func() string { return run("coredns", "enable", "--dry-run").out }).ShouldNot(ContainSubstring("ClusterRole"))
		done := run("coredns", "enable")
		Expect(done.code).To(BeZero(), done.err)
		Expect(roleGone()).To(BeTrue())
	})

	It("restarts CoreDNS", func() {
		create(coreDNS(image, corefile)...)
		settle()
		done := run("coredns", "enable")
		Expect(done.code).To(BeZero(), done.err)
		var d appsv1.Deployment
		Expect(target.Client.Get(scratch, client.ObjectKey{Namespace: "kube-system", Name: "coredns"}, &d)).To(Succeed())
		Expect(d.Spec.Template.Annotations).To(HaveKey("comity.dev/corefile"))

		By("finishing a change that was interrupted before the restart")
		delete(d.Spec.Template.Annotations, "comity.dev/corefile")
		Expect(target.Client.Update(scratch, &d)).To(Succeed())
		settle()
		again := run("coredns", "enable")
		Expect(again.code).To(BeZero(), again.err)
		Expect(again.out).To(And(ContainSubstring("Deployment kube-system/coredns restarts"), ContainSubstring("waiting until CoreDNS has restarted")))
		Expect(target.Client.Get(scratch, client.ObjectKeyFromObject(&d), &d)).To(Succeed())
		Expect(d.Spec.Template.Annotations).To(HaveKey("comity.dev/corefile"))
		settle()
		run("coredns", "disable")
	})

	It("says after a bounded wait that CoreDNS does not serve the change", func() {
		create(coreDNS(image, corefile)...)
		var d appsv1.Deployment
		Expect(target.Client.Get(scratch, client.ObjectKey{Namespace: "kube-system", Name: "coredns"}, &d)).To(Succeed())
		d.Spec.Replicas = ptr.To[int32](2)
		Expect(target.Client.Update(scratch, &d)).To(Succeed())
		done := run("coredns", "enable", "--timeout", "3s")
		Expect(done.code).To(Equal(3))
		Expect(done.err).To(And(ContainSubstring("does not serve the change after 3s"), ContainSubstring("0 of 2 replicas"), ContainSubstring("repeat the command")))
		d.Spec.Replicas = ptr.To[int32](0)
		d.ResourceVersion = ""
		Expect(target.Client.Update(scratch, &d)).To(Succeed())
		settle()
		Expect(run("coredns", "disable").code).To(BeZero())
	})

	DescribeTable("changes nothing and says what to do", func(image, text string, extra []client.Object, want ...string) {
		create(append(coreDNS(image, text), extra...)...)
		for _, verb := range []string{"enable"} {
			got := run("coredns", verb, "a")
			Expect(got.code).To(Equal(2))
			for _, part := range want {
				Expect(got.err).To(ContainSubstring(part))
			}
		}
		Expect(stored()).To(Equal(text))
		Expect(roleGone()).To(BeTrue())
	},
		Entry("where CoreDNS is too old", "registry.k8s.io/coredns/coredns:v1.11.3", corefile, nil,
			`context "a": nothing is changed: CoreDNS is 1.11.3`, "set image deployment/coredns coredns="),
		Entry("where a provider reads additions from elsewhere", image, corefile,
			[]client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns-custom"}}}, "coredns-custom", "docs/coredns.md#azure-aks-k3s"),
		Entry("where another implementation serves the zone", image, "clusterset.local:53 {\n    forward . 10.0.0.1\n}\n"+corefile, nil,
			"ConfigMap kube-system/coredns, key Corefile", "takes all queries"),
	)

	It("writes to no cluster if one of them is refused", func() {
		create(coreDNS(image, corefile)...)
		got := run("coredns", "enable", "a", "dead")
		Expect(got.code).To(Equal(2))
		Expect(got.err).To(ContainSubstring(`context "dead"`))
		Expect(stored()).To(Equal(corefile))
	})

	It("says what NodeLocal DNSCache lacks", func() {
		create(coreDNS(image, corefile)...)
		settle()
		labels := map[string]string{"k8s-app": "node-local-dns"}
		meta := metav1.ObjectMeta{Namespace: "kube-system", Name: "node-local-dns"}
		create(
			&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"Corefile": "cluster.local:53 {\n    forward . 10.96.0.10\n    health 169.254.20.10:8080\n}\n.:53 {\n    forward . /etc/resolv.conf\n}\n"}},
			&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "node-cache", Image: "x"}}}}}},
		)
		got := run("coredns", "enable", "--dry-run")
		Expect(got.code).To(BeZero())
		Expect(got.err).To(ContainSubstring("add to the Corefile in it a copy of the server block of the cluster's own domain, for clusterset.local:53"), fmt.Sprint(got))
	})
})
