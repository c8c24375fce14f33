// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/test/install"
)

// countQuotas does what the hub's controller manager does, which does not run here:
// it counts for the first time what a new ResourceQuota is about.
func countQuotas(c client.Client) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ; ctx.Err() == nil; time.Sleep(300 * time.Millisecond) {
			var quotas corev1.ResourceQuotaList
			if c.List(ctx, &quotas) != nil {
				continue
			}
			for i := range quotas.Items {
				quota := &quotas.Items[i]
				if len(quota.Status.Hard) > 0 {
					continue
				}
				quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, corev1.ResourceList{}
				for name := range quota.Spec.Hard {
					quota.Status.Used[name] = resource.MustParse("0")
				}
				_ = c.Status().Update(ctx, quota) // again soon
			}
		}
	}()
	DeferCleanup(func() { stop(); <-ended })
}

// FAULT 31: a member fills the hub, on which all depend.
var _ = Describe("FAULT 31: the quota of a member in the hub", func() {
	It("ends what one member can store, and not what others can", func(ctx SpecContext) {
		const resourceName = "count/namespacerecords.exchange.comity.dev"
		quota := &corev1.ResourceQuota{}
		key := client.ObjectKey{Namespace: "comity-c-to-b", Name: "comity-exchange"}
		Expect(theHub.client.Get(ctx, key, quota)).To(Succeed())
		Expect(quota.Spec.Hard).To(HaveKeyWithValue(corev1.ResourceName("count/exportrecords.exchange.comity.dev"), resource.MustParse("20k")))
		limit := quota.DeepCopy()
		limit.Spec.Hard[resourceName] = resource.MustParse("3")
		Expect(theHub.client.Patch(ctx, limit, client.MergeFrom(quota))).To(Succeed())
		counted := func(ctx context.Context, hard corev1.ResourceList) { // the API server writes the status as well
			was := limit.DeepCopy()
			limit.Status.Hard = hard
			Expect(theHub.client.Status().Patch(ctx, limit, client.MergeFrom(was))).To(Succeed())
		}
		counted(ctx, limit.Spec.Hard)
		DeferCleanup(func(ctx SpecContext) {
			Expect(install.Join(ctx, hub(), sides("b", "c"), join.Options{})).To(Succeed())
			Expect(theHub.client.Get(ctx, key, limit)).To(Succeed())
			Expect(limit.Spec.Hard).To(Equal(quota.Spec.Hard), "what the next join finds is what the last one made")
			counted(ctx, quota.Spec.Hard)
			Expect(theHub.client.DeleteAllOf(ctx, &exchangev1alpha1.NamespaceRecord{}, client.InNamespace(key.Namespace))).To(Succeed())
		})
		asC := members["c"].inHub(ctx)
		record := func(i int) *exchangev1alpha1.NamespaceRecord {
			return &exchangev1alpha1.NamespaceRecord{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: fmt.Sprint("n-", i)}}
		}
		Eventually(func() error { // the API server reads quotas from a cache
			for i := range 10 {
				if err := client.IgnoreAlreadyExists(asC.Create(ctx, record(i))); err != nil {
					return err
				}
			}
			return nil
		}).Should(And(WithTransform(apierrors.IsForbidden, BeTrue()), MatchError(ContainSubstring("exceeded quota: comity-exchange"))))

		By("publishing of another member")
		namespace := newNamespace(ctx)
		members["a"].export(ctx, namespace, "")
		Eventually(func() []string { return published(ctx, namespace) }).Should(Equal([]string{"comity-a"}))
	})
})
