// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

var _ = Describe("FAULT 4: the etcd of a peer is restored from the past", func() {
	It("the restored truth is followed once it was read as a whole", func(ctx SpecContext) {
		const ns = "restored"
		healthy(ctx)
		for _, m := range []*clusterset.Member{a, b} {
			m.Create(ctx, clusterset.Namespace(ns))
		}
		DeferCleanup(func(ctx SpecContext) { withdrawAll(ctx, ns) }, NodeTimeout(2*time.Minute))
		exportOne(ctx, b, ns, "old", 8080, "10.96.0.1")
		Eventually(ctx, a.Backends(ns, "old")).Should(Equal([]string{"b/10.96.0.1"}))
		clusterset.AwaitQuiet(ctx, a, b)
		uid := a.Derived(ctx, ns, "old").UID

		By("taking a copy, and going on")
		data, backup := filepath.Join(b.Dir(), "etcd"), filepath.Join(b.Dir(), "etcd-backup")
		Expect(b.Stop(controlplane.Etcd)).To(Succeed())
		Expect(os.CopyFS(backup, os.DirFS(data))).To(Succeed())
		Expect(b.Start(ctx, controlplane.Etcd)).To(Succeed())
		b.AwaitReady(ctx)
		By("writing more than is written until the end, so that the store comes to no version twice")
		store, err := b.Store()
		Expect(err).NotTo(HaveOccurred())
		for range 2000 {
			Expect(store.Put(ctx, "an-hour", "of writes")).To(Succeed())
		}
		Eventually(ctx, func() error { return client.IgnoreAlreadyExists(b.Client.Create(ctx, clusterset.Service(ns, "new"))) }).Should(Succeed())
		b.Create(ctx, clusterset.Endpoints(ns, "new", "new-x", 8080, "10.96.0.3"), clusterset.Export(ns, "new"))
		change(ctx, b, ns, "old", "10.96.0.2")
		Eventually(ctx, a.Backends(ns, "old")).Should(Equal([]string{"b/10.96.0.2"}))
		Eventually(ctx, a.Backends(ns, "new")).Should(Equal([]string{"b/10.96.0.3"}))
		clusterset.AwaitQuiet(ctx, a, b)

		By("restoring it")
		from := time.Now()
		Expect(b.Kill(controlplane.APIServer)).To(Succeed())
		Expect(b.Kill(controlplane.Etcd)).To(Succeed())
		Expect(os.RemoveAll(data)).To(Succeed())
		Expect(os.Rename(backup, data)).To(Succeed())
		Expect(b.Start(ctx, controlplane.Etcd)).To(Succeed())
		Expect(b.Start(ctx, controlplane.APIServer)).To(Succeed())
		// Each informer of a waits up to 30 s for its next try, longer with every outage.
		const nextTry = 90 * time.Second
		Eventually(ctx, a.Backends(ns, "old")).WithTimeout(nextTry).Should(Equal([]string{"b/10.96.0.1"}))
		By("keeping what the past does not have until that is confirmed")
		Eventually(ctx, a.ImportCondition(ns, "new", "DeletionHeld")).WithTimeout(nextTry).Should(ContainSubstring("cluster b did not withdraw it"))
		Expect(a.AllBackends(ctx, ns)).To(Equal([]string{"b/10.96.0.1", "b/10.96.0.3"}))
		confirm(ctx, a)
		Eventually(ctx, func() error {
			return a.Client.Get(ctx, client.ObjectKeyFromObject(clusterset.Import(ns, "new")), clusterset.Import(ns, "new"))
		}).Should(Satisfy(apierrors.IsNotFound))
		Expect(a.Derived(ctx, ns, "old").UID).To(Equal(uid))
		awaitEvent(ctx, members.ReasonStoreRestored)
		b.AwaitReady(ctx)
		By("exporting again")
		exportOne(ctx, b, ns, "after", 8080, "10.96.0.4")
		Eventually(ctx, a.Backends(ns, "after")).Should(Equal([]string{"b/10.96.0.4"}))
		clusterset.AwaitQuiet(ctx, a, b)
		a.HoldInvariants(from, func(w controlplane.Write) bool { // what the past does not have
			return w.Namespace == ns && (w.Name == "new" || strings.HasPrefix(w.Name, "derived-")) || strings.HasPrefix(w.Namespace, "comity-a-to-b")
		})
		Expect(a.AllBackends(ctx, ns)).To(Equal([]string{"b/10.96.0.1", "b/10.96.0.4"}))
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("FAULT 24: a namespace that is deleted and made again", func() {
	It("gets nothing while it goes, and everything when it is back", func(ctx SpecContext) {
		const ns = "again"
		healthy(ctx)
		for _, m := range []*clusterset.Member{a, b} {
			m.Create(ctx, clusterset.Namespace(ns))
		}
		DeferCleanup(func(ctx SpecContext) { withdrawAll(ctx, ns) }, NodeTimeout(2*time.Minute))
		exportOne(ctx, b, ns, "web", 8080, "10.94.0.1")
		Eventually(ctx, a.Backends(ns, "web")).Should(Equal([]string{"b/10.94.0.1"}))
		clusterset.AwaitQuiet(ctx, a, b)
		before := a.Derived(ctx, ns, "web").UID

		By("deleting it, and what is in it, as the namespace controller does")
		typed, err := kubernetes.NewForConfig(a.RESTConfig())
		Expect(err).NotTo(HaveOccurred())
		Expect(a.Client.Delete(ctx, clusterset.Namespace(ns))).To(Succeed())
		from := time.Now()
		change(ctx, b, ns, "web", "10.94.0.2")
		Eventually(ctx, b.ExportCondition(ns, "web", "Available")).Should(And(HavePrefix("False/NamespaceMissing: "), ContainSubstring(" a ")))
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
		a.HoldInvariants(from, func(w controlplane.Write) bool { return strings.HasPrefix(w.Namespace, "comity-a") }) // what it tells of the namespace
		b.HoldInvariants(from, nil)
	}, SpecTimeout(2*time.Minute))
})
