// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

const (
	// changes are made in a and b as fast as the API servers take them: first some in peace,
	// and then as many with kills in their midst.
	changes = 16
	// lastMoment bounds when a kill comes: by then the agents have written what the changes
	// ask for.
	lastMoment = 400 * time.Millisecond
)

var _ = Describe("Agents that are killed at any moment", func() {
	It("leave exactly what a run without a kill leaves", func(ctx SpecContext) {
		seed := uint64(GinkgoRandomSeed())
		AddReportEntry(fmt.Sprintf("seed %d (repeat it with -ginkgo.seed=%d)", seed, seed))
		random := rand.New(rand.NewPCG(seed, 0))
		killed, calm := newNamespace(ctx, "killed"), newNamespace(ctx, "calm")
		foreign := append(foreigners(ctx, killed), foreigners(ctx, calm)...)

		script := newScript(killed, random)
		Expect(run(ctx, script.next(changes))).To(Succeed())
		done, steps := make(chan error, 1), script.next(changes)
		go func() { done <- run(ctx, steps) }()
		kills := killSome(ctx, random)
		Eventually(done).WithTimeout(ready).Should(Receive(BeNil()), "the changes")

		Expect(run(ctx, script.again(ctx, calm))).To(Succeed())
		awaitConverged(ids...)
		without, with := world(ctx, calm), world(ctx, killed)
		Expect(without).NotTo(BeEmpty())
		// What other clusters report of an export is written with pauses, when nobody else writes
		// any more; an import whose first export ended is frozen for a minute.
		Eventually(func() string {
			without, with = world(ctx, calm), world(ctx, killed)
			return cmp.Diff(without, with)
		}).WithTimeout(forgotten).WithPolling(time.Second).Should(BeEmpty(), "-without kills +with kills, seed %d", seed)
		AddReportEntry(fmt.Sprintf("%d kills in %d changes: %d objects of ours, equal to those of a run without", kills, changes, len(with)))

		By("withdrawing all exports")
		for _, id := range []string{"a", "b"} {
			for _, ns := range []string{killed, calm} {
				Expect(members[id].client.DeleteAllOf(ctx, &mcsv1beta1.ServiceExport{}, client.InNamespace(ns))).To(Succeed())
			}
		}
		for _, ns := range []string{killed, calm} {
			Eventually(func() map[string]string { return world(ctx, ns) }).WithPolling(time.Second).Should(BeEmpty(), "nothing of ours is left")
		}
		for _, f := range foreign {
			f.expectUntouched(ctx)
		}
		everythingElseWorks(ctx)
	}, SpecTimeout(5*time.Minute))
})

// killSome kills the agents of a and b at a random moment, starts them again, and
// kills one of them again while it starts.
func killSome(ctx context.Context, random *rand.Rand) int {
	GinkgoHelper()
	both, kills := []string{"a", "b"}, 0
	for _, next := range []struct {
		victims []string
		within  time.Duration
	}{{both, lastMoment}, {both[random.IntN(2):][:1], 4 * lastMoment}} {
		timer := time.NewTimer(time.Duration(random.Int64N(int64(next.within))))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return kills
		}
		for _, id := range next.victims {
			Expect(members[id].agent.Kill()).To(Succeed())
			kills++
		}
		for _, id := range next.victims {
			members[id].expireLease(ctx)
			Expect(members[id].agent.Start()).To(Succeed())
		}
	}
	for _, id := range both {
		Expect(members[id].agent.WaitReady(ctx, ready)).To(Succeed())
	}
	return kills
}

// untouched is an object that is not Comity's, and the version that it had.
type untouched struct {
	in      *member
	object  client.Object
	version string
}

// foreigners makes, in b, objects that look like Comity's: one that has the
// derived name of web-3, a slice with our labels for web-1, and the
// ServiceImport of web-2. None was applied by us.
func foreigners(ctx context.Context, ns string) []untouched {
	GinkgoHelper()
	b := members["b"]
	taken := service(ns, model.DerivedName("web-3"))
	taken.Labels = map[string]string{model.LabelServiceName: "web-3"}
	slice := endpoints(ns, model.DerivedName("web-1"), "foreign", "10.99.255.1")
	for key, value := range map[string]string{
		discoveryv1.LabelManagedBy: model.ManagedBy, model.LabelServiceName: "web-1", model.LabelSourceCluster: "a",
	} {
		slice.Labels[key] = value
	}
	imported := &mcsv1beta1.ServiceImport{Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{}}}
	imported.Namespace, imported.Name = ns, "web-2"
	var all []untouched
	// The API server's policies refuse a foreign slice with Comity's label, save from a controller of Kubernetes.
	config := rest.CopyConfig(b.RESTConfig())
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:kube-controller-manager", Groups: []string{"system:masters"}}
	controller, err := client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	for _, o := range []client.Object{taken, slice, imported} {
		Expect(controller.Create(ctx, o)).To(Succeed(), "create %T %s", o, o.GetName())
		all = append(all, untouched{b, o, o.GetResourceVersion()})
	}
	return all
}

func (u untouched) expectUntouched(ctx context.Context) {
	GinkgoHelper()
	key := types.NamespacedName{Namespace: u.object.GetNamespace(), Name: u.object.GetName()}
	Expect(u.in.client.Get(ctx, key, u.object)).To(Succeed(), "foreign %T %s", u.object, key)
	Expect(u.object.GetResourceVersion()).To(Equal(u.version), "foreign %T %s", u.object, key)
}
