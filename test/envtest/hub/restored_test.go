// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/install"
)

// nextTry bounds how long informers wait until they read again: up to 30 s, longer with
// every outage.
const nextTry = 90 * time.Second

// backup copies the store of m; what it returns restores the copy.
func (m *member) backup(ctx context.Context) (restore func(ctx context.Context)) {
	GinkgoHelper()
	again, err := m.Backup(ctx, GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	Eventually(ctx, func() error {
		return m.client.List(ctx, &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}})
	}).Should(Succeed())
	return func(ctx context.Context) {
		GinkgoHelper()
		Expect(again(ctx)).To(Succeed())
	}
}

// awaitReady waits until the agent of m, which may have to be started again, is ready.
func (m *member) awaitReady(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() error { return m.agent.WaitReady(ctx, ready) }).WithContext(ctx).Should(Succeed())
}

// unexport deletes ServiceExport web.
func (m *member) unexport(ctx context.Context, namespace string) {
	GinkgoHelper()
	Expect(m.client.Delete(ctx, &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}})).To(Succeed())
}

// recordOf is what a publishes of Service web for all members.
func recordOf(namespace string) *exchangev1alpha1.ExportRecord {
	return &exchangev1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-a", Name: model.RecordName(namespace, "web")}}
}

// isLost reports whether a marked its record of Service web as lost.
func isLost(namespace string) func(Gomega, context.Context) bool {
	return func(g Gomega, ctx context.Context) bool {
		record := recordOf(namespace)
		g.Expect(theHub.client.Get(ctx, client.ObjectKeyFromObject(record), record)).To(Succeed())
		return record.Spec.Lost
	}
}

// The hub keeps the records of what a restored store does not have any more.
var _ = Describe("FAULT 4: the store of an exporter is restored from a backup", Serial, func() {
	It("what it does not have stays published until that is confirmed, and it withdraws what it has", func(ctx SpecContext) {
		a, b := members["a"], members["b"]
		before, after, ended := newNamespace(ctx), newNamespace(ctx), newNamespace(ctx)
		kept := a.export(ctx, before, "")
		Eventually(b.backends(before)).WithContext(ctx).Should(ConsistOf("a/" + kept))
		DeferCleanup(install.KeepRunning(a.agent.Start)) // without its API server it ends, unless that is back soon
		restore := a.backup(ctx)
		a.awaitReady(ctx)
		lost := map[string]string{}
		for _, namespace := range []string{after, ended} {
			lost[namespace] = "a/" + a.export(ctx, namespace, "")
			Eventually(b.backends(namespace)).WithContext(ctx).Should(ConsistOf(lost[namespace]))
		}

		By("restoring it while its agent runs")
		restore(ctx)
		a.awaitReady(ctx)
		for namespace, backend := range lost {
			Eventually(isLost(namespace)).WithContext(ctx).WithTimeout(nextTry).Should(BeTrue())
			Expect(b.backends(namespace)(NewGomega(Fail), ctx)).To(ConsistOf(backend))
			Expect(published(ctx, namespace)).To(Equal([]string{"comity-a"}))
			export := &mcsv1beta1.ServiceExport{}
			Expect(a.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "web"}, export)).NotTo(Succeed(), "the restored store has the ServiceExport")
		}
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
		By("confirming that the other one is gone")
		confirmed := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, model.AnnotationConfirmLost)
		Expect(theHub.client.Patch(ctx, recordOf(ended), client.RawPatch(types.MergePatchType, confirmed))).To(Succeed())
		Eventually(b.backends(ended)).WithContext(ctx).Should(BeEmpty())
	}, SpecTimeout(4*time.Minute))
})

var _ = Describe("FAULT 4: the hub is away, and its store is restored from a backup", Serial, func() {
	It("what is exported is published again, what ended is withdrawn again, and no importer loses anything", func(ctx SpecContext) {
		a, b, c := members["a"], members["b"], members["c"]
		before, after, ended, scoped := newNamespace(ctx), newNamespace(ctx), newNamespace(ctx), newNamespace(ctx)
		a.export(ctx, before, "")
		a.export(ctx, ended, "")
		b.export(ctx, scoped, "a,c")
		for _, namespace := range []string{before, ended, scoped} {
			Eventually(c.backends(namespace)).WithContext(ctx).Should(HaveLen(1))
		}
		restore := theHub.backup(ctx)
		moved := a.move(ctx, before)
		later := a.export(ctx, after, "")
		a.unexport(ctx, ended)
		for _, m := range []*member{b, c} {
			Eventually(m.backends(before)).WithContext(ctx).Should(ConsistOf("a/"+moved), m.ID())
			Eventually(m.backends(after)).WithContext(ctx).Should(ConsistOf("a/"+later), m.ID())
			Eventually(m.backends(ended)).WithContext(ctx).Should(BeEmpty(), m.ID())
		}
		records, objects := published(ctx, scoped), map[*member]map[string]string{}
		for _, m := range members {
			Eventually(func() map[string]string {
				objects[m] = m.imported(ctx, after)
				return objects[m]
			}).WithContext(ctx).Should(HaveLen(3), "slice, Service and ServiceImport in %s", m.ID())
		}

		Expect(theHub.Kill(controlplane.APIServer)).To(Succeed())
		By("starting an agent again that can neither read the hub nor write there")
		b.restart(ctx)
		other := b.move(ctx, scoped)
		By("restoring the hub")
		restore(ctx)
		Eventually(func() []string { return published(ctx, after) }).WithContext(ctx).WithTimeout(nextTry).Should(Equal([]string{"comity-a"}))
		Eventually(func() []string { return published(ctx, ended) }).WithContext(ctx).WithTimeout(nextTry).Should(BeEmpty())
		last := a.move(ctx, after)
		for _, m := range []*member{b, c} {
			Eventually(m.backends(after)).WithContext(ctx).WithTimeout(nextTry).Should(ConsistOf("a/"+last), m.ID())
			Eventually(m.backends(before)).WithContext(ctx).Should(ConsistOf("a/"+moved), m.ID())
			Eventually(m.backends(ended)).WithContext(ctx).Should(BeEmpty(), m.ID())
		}
		Eventually(c.backends(scoped)).WithContext(ctx).Should(ConsistOf("b/" + other))
		Expect(published(ctx, scoped)).To(Equal(records))
		for _, m := range members {
			Expect(m.imported(ctx, after)).To(Equal(objects[m]), "nothing was deleted and created again in %s", m.ID())
		}
	}, SpecTimeout(4*time.Minute))
})
