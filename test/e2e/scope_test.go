// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/install"
)

var _ = Describe("An export from a to b alone", Ordered, kep("restricting-exports"), func() {
	key := types.NamespacedName{Namespace: "scoped", Name: "internal"}
	const shared, scoped = "comity-a", "comity-a-to-b"

	BeforeAll(func(ctx SpecContext) {
		for _, m := range bothMembers() {
			m.create(ctx, newNamespace(key.Namespace))
		}
		export := newExport(key.Namespace, key.Name)
		export.Labels = map[string]string{model.LabelExportTo: "b"}
		clusterA.create(ctx, newServer(key.Namespace, key.Name, 1), newService(key.Namespace, key.Name, corev1.ServiceTypeClusterIP), export)
		clusterA.expectExported(ctx, key, metav1.ConditionFalse)
	})

	It("is published where b alone may read, and works", func(ctx SpecContext) {
		Expect(clusterA.recordNamespaces(ctx, key)).To(ConsistOf(scoped))
		step("in a: the record of %s is in %s and not in %s", key, scoped, shared)
		pods := clusterA.awaitPods(ctx, key.Namespace, key.Name, 1)
		for _, m := range bothMembers() {
			m.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a")
			m.expectAnswers(ctx, hostOf(key), servicePort, pods...)
		}
	})

	It("cannot be read by another peer; and b can read that, and nothing else", func(ctx SpecContext) {
		// What joining a third cluster leaves in a.
		_, joined, err := join.Objects(nil, join.Cluster{ID: "a", Set: clusterSet, Namespace: install.Namespace, ServiceAccount: install.Account}, join.Cluster{ID: "c", Set: clusterSet})
		Expect(err).NotTo(HaveOccurred())
		for _, object := range joined[0] {
			err := clusterA.client.Create(ctx, object)
			Expect(client.IgnoreAlreadyExists(err)).To(Succeed())
			if err == nil {
				DeferCleanup(func(ctx SpecContext) {
					Expect(client.IgnoreNotFound(clusterA.client.Delete(ctx, object))).To(Succeed())
				})
			}
		}
		asC := rest.CopyConfig(clusterA.RESTConfig())
		asC.Impersonate.UserName = "system:serviceaccount:" + install.Namespace + ":" + model.PeerName("c")
		for name, peer := range map[string]struct {
			config *rest.Config
			own    bool // whether the export is for it
		}{"b": {clusterB.credentialFor(ctx, clusterA), true}, "c": {asC, false}} {
			reader, err := client.New(peer.config, client.Options{Scheme: scheme})
			Expect(err).NotTo(HaveOccurred())
			// Rights follow a role within moments, not at once.
			Eventually(ctx, reader.List).WithArguments(ctx, &exchangev1alpha1.ExportRecordList{}, client.InNamespace(shared)).Should(Succeed(), name)
			for _, list := range []client.ObjectList{&exchangev1alpha1.ExportRecordList{}, &discoveryv1.EndpointSliceList{}} {
				err = reader.List(ctx, list, client.InNamespace(scoped))
				if peer.own {
					Expect(err).NotTo(HaveOccurred(), "peer %s reads %T", name, list)
					Expect(namesOf(list)).NotTo(BeEmpty(), "%T for peer %s", list, name)
				} else {
					Expect(apierrors.IsForbidden(err)).To(BeTrue(), "peer %s reads %T: %v", name, list, err)
				}
			}
			for _, err := range map[string]error{
				"read Services":   reader.List(ctx, &corev1.ServiceList{}, client.InNamespace(key.Namespace)),
				"read Secrets":    reader.List(ctx, &corev1.SecretList{}, client.InNamespace(install.Namespace)),
				"write records":   reader.Create(ctx, &exchangev1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{Namespace: shared, Name: "x.y"}}),
				"delete a record": reader.Delete(ctx, &exchangev1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{Namespace: scoped, Name: model.RecordName(key.Namespace, key.Name)}}),
			} {
				Expect(apierrors.IsForbidden(err)).To(BeTrue(), "peer %s: %v", name, err)
			}
			step("in a: peer %s may read %s, may read %s: %v, and nothing else", name, shared, scoped, peer.own)
		}
	})

	It("is published to all when its scope is lifted, and the other way round", func(ctx SpecContext) {
		export := newExport(key.Namespace, key.Name)
		Expect(clusterA.patch(ctx, export, `{"metadata": {"annotations": {"comity.dev/export-to": null}}}`)).To(Succeed())
		Eventually(ctx, clusterA.recordNamespaces).WithArguments(ctx, key).Should(ConsistOf(shared))
		clusterB.expectImported(ctx, key, mcsv1beta1.ClusterSetIP, "a")
		Expect(clusterA.patch(ctx, export, `{"metadata": {"annotations": {"comity.dev/export-to": "b"}}}`)).To(Succeed())
		Eventually(ctx, clusterA.recordNamespaces).WithArguments(ctx, key).Should(ConsistOf(scoped))
		clusterB.expectAnswers(ctx, hostOf(key), servicePort, clusterA.awaitPods(ctx, key.Namespace, key.Name, 1)...)
	})
})

// credentialFor is what m holds to read peer, at the address that this machine has for it.
func (m *member) credentialFor(ctx SpecContext, peer *member) *rest.Config {
	GinkgoHelper()
	var secret corev1.Secret
	key := types.NamespacedName{Namespace: install.Namespace, Name: model.PeerName(model.ClusterID(peer.ID()))}
	Expect(m.client.Get(ctx, key, &secret)).To(Succeed())
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data[join.KubeconfigKey])
	Expect(err).NotTo(HaveOccurred())
	config.Host, config.Timeout = peer.RESTConfig().Host, requestTimeout
	return config
}
