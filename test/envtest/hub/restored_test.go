// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
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

// isLost reports whether the record of ServiceExport web of a is marked as lost.
func isLost(namespace string) func(Gomega, context.Context) bool {
	return func(g Gomega, ctx context.Context) bool {
		record := &exchangev1alpha1.ExportRecord{}
		g.Expect(theHub.client.Get(ctx, client.ObjectKey{Namespace: "comity-a", Name: model.RecordName(namespace, "web")}, record)).To(Succeed())
		return record.Spec.Lost
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
	// Each informer of a running agent waits up to 30 s for its next try.
	Eventually(isLost(after)).WithContext(ctx).WithTimeout(90 * time.Second).Should(BeTrue())
	Consistently(b.backends(after)).WithContext(ctx).WithTimeout(10 * time.Second).Should(ConsistOf("a/" + lost))
	Expect(a.client.Get(ctx, client.ObjectKey{Namespace: after, Name: "web"}, &mcsv1beta1.ServiceExport{})).NotTo(Succeed(), "the restored store has the ServiceExport")
	Expect(published(ctx, after)).To(Equal([]string{"comity-a"}))
	Expect(isLost(before)(NewGomega(Fail), ctx)).To(BeFalse())

	By("withdrawing what the backup has")
	a.unexport(ctx, before)
	Eventually(b.backends(before)).WithContext(ctx).Should(BeEmpty())
	By("exporting again what it does not have, and withdrawing that")
	again := a.export(ctx, after, "")
	Eventually(b.backends(after)).WithContext(ctx).Should(ConsistOf("a/" + again))
	Eventually(isLost(after)).WithContext(ctx).Should(BeFalse())
	a.unexport(ctx, after)
	Eventually(b.backends(after)).WithContext(ctx).Should(BeEmpty())
	a.awaitReady(ctx)
},
	Entry("with its agent", SpecTimeout(4*time.Minute), true),
	Entry("while its agent runs", SpecTimeout(4*time.Minute), false),
)
