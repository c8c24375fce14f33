// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

var _ = Describe("kubectl comity with a hub", Ordered, func() {
	const namespace = "with-hub"
	var p *plugin

	BeforeAll(forgetAll)

	BeforeEach(func(ctx SpecContext) {
		p = &plugin{kubeconfig: all().write()}
		for at, id := range map[model.ClusterID]model.ClusterID{"a": "spoke-a", "b": "spoke-b"} {
			info := agentOf(at)
			info.ID, info.Mode = id, model.ExchangeHub
			installed(ctx, at, info, namespace, "10."+string(rune('1'+at[0]-'a'))+".0.5")
		}
	})

	inHub := func(ctx SpecContext, at model.ClusterID) *rest.Config {
		GinkgoHelper()
		secret := &corev1.Secret{}
		Expect(admin(at).Get(ctx, client.ObjectKey{Namespace: namespace, Name: model.ExchangeSecret}, secret)).To(Succeed())
		config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data[join.KubeconfigKey])
		Expect(err).NotTo(HaveOccurred())
		return config
	}

	It("joins members through it, and probes the hub from each", func(ctx SpecContext) {
		args := append([]string{"join", "a", "b", "--hub", "c"}, serverOf("c", "hub")...)
		out, _, err := p.run(ctx, args...)
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("the API server of the hub at https://127.0.0.1:"))
		Expect(p.probe.targets("spoke-a", "https:")).To(HaveEach(strings.TrimRight(clusters["c"].Host, "/")))
		Expect(p.probe.targets("spoke-a", "http:")).To(ConsistOf("http://10.2.0.5:8082/healthz"))
		Expect(connectTo(inHub(ctx, "a")).List(ctx, &v1alpha1.ExportRecordList{}, client.InNamespace("comity-spoke-b"))).To(Succeed())

		out, _, err = p.run(ctx, "join", "a", "b", "--hub", "c")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(MatchRegexp(`of clusterset prod: \d+ unchanged in`))
	})

	It("makes a Peer in each member, and accepts one that was made again, without its old credential", func(ctx SpecContext) {
		Expect(peerOf(ctx, "a", "spoke-b").Spec.ClusterUID).To(Equal(uidOf(ctx, "b")))
		old := connectTo(inHub(ctx, "b"))
		hub := &corev1.Namespace{}
		Expect(admin("c").Get(ctx, client.ObjectKey{Name: "comity-spoke-b"}, hub)).To(Succeed())
		hub.Annotations[model.AnnotationClusterUID] = "before"
		Expect(admin("c").Update(ctx, hub)).To(Succeed())
		peer := peerOf(ctx, "a", "spoke-b")
		peer.Spec.ClusterUID = "before"
		Expect(admin("a").Update(ctx, peer)).To(Succeed())
		secret := &corev1.Secret{}
		secret.Namespace, secret.Name = namespace, model.ExchangeSecret
		Expect(admin("b").Delete(ctx, secret)).To(Succeed())
		_, _, err := p.run(ctx, append([]string{"join", "a", "b", "--hub", "c"}, serverOf("c", "hub")...)...)
		Expect(err).To(MatchError(And(ContainSubstring("is that of another cluster with the id spoke-b (UID before, not "), ContainSubstring("join --replace"))))
		_, _, err = p.run(ctx, append([]string{"join", "a", "b", "--hub", "c", "--replace"}, serverOf("c", "hub")...)...)
		Expect(err).NotTo(HaveOccurred())
		Expect(peerOf(ctx, "a", "spoke-b").Spec.ClusterUID).To(Equal(uidOf(ctx, "b")))
		Eventually(func() error {
			return old.List(ctx, &v1alpha1.ExportRecordList{}, client.InNamespace("comity-spoke-a"))
		}).WithTimeout(cachedFor).Should(BeUnauthorized())
	})

	It("prints the hub's objects for Git", func(ctx SpecContext) {
		out, _, err := p.run(ctx, "join", "a", "b", "--hub", "c", "--dry-run", "-o", "json")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring(`"comity.dev/cluster": "hub"`))
		Expect(out).NotTo(ContainSubstring(`"kind": "Secret"`))
		Expect(out).To(And(ContainSubstring(`"kind": "Peer"`), ContainSubstring(`"comity.dev/cluster": "spoke-b"`)))
	})

	It("makes the old token of every member useless", func(ctx SpecContext) {
		old := connectTo(inHub(ctx, "a"))
		_, _, err := p.run(ctx, "rotate", "a", "b", "--hub", "c")
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() error {
			return connectTo(inHub(ctx, "a")).List(ctx, &v1alpha1.ExportRecordList{}, client.InNamespace("comity-spoke-b"))
		}).WithTimeout(cachedFor).Should(Succeed())
		Eventually(func() error {
			return old.List(ctx, &v1alpha1.ExportRecordList{}, client.InNamespace("comity-spoke-b"))
		}).WithTimeout(cachedFor).Should(BeUnauthorized())
	})

	It("does not leave without naming the hub", func(ctx SpecContext) {
		_, _, err := p.run(ctx, "leave", "a", "--purge")
		Expect(err).To(MatchError(ContainSubstring("cluster spoke-a publishes in a hub and has the peers spoke-b; name the hub's context with --hub")))
		Expect(command.CodeOf(err)).To(Equal(command.ExitRefused))
	})

	It("takes a member out, in the hub and in those that remain", func(ctx SpecContext) {
		agentsRemove()
		_, _, err := p.run(ctx, "leave", "a", "b", "--hub", "c", "--yes")
		Expect(err).NotTo(HaveOccurred())
		Expect(exists(ctx, "c", &corev1.ServiceAccount{}, join.DefaultNamespace, "member-spoke-a")).To(BeFalse())
		Expect(exists(ctx, "c", &corev1.ServiceAccount{}, join.DefaultNamespace, "member-spoke-b")).To(BeTrue())
		for _, gone := range []string{"comity-spoke-a", "comity-spoke-a-to-spoke-b", "comity-spoke-b-to-spoke-a"} {
			Expect(exists(ctx, "c", &corev1.Namespace{}, "", gone)).To(BeFalse(), gone)
		}
		Expect(exists(ctx, "a", &corev1.Secret{}, namespace, model.ExchangeSecret)).To(BeFalse())
		Expect(exists(ctx, "b", &corev1.Secret{}, namespace, "peer-spoke-a")).To(BeFalse())
		Expect(exists(ctx, "b", &v1alpha1.Peer{}, "", "spoke-a")).To(BeFalse())
	})
})
