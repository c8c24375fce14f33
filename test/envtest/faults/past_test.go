// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/status/condition"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

// nextTry bounds how long the informers of a member wait until they read again: up to 30 s,
// longer with every outage.
const nextTry = 90 * time.Second

var _ = Describe("FAULT 2 and 4: the API server of b is away for a while, and its etcd is restored from the past", func() {
	const ns, here = "restored", "restored-here" // which b and a export in
	It("others follow the restored truth once it was read as a whole, and keep what it does not have; b follows what is published, and addresses stay", func(ctx SpecContext) {
		setUp(ctx, ns, here)
		exportOne(ctx, b, ns, "old", 8080, "10.96.0.1")
		exportOne(ctx, a, here, "stays", 8080, "10.96.1.1")
		exportOne(ctx, a, here, "ends", 8080, "10.96.1.2")
		Eventually(ctx, a.Backends(ns, "old")).Should(Equal([]string{"b/10.96.0.1"}))
		Eventually(ctx, func() []string { return b.AllBackends(ctx, here) }).Should(HaveLen(2))
		uid, service, ended := a.Derived(ctx, ns, "old").UID, b.Derived(ctx, here, "stays"), a.Derived(ctx, here, "ends")
		restore := b.Backup(ctx)
		exportOne(ctx, b, ns, "new", 8080, "10.96.0.3")
		change(ctx, b, ns, "old", "10.96.0.2")
		change(ctx, a, here, "stays", "10.96.1.3")
		Expect(a.Client.Delete(ctx, clusterset.Export(here, "ends"))).To(Succeed())
		exportOne(ctx, a, here, "later", 8080, "10.96.1.4")
		truth := []string{"a/10.96.1.3", "a/10.96.1.4"}
		Eventually(ctx, a.Backends(ns, "old")).Should(Equal([]string{"b/10.96.0.2"}))
		Eventually(ctx, a.Backends(ns, "new")).Should(Equal([]string{"b/10.96.0.3"}))
		Eventually(ctx, func() []string { return b.AllBackends(ctx, here) }).Should(Equal(truth))
		Eventually(ctx, func() error { return a.Client.Get(ctx, client.ObjectKeyFromObject(ended), ended) }).Should(Satisfy(apierrors.IsNotFound)) // a's own import of it

		from := time.Now()
		Expect(b.Kill(controlplane.APIServer)).To(Succeed())
		Eventually(ctx, a.PeerCondition("b", exchangev1alpha1.PeerConnected)).Should(HavePrefix("False/"))
		restore(ctx)
		b.KillAgent(ctx)
		Eventually(ctx, a.Backends(ns, "old")).WithTimeout(nextTry).Should(Equal([]string{"b/10.96.0.1"}))
		By("keeping what the past does not have until that is confirmed")
		Eventually(ctx, a.ImportCondition(ns, "new", condition.TypeSourceMissing)).WithTimeout(nextTry).Should(ContainSubstring("kubectl comity confirm missing b"))
		Expect(a.AllBackends(ctx, ns)).To(Equal([]string{"b/10.96.0.1", "b/10.96.0.3"}))
		awaitEvent(ctx, members.ReasonStoreRestored)
		b.AwaitReady(ctx)
		a.ConfirmMissing(ctx, "b")
		Eventually(ctx, func() error {
			return a.Client.Get(ctx, client.ObjectKeyFromObject(clusterset.Import(ns, "new")), clusterset.Import(ns, "new"))
		}).Should(Satisfy(apierrors.IsNotFound))
		Expect(a.Derived(ctx, ns, "old").UID).To(Equal(uid))
		By("importing in b what is published, and nothing that was withdrawn since")
		Eventually(ctx, func() []string { return b.AllBackends(ctx, here) }).WithTimeout(nextTry).Should(Equal(truth))
		Expect(b.Derived(ctx, here, "stays").UID).To(Equal(service.UID))
		Eventually(ctx, held(b, here)).Should(BeEmpty())
		By("exporting again")
		exportOne(ctx, b, ns, "after", 8080, "10.96.0.4")
		Eventually(ctx, a.Backends(ns, "after")).Should(Equal([]string{"b/10.96.0.4"}))
		clusterset.AwaitQuiet(ctx, a, b)
		a.HoldInvariants(from, func(w controlplane.Write) bool { // what the past does not have, and what a withdrew
			return w.Namespace == ns && (w.Name == "new" || strings.HasPrefix(w.Name, "derived-")) || strings.HasPrefix(w.Namespace, "comity-a")
		}, ns, here)
		Expect(a.AllBackends(ctx, ns)).To(Equal([]string{"b/10.96.0.1", "b/10.96.0.4"}))
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("FAULT 24: a namespace that is deleted and made again", func() {
	It("gets nothing while it goes, and everything when it is back", func(ctx SpecContext) {
		const ns = "again"
		setUp(ctx, ns)
		exportOne(ctx, b, ns, "web", 8080, "10.94.0.1")
		Eventually(ctx, a.Backends(ns, "web")).Should(Equal([]string{"b/10.94.0.1"}))
		before := a.Derived(ctx, ns, "web").UID

		By("deleting it, and what is in it, as the namespace controller does")
		typed, err := kubernetes.NewForConfig(a.RESTConfig())
		Expect(err).NotTo(HaveOccurred())
		clusterset.AwaitQuiet(ctx, a, b) // an earlier spec may have left a report to delete
		Expect(a.Client.Delete(ctx, clusterset.Namespace(ns))).To(Succeed())
		Eventually(ctx, b.ExportCondition(ns, "web", "Available")).Should(And(HavePrefix("False/NamespaceMissing: "), ContainSubstring(" a ")))
		from := time.Now() // a knows now that it goes
		change(ctx, b, ns, "web", "10.94.0.2")
		empty(ctx, a, ns)
		clusterset.AwaitQuiet(ctx, a, b)
		for _, w := range specs(a.AgentWrites(from)) { // what still stands may say how it is
			Expect(w.Namespace).NotTo(Equal(ns), "%s", clusterset.Describe([]controlplane.Write{w})[0])
		}
		Expect(a.AllBackends(ctx, ns)).To(BeEmpty())
		gone := clusterset.Get(ctx, a, clusterset.Namespace(ns))
		gone.Spec.Finalizers = []corev1.FinalizerName{}
		_, err = typed.CoreV1().Namespaces().Finalize(ctx, gone, metav1.UpdateOptions{})
		Expect(err).NotTo(HaveOccurred())

		By("making it again")
		Eventually(ctx, func() error { return a.Client.Create(ctx, clusterset.Namespace(ns)) }).Should(Succeed())
		Eventually(ctx, a.Backends(ns, "web")).Should(Equal([]string{"b/10.94.0.2"}))
		Eventually(ctx, a.ImportCondition(ns, "web", "Ready")).Should(HavePrefix("True/"))
		Expect(a.Derived(ctx, ns, "web").UID).NotTo(Equal(before))
		Eventually(ctx, b.ExportCondition(ns, "web", "Available")).Should(HavePrefix("True/Imported: "))
		clusterset.AwaitQuiet(ctx, a, b)
		a.HoldInvariants(from, func(w controlplane.Write) bool { return strings.HasPrefix(w.Namespace, "comity-a") }, ns) // what it tells of the namespace
		b.HoldInvariants(from, nil, ns)
	}, SpecTimeout(2*time.Minute))
})
