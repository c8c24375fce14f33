// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/install"
)

// backup copies the store of m, and writes more than is written until the end of a spec,
// so that the store comes to no version twice.
func (m *member) backup(ctx context.Context) (restore func(ctx context.Context)) {
	GinkgoHelper()
	data, copied := filepath.Join(m.Dir(), "etcd"), filepath.Join(GinkgoT().TempDir(), "etcd")
	Expect(m.Stop(controlplane.Etcd)).To(Succeed())
	Expect(os.CopyFS(copied, os.DirFS(data))).To(Succeed())
	Expect(m.Start(ctx, controlplane.Etcd)).To(Succeed())
	store, err := m.Store()
	Expect(err).NotTo(HaveOccurred())
	for range 2000 {
		Expect(store.Put(ctx, "an-hour", "of writes")).To(Succeed())
	}
	Eventually(func() error { return m.client.List(ctx, &mcsv1beta1.ServiceExportList{}) }).Should(Succeed())
	return func(ctx context.Context) {
		GinkgoHelper()
		Expect(m.Kill(controlplane.APIServer)).To(Succeed())
		Expect(m.Kill(controlplane.Etcd)).To(Succeed())
		Expect(os.RemoveAll(data)).To(Succeed())
		Expect(os.CopyFS(data, os.DirFS(copied))).To(Succeed())
		Expect(m.Start(ctx, controlplane.Etcd)).To(Succeed())
		Expect(m.Start(ctx, controlplane.APIServer)).To(Succeed())
	}
}

// awaitReady waits for the agent, which may have to start again first.
func (m *member) awaitReady(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() error { return m.agent.WaitReady(ctx, ready) }).WithContext(ctx).Should(Succeed())
}

// unexport deletes ServiceExport web.
func (m *member) unexport(ctx context.Context, namespace string) {
	GinkgoHelper()
	Expect(m.client.Delete(ctx, &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}})).To(Succeed())
}

// storeVersion is the version of the store of a that its Lease in the hub names.
func storeVersion(g Gomega, ctx context.Context) int { //nolint:revive // Eventually passes itself first
	lease := &coordinationv1.Lease{}
	g.Expect(theHub.client.Get(ctx, client.ObjectKey{Namespace: "comity-a", Name: "a"}, lease)).To(Succeed())
	version, err := strconv.Atoi(lease.Annotations[model.AnnotationStoreVersion])
	g.Expect(err).NotTo(HaveOccurred())
	return version
}

// mark names the last restore after which a had ServiceExport web, as its record says.
func mark(namespace string) func(Gomega, context.Context) string {
	return func(g Gomega, ctx context.Context) string {
		record := &exchangev1alpha1.ExportRecord{}
		g.Expect(theHub.client.Get(ctx, client.ObjectKey{Namespace: "comity-a", Name: model.RecordName(namespace, "web")}, record)).To(Succeed())
		return record.Annotations[model.AnnotationStoreRestored]
	}
}

// The hub keeps the records of what a restored store does not have any more.
var _ = DescribeTable("the store of an exporter is restored from a backup,", Serial, func(ctx SpecContext, restart bool) {
	a, b := members["a"], members["b"]
	before, after := newNamespace(ctx), newNamespace(ctx)
	kept := a.export(ctx, before, "")
	Eventually(b.backends(before)).WithContext(ctx).Should(ConsistOf("a/" + kept))
	stop := install.KeepRunning(a.agent.Start) // without its API server it ends, unless that is back soon
	DeferCleanup(func() { stop() })
	restore := a.backup(ctx)
	lost := a.export(ctx, after, "")
	Eventually(b.backends(after)).WithContext(ctx).Should(ConsistOf("a/" + lost))
	export := &mcsv1beta1.ServiceExport{}
	Expect(a.client.Get(ctx, client.ObjectKey{Namespace: after, Name: "web"}, export)).To(Succeed())
	version, err := strconv.Atoi(export.ResourceVersion)
	Expect(err).NotTo(HaveOccurred())
	Eventually(storeVersion).WithContext(ctx).Should(BeNumerically(">=", version))

	earlier := mark(after)(NewGomega(Fail), ctx)

	By("restoring it")
	if restart {
		stop()
		Expect(a.agent.Kill()).To(Succeed())
	}
	restore(ctx)
	if restart {
		stop = install.KeepRunning(a.agent.Start)
	}
	a.awaitReady(ctx)
	Eventually(a.toldOfComity()).WithContext(ctx).Should(ContainElement(ContainSubstring("its store was restored from a backup")))
	Eventually(mark(before)).WithContext(ctx).ShouldNot(Equal(earlier))
	Consistently(b.backends(after)).WithContext(ctx).WithTimeout(10 * time.Second).Should(ConsistOf("a/" + lost))
	Expect(a.client.Get(ctx, client.ObjectKey{Namespace: after, Name: "web"}, export)).NotTo(Succeed(), "the restored store has the ServiceExport")
	Expect(published(ctx, after)).To(Equal([]string{"comity-a"}))
	Expect(mark(after)(NewGomega(Fail), ctx)).To(Equal(earlier))

	By("withdrawing what the backup has")
	a.unexport(ctx, before)
	Eventually(b.backends(before)).WithContext(ctx).Should(BeEmpty())
	By("exporting again what it does not have, and withdrawing that")
	again := a.export(ctx, after, "")
	Eventually(b.backends(after)).WithContext(ctx).Should(ConsistOf("a/" + again))
	Eventually(mark(after)).WithContext(ctx).ShouldNot(Equal(earlier))
	a.unexport(ctx, after)
	Eventually(b.backends(after)).WithContext(ctx).Should(BeEmpty())
	a.awaitReady(ctx)
},
	Entry("with its agent", SpecTimeout(4*time.Minute), true),
	Entry("while its agent runs", SpecTimeout(4*time.Minute), false),
)
