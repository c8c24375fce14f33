// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/decide"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

// stated labels the statements of withdrawal that a spec made.
var stated = map[string]string{"faults": "stated"}

// state stores statements of withdrawal like that of export ended in a, past the API server,
// as weeks do; what it returns deletes them.
func state(ctx context.Context, ns string, count int) (clear func(context.Context)) {
	GinkgoHelper()
	store, err := a.Store()
	Expect(err).NotTo(HaveOccurred())
	path := func(i int) string {
		return fmt.Sprintf("exchange.comity.dev/exportrecords/%s/%s", model.ExchangeNamespace("a"), model.RecordName(ns, fmt.Sprint("ended-", i)))
	}
	each := func(do func(i int) error) {
		GinkgoHelper()
		var all errgroup.Group
		all.SetLimit(8)
		for i := range count {
			all.Go(func() error { return do(i) })
		}
		Expect(all.Wait()).To(Succeed())
	}
	withdrawn := clusterset.Get(ctx, a, &exchangev1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{Namespace: model.ExchangeNamespace("a"), Name: model.RecordName(ns, "ended")}})
	withdrawn.TypeMeta = metav1.TypeMeta{APIVersion: exchangev1alpha1.GroupVersion.String(), Kind: "ExportRecord"}
	each(func(i int) error {
		record, at := withdrawn.DeepCopy(), metav1.NewTime(time.Now().Add(-48*time.Hour+time.Duration(i)*time.Second))
		record.Spec.Service.Name = fmt.Sprint("ended-", i)
		record.Name, record.ResourceVersion = model.RecordName(ns, record.Spec.Service.Name), ""
		record.Labels["faults"] = stated["faults"]
		if _, has := record.Labels[model.LabelExportName]; has {
			record.Labels[model.LabelExportName] = record.Spec.Service.Name
		}
		record.UID, record.Spec.ExportUID = types.UID(fmt.Sprintf("48484848-4848-4848-8848-%012d", i)), types.UID(fmt.Sprintf("48484848-4848-4848-4848-%012d", i))
		record.Spec.ExportedAt, record.Spec.WithdrawnAt = at, &at
		return store.Put(ctx, path(i), record)
	})
	return func(ctx context.Context) {
		each(func(i int) error { return store.Delete(ctx, path(i)) })
	}
}

var _ = Describe("FAULT 48: a member that is not read for weeks", func() {
	const ns, surplus = "unread", 20
	It("lets no statement pile up, keeps no export from being imported, and what is frozen says by whom until the member is removed", func(ctx SpecContext) {
		setUp(ctx, ns)
		exportOne(ctx, b, ns, "web", 8080, "10.89.0.1")
		exportOne(ctx, b, ns, "alone", 8080, "10.89.0.2")
		Eventually(ctx, a.Backends(ns, "alone")).Should(Equal([]string{"b/10.89.0.2"}))
		By("exporting from a, in a later second, so that b decides")
		first := clusterset.Get(ctx, b, clusterset.Export(ns, "web")).CreationTimestamp
		Eventually(ctx, time.Now).Should(BeTemporally(">", first.Add(1100*time.Millisecond)))
		exportOne(ctx, a, ns, "web", 8080, "10.89.0.3")
		exportOne(ctx, a, ns, "ended", 8080, "10.89.0.5")
		Eventually(ctx, b.Backends(ns, "ended")).Should(HaveLen(1))
		Expect(a.Client.Delete(ctx, clusterset.Export(ns, "ended"))).To(Succeed())
		for _, m := range []*clusterset.Member{a, b} {
			Eventually(ctx, m.Backends(ns, "ended")).Should(BeEmpty())
		}
		Eventually(ctx, a.Backends(ns, "web")).Should(Equal([]string{"a/10.89.0.3", "b/10.89.0.1"}))
		whole, before := a.AllBackends(ctx, ns), addresses(ctx, a, ns)
		clear := func(context.Context) {}
		DeferCleanup(func(ctx SpecContext) {
			clear(ctx)
			Expect(client.IgnoreNotFound(a.Client.Delete(ctx, clusterset.Peer("b")))).To(Succeed())
			set.Join(ctx, "a", "b")
		}, NodeTimeout(2*time.Minute))

		By("starting the agent with the statements of weeks, and without what it needs to read the member")
		a.ChangePeer(ctx, "b", func(s *exchangev1alpha1.PeerSpec) { s.KubeconfigSecret = "none" })
		a.Without(ctx, func() { clear = state(ctx, ns, decide.MaxEnded+surplus) })
		Eventually(ctx, func() int {
			var left exchangev1alpha1.ExportRecordList
			Expect(a.Client.List(ctx, &left, client.MatchingLabels(stated))).To(Succeed())
			return len(left.Items)
		}).WithPolling(time.Second).Should(BeNumerically("<=", decide.MaxEnded), "the oldest go first")
		kept(ctx, a, ns, whole, "b is not read")

		By("exporting another one, and adding a port to one that b decides")
		exportOne(ctx, a, ns, "later", 8080, "10.89.0.4")
		Eventually(ctx, b.Backends(ns, "later")).Should(Equal([]string{"a/10.89.0.4"}))
		clusterset.Change(ctx, a, clusterset.Service(ns, "web"), func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "admin", Port: 81})
		})
		Eventually(ctx, a.ImportCondition(ns, "web", condition.TypeFrozen)).Should(And(
			HavePrefix("True/NotRead: "), ContainSubstring("cluster b"), ContainSubstring("kubectl comity leave --id b")))
		ports := func() int { return len(clusterset.Get(ctx, a, clusterset.Import(ns, "web")).Spec.Ports) }
		Expect(ports()).To(Equal(1))

		By("removing the member, of which nothing but the id is known")
		Expect(a.Client.Delete(ctx, clusterset.Peer("b"))).To(Succeed())
		a.Create(ctx, &exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: exchangev1alpha1.PeerSpec{Removed: true}})
		Eventually(ctx, a.PeerCondition("b", exchangev1alpha1.PeerRemoved)).Should(HavePrefix("True/"))
		Eventually(ctx, ports).Should(Equal(2))
		Eventually(ctx, held(a, ns)).Should(BeEmpty())
		Eventually(ctx, func() []string { return a.AllBackends(ctx, ns) }).Should(Equal([]string{"a/10.89.0.3", "a/10.89.0.4"}))
		derived := a.Derived(ctx, ns, "web").Name
		Expect(addresses(ctx, a, ns)[derived]).To(Equal(before[derived]))
	}, SpecTimeout(6*time.Minute))
})
