// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/status/condition"
)

const (
	// failover bounds how long requests may fail after a cluster is gone.
	failover = 30 * time.Second
	// clients send requests at once.
	clients = 8
)

var _ = Describe("Traffic to a Service of a and b, and to one of a alone", Ordered, Serial, beyond(), func() {
	web, alone := types.NamespacedName{Namespace: "failover", Name: "web"}, types.NamespacedName{Namespace: "failover-alone", Name: "alone"}
	var pods map[string][]string

	BeforeAll(func(ctx SpecContext) {
		pods = exportFromBoth(ctx, web, 2, nil, func(*corev1.ServiceSpec) {})
		for _, m := range bothMembers() {
			m.create(ctx, newNamespace(alone.Namespace))
		}
		clusterA.create(ctx, newServer(alone.Namespace, alone.Name, 1), newService(alone.Namespace, alone.Name, corev1.ServiceTypeClusterIP), newExport(alone.Namespace, alone.Name))
		clusterB.expectAnswers(ctx, hostOf(alone), servicePort, clusterA.awaitPods(ctx, alone.Namespace, alone.Name, 1)...)
		letPass(ctx, time.Now(), 35*time.Second) // b probes the endpoints of a every 30 s
	})

	It("goes to b while the network between them is cut", func(ctx SpecContext) {
		clusterB.expectAnswers(ctx, hostOf(web), servicePort, slices.Concat(pods["a"], pods["b"])...)
		DeferCleanup(func(ctx SpecContext) {
			Expect(clusterB.Unblock(ctx)).To(Succeed())
			clusterB.expectSource(ctx, web, condition.ReasonConnected)
		})
		stop := requestsTo(ctx, clusterB, hostOf(web))
		began := time.Now()
		Expect(clusterB.Cut(ctx, clusterA.Cluster)).To(Succeed())
		step("a is cut off")
		clusterB.expectSource(ctx, web, condition.ReasonWithdrawn)
		step("in b: told after %.0fs", time.Since(began).Seconds())
		letPass(ctx, began, failover+8*time.Second)
		requests, failed := stop()
		last, late := time.Duration(0), []failure(nil)
		for _, f := range failed {
			after := f.began.Sub(began)
			if last = max(last, after); after >= failover {
				late = append(late, f)
			}
		}
		AddReportEntry("failover", map[string]any{"requests": requests, "failed": len(failed), "last failed after": last.Round(time.Second).String()}, ReportEntryVisibilityAlways)
		Expect(late).To(BeEmpty(), "of %d requests", requests)
		Expect(clusterB.Unblock(ctx)).To(Succeed())
		clusterB.expectAnswers(ctx, hostOf(web), servicePort, slices.Concat(pods["a"], pods["b"])...)
	})

	It("goes to b while a is drained, but for what only a serves, and returns when it is resumed", func(ctx SpecContext) {
		clusterB.expectSource(ctx, web, condition.ReasonConnected)
		stop, stopAlone := requestsTo(ctx, clusterB, hostOf(web)), requestsTo(ctx, clusterB, hostOf(alone))
		DeferCleanup(func(ctx SpecContext) { shell.run(ctx, "kubectl comity resume a --context b") })
		Expect(shell.run(ctx, "kubectl comity drain a --context b")).To(And(ContainSubstring("cluster a is drained"), ContainSubstring(alone.String())))
		clusterB.expectAnswers(ctx, hostOf(web), servicePort, pods["b"]...)
		Expect(clusterB.expectSource(ctx, web, condition.ReasonDrained)).To(ContainSubstring("Drained in a"))
		Expect(shell.run(ctx, "kubectl --context b get peers")).To(ContainSubstring("DRAINED"))
		By("replacing the leader of b")
		drained := clusterB.slicesFrom(ctx, web, "a")
		clusterB.replaceLeader(ctx)
		Consistently(ctx, clusterB.slicesFrom).WithArguments(ctx, web, "a").Should(Equal(drained))
		shell.run(ctx, "kubectl comity resume a --context b")
		clusterB.expectAnswers(ctx, hostOf(web), servicePort, slices.Concat(pods["a"], pods["b"])...)
		shell.run(ctx, "kubectl comity drain a --self --context a")
		clusterB.expectAnswers(ctx, hostOf(web), servicePort, pods["b"]...)
		shell.run(ctx, "kubectl comity resume a --self --context a")
		clusterB.expectAnswers(ctx, hostOf(web), servicePort, slices.Concat(pods["a"], pods["b"])...)
		for _, stop := range []func() (int, []failure){stop, stopAlone} {
			requests, failed := stop()
			step("in b: %d requests while a was drained and resumed, %d failed", requests, len(failed))
			Expect(failed).To(BeEmpty())
			Expect(requests).To(BeNumerically(">", 100))
		}
	})
})

// failure is a request that failed, and when it began.
type failure struct {
	began time.Time
	err   error
}

// requestsTo has clients of m send requests to host, one after the other each, until stop.
func requestsTo(ctx context.Context, m *member, host string) (stop func() (requests int, failed []failure)) {
	GinkgoHelper()
	targets := m.targets(ctx, host)
	ctx, cancel := context.WithCancel(ctx)
	var working sync.WaitGroup
	var mu sync.Mutex
	requests, failed := 0, []failure(nil)
	for client := range clients {
		working.Go(func() {
			for n := client; ctx.Err() == nil; n++ {
				idle(ctx, clients*pause)
				began := time.Now()
				_, err := m.ask(ctx, targets[n%len(targets)], servicePort, 1)
				if ctx.Err() != nil {
					return // what was under way was cut off by us
				}
				mu.Lock()
				if requests++; err != nil {
					failed = append(failed, failure{began, fmt.Errorf("at %s: %w", began.Format(time.TimeOnly), err)})
				}
				mu.Unlock()
			}
		})
	}
	return func() (int, []failure) {
		cancel()
		working.Wait()
		return requests, failed
	}
}
