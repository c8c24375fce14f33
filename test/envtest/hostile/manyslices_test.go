// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/exchange"
)

// FAULT 31: a peer joins the export of another one with thousands of slices.
var _ = Describe("FAULT 31", func() {
	It("follows another cluster's endpoints while it imports 2,200 slices of one", func(ctx SpecContext) {
		key := types.NamespacedName{Namespace: "crowded", Name: "web"}
		for _, m := range []*member{victim, neighbor} {
			m.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}})
		}
		of := func(g Gomega, ctx context.Context, cluster string) []string {
			return slices.DeleteFunc(victim.backends(key.Namespace, key.Name)(g, ctx), func(b string) bool { return !strings.HasPrefix(b, cluster+"/") })
		}
		ofNeighbor := func(g Gomega, ctx context.Context) []string { return of(g, ctx, "c") }
		neighbor.create(ctx, service(key.Namespace, key.Name), endpoints(key.Namespace, key.Name, neighbor.address(1)))
		neighbor.create(ctx, serviceExport(key.Namespace, key.Name))
		Eventually(ofNeighbor).WithContext(ctx).Should(Equal([]string{"c/" + neighbor.address(1)}))

		var crowd []forged
		for i := range 2200 {
			crowd = append(crowd, slice(key, fmt.Sprintf("web-%04d", i), []string{attacker.address(i)}))
		}
		put(ctx, crowd...)
		crowd = append(crowd, record(key))
		DeferCleanup(func(ctx SpecContext) { retreat(ctx, crowd, key) })
		put(ctx, crowd[len(crowd)-1])
		Eventually(func(g Gomega, ctx context.Context) []string { return of(g, ctx, "b") }).WithContext(ctx).ShouldNot(BeEmpty())
		for i := 2; i < 7; i++ {
			Expect(neighbor.client.Update(ctx, endpoints(key.Namespace, key.Name, neighbor.address(i)))).To(Succeed())
			Eventually(ofNeighbor).WithContext(ctx).Should(Equal([]string{"c/" + neighbor.address(i)}))
			Expect(len(of(NewGomega(Fail), ctx, "b"))).To(BeNumerically("<", exchange.MaxSliceNames), "the slices of b do not go first")
		}
		Eventually(told(key.Namespace, key.Name)).WithContext(ctx).Should(
			ContainElement(ContainSubstring("publishes 200 EndpointSlices of crowded/web more than the 2000")), "the limit is named")
		Expect(neighbor.client.Delete(ctx, serviceExport(key.Namespace, key.Name))).To(Succeed())
	})
})
