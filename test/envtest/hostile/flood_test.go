// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
)

// promptly is how soon a change is imported while a peer rewrites a large slice all
// the time, and the peer's own next change when it has stopped.
const promptly = 12 * time.Second

// floodPause is the time between two versions of the large slice. An importer reads 8 MiB
// a second of a member, which is less than they are, and etcd keeps all of them on disk.
const floodPause = 40 * time.Millisecond

// crowd are more slices than one reconcile writes.
const crowd = 45

// large is a slice of so many endpoints with two addresses and the longest names. One of 100
// is as large as can be imported.
func large(key types.NamespacedName, name string, n, first int) forged {
	endpoints := many(n, func(i int) any {
		return map[string]any{
			"addresses": many(2, func(n int) any { return attacker.address((first + i*2 + n) % 60_000) }),
			"hostname":  strings.Repeat("h", 63), "zone": strings.Repeat("z", 63), "nodeName": strings.Repeat("n", 253),
		}
	})
	return slice(key, name, nil, set(endpoints, "endpoints"))
}

// FAULT 31: a peer joins the export of another one with more slices than one reconcile writes,
// and rewrites a large one faster than anyone reads it.
var _ = Describe("FAULT 31", func() {
	It("follows another cluster's endpoints while one with many slices rewrites one of 400 kB, and one of 40 kB, 25 times a second", func(ctx SpecContext) {
		key := types.NamespacedName{Namespace: "flooded", Name: "web"}
		for _, m := range []*member{victim, neighbor} {
			m.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace}})
		}
		neighbor.create(ctx, service(key.Namespace, key.Name), endpoints(key.Namespace, key.Name, neighbor.address(1)))
		neighbor.create(ctx, serviceExport(key.Namespace, key.Name))
		ofNeighbor := func(g Gomega, ctx context.Context) []string {
			var out []string
			for _, backend := range victim.backends(key.Namespace, key.Name)(g, ctx) {
				if backend[0] == 'c' {
					out = append(out, backend)
				}
			}
			return out
		}
		Eventually(ofNeighbor).WithContext(ctx).Should(Equal([]string{"c/" + neighbor.address(1)}))

		objects := []forged{}
		for i := range crowd {
			objects = append(objects, slice(key, fmt.Sprint("web-", i), []string{attacker.address(i)}))
		}
		objects = append(objects, record(key)) // once all of them are there
		put(ctx, objects...)
		DeferCleanup(func(ctx SpecContext) {
			retreat(ctx, append(objects, large(key, "web-large", 0, 0), large(key, "web", 0, 0)), key)
		})
		Eventually(func(g Gomega) { g.Expect(victim.backends(key.Namespace, key.Name)(g, ctx)).To(HaveLen(crowd + 1)) }).Should(Succeed())

		versions := [4]forged{large(key, "web-large", 1000, 7), large(key, "web", 100, 7), large(key, "web-large", 1000, 9), large(key, "web", 100, 9)}
		since := time.Now()
		flooding, stop := context.WithTimeout(ctx, 5*time.Second)
		defer stop()
		ended := make(chan int)
		go func() {
			n, next := 0, time.NewTicker(floodPause)
			defer next.Stop()
			for ; flooding.Err() == nil || n <= 20 && ctx.Err() == nil; n++ { // a busy machine takes longer for as many
				_ = store.Put(ctx, versions[n%4].path, versions[n%4].body) // the next one comes soon
				<-next.C
			}
			ended <- n
		}()
		slowest := time.Duration(0)
		for i := 2; flooding.Err() == nil; i++ {
			Expect(neighbor.client.Update(ctx, endpoints(key.Namespace, key.Name, neighbor.address(i)))).To(Succeed())
			changed := time.Now()
			Eventually(ofNeighbor).WithContext(ctx).WithTimeout(promptly).Should(Equal([]string{"c/" + neighbor.address(i)}))
			slowest = max(slowest, time.Since(changed))
		}
		AddReportEntry("the slowest change of another cluster's endpoints took", slowest.Round(time.Millisecond).String())
		rewritten := <-ended
		Expect(rewritten).To(BeNumerically(">", 20), "the flood is one")
		slices := 0
		for _, w := range writes(since) {
			if w.Resource == "discovery.k8s.io/endpointslices" && w.Namespace == key.Namespace && w.Name == model.DerivedName(key.Name)+"-b" {
				slices++
			}
		}
		Expect(slices).To(BeNumerically("<=", 1+21*time.Since(since).Seconds()), "the writes for b, which rewrote %d times", rewritten)
		Eventually(told(key.Namespace, key.Name)).WithContext(ctx).Should(
			ContainElement(ContainSubstring("because at most 65536 bytes and 200 addresses of one are imported")), "the limit is named")
		By("following b again")
		put(ctx, slice(key, "web-large", []string{attacker.address(200)}), slice(key, "web", []string{attacker.address(201)}))
		changed := time.Now()
		Eventually(victim.backends(key.Namespace, key.Name)).WithContext(ctx).WithTimeout(promptly).Should(ContainElement("b/" + attacker.address(200)))
		AddReportEntry("the next change of its own took", time.Since(changed).Round(time.Millisecond).String())
		Eventually(func(g Gomega) { g.Expect(victim.backends(key.Namespace, key.Name)(g, ctx)).To(HaveLen(crowd + 3)) }).Should(Succeed())
		Expect(neighbor.client.Delete(ctx, serviceExport(key.Namespace, key.Name))).To(Succeed())
	})
})
