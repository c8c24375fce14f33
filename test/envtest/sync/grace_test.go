// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/policies/decision"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

var _ = Describe("an export that policies deny after a grace period", func() {
	denied := func(grace time.Duration) decision.Verdict {
		return decision.Verdict{Outcome: decision.Denied, Violations: []decision.Violation{{Policy: "owner", Message: "no owner", Grace: grace}}}
	}
	// since is what the record of the export keeps of its grace.
	since := func(ns string) func() string {
		return func() string {
			record := read[exchangev1alpha1.ExportRecord](clusters["a"], "comity-a", model.RecordName(ns, "web"))
			if record == nil {
				return ""
			}
			return record.Annotations[model.AnnotationDeniedSince]
		}
	}

	It("stays until that ends, also across a restart, and then is withdrawn", func() {
		ns := newNamespace("a", "b")
		a, b := clusters["a"], clusters["b"]
		key := types.NamespacedName{Namespace: ns, Name: "web"}
		a.create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), export(ns, "web"))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		Eventually(a.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))

		a.agent.rule(key, denied(time.Hour))
		Eventually(since(ns)).Should(HavePrefix(`{"owner":`))
		announced := since(ns)()
		var seen model.Observation
		Eventually(func() time.Time {
			seen, _ = a.agent.running.Observe(key)
			return seen.WithdrawnAt
		}).ShouldNot(BeZero())
		until := seen.WithdrawnAt

		By("restarting the agent")
		a.stop()
		a.start()
		Eventually(func() time.Time {
			seen, _ := a.agent.running.Observe(key)
			return seen.WithdrawnAt
		}).Should(BeTemporally("==", until), "the grace does not begin again")
		Expect(since(ns)()).To(Equal(announced))
		Expect(b.backends(ns, "web")()).To(Equal([]string{"a/10.1.0.1"}))

		By("waiting for its last two seconds")
		pass(until.Sub(shifted{}.Now()) - 2*time.Second)
		for _, c := range []*cluster{a, b} {
			Eventually(c.backends(ns, "web")).Should(BeEmpty())
		}
		Expect(shifted{}.Now()).To(BeTemporally(">=", until), "nothing is withdrawn before the time that was announced")
	})

	It("stays when it is allowed again, and gets a new grace later", func() {
		ns := newNamespace("a", "b")
		a, b := clusters["a"], clusters["b"]
		key := types.NamespacedName{Namespace: ns, Name: "web"}
		a.create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), export(ns, "web"))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		a.agent.rule(key, denied(time.Hour))
		Eventually(since(ns)).Should(HavePrefix(`{"owner":`))

		By("giving it new endpoints meanwhile")
		a.create(endpoints(ns, "web", "web-x2", "10.1.0.2"))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1", "a/10.1.0.2"}))
		Eventually(a.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1", "a/10.1.0.2"}))

		a.agent.rule(key, decision.Verdict{Outcome: decision.Allowed})
		Eventually(since(ns)).Should(BeEmpty())
		Expect(b.backends(ns, "web")()).To(HaveLen(2))
	})

	It("is withdrawn at once where a policy has no grace", func() {
		ns := newNamespace("a", "b")
		a, b := clusters["a"], clusters["b"]
		key := types.NamespacedName{Namespace: ns, Name: "web"}
		a.create(service(ns, "web"), endpoints(ns, "web", "web-x1", "10.1.0.1"), export(ns, "web"))
		Eventually(b.backends(ns, "web")).Should(Equal([]string{"a/10.1.0.1"}))
		both := denied(time.Hour)
		both.Violations = append(both.Violations, decision.Violation{Policy: "ports", Message: "a port"})
		a.agent.rule(key, both)
		Eventually(b.backends(ns, "web")).Should(BeEmpty())
	})
})
