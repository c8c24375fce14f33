// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/webhook/facts"
)

// twoPeers are two members of which nothing else is known.
type twoPeers struct{}

func (twoPeers) Members() []model.Member {
	return []model.Member{{ID: "b", Synced: true}, {ID: "c", Synced: true}}
}

func (twoPeers) Namespace(string) map[model.ClusterID]decision.PeerNamespace { return nil }

var _ = Describe("A policy with existing: Keep", func() {
	It("keeps what is published, and refuses an update of it only for what is worse", func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) {
			Expect(direct.DeleteAllOf(ctx, &v1alpha1.ExportPolicy{})).To(Succeed())
		})
		Expect(direct.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "keep"}})).To(Succeed())
		r := start()
		strict := policy("strict", "")
		strict.Spec.Existing = v1alpha1.Keep
		strict.Spec.Rego = `package comity.policies.strict

deny contains {"msg": "no owner", "field": "metadata.labels"} if not input.object.metadata.labels.owner

deny contains {"msg": sprintf("not to cluster %s", [id])} if some id in input.effectiveScope.clusters
`
		create(ctx, strict)
		var published atomic.Bool
		reviewer := facts.Reviewer{
			Reader: facts.Reader{Client: direct, Cluster: "a", Peers: twoPeers{}, Published: func(context.Context, *mcsv1beta1.ServiceExport) (decision.Publication, error) {
				return decision.Publication{Published: published.Load()}, nil
			}},
			Evaluator: r.engine,
		}
		export := func(to, owner string) *mcsv1beta1.ServiceExport {
			e := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
				Namespace: "keep", Name: "web", UID: "u", Annotations: map[string]string{model.AnnotationExportTo: to},
			}}
			if owner != "" {
				e.Labels = map[string]string{"owner": owner}
			}
			return e
		}
		said := func(v decision.Verdict) []string {
			out := []string{v.Outcome.String()}
			for _, one := range append(v.Violations, v.Warnings...) {
				out = append(out, one.String())
			}
			return out
		}
		update := func(before, after *mcsv1beta1.ServiceExport) []string {
			return said(reviewer.Review(ctx, decision.Input{
				Operation: decision.Update, UserInfo: &decision.UserInfo{Username: "jane"}, OldObject: before, Object: after,
			}))
		}
		const (
			owner   = "[strict] metadata.labels: no owner."
			toB     = "[strict] not to cluster b."
			toC     = "[strict] not to cluster c."
			already = "[strict] would be refused if it were not published already: "
		)
		Eventually(func() []string { return said(reviewer.Admit(ctx, export("b", ""))) }).Within(timeout).Should(
			Equal([]string{"Denied", toB, owner}), "it is not published yet")

		published.Store(true)
		Expect(said(reviewer.Admit(ctx, export("b", "")))).To(Equal([]string{"Allowed", already + "not to cluster b.", already + "metadata.labels: no owner."}))
		Expect(update(export("b", ""), export("b", "jane"))).To(Equal([]string{"Allowed", already + "not to cluster b."}), "better")
		Expect(update(export("b", "jane"), export("b", ""))).To(Equal([]string{"Denied", owner, already + "not to cluster b."}), "the owner is dropped")
		Expect(update(export("b", "jane"), export("b,c", "jane"))).To(Equal([]string{"Denied", toC, already + "not to cluster b."}), "the scope is wider")
		Expect(update(export("b,c", "jane"), export("b", "jane"))).To(Equal([]string{"Allowed", already + "not to cluster b."}), "the scope is narrower")
		Expect(update(export("b", "jane"), export("c", "jane"))).To(Equal([]string{"Denied", toC}), "another cluster instead")

		published.Store(false)
		Expect(update(export("b", ""), export("b", ""))).To(Equal([]string{"Denied", toB, owner}), "nobody reads it, so nothing is kept")
	})

	It("FAULT 50: withdraws what a change of the Service made wrong, which no webhook refuses", func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) {
			Expect(direct.DeleteAllOf(ctx, &v1alpha1.ExportPolicy{})).To(Succeed())
		})
		Expect(direct.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ratchet"}})).To(Succeed())
		web := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ratchet", Name: "web"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		Expect(direct.Create(ctx, web)).To(Succeed())
		r := start()
		kinds := policy("kinds", "")
		kinds.Spec.Existing = v1alpha1.Keep
		kinds.Spec.Rego = `package comity.policies.kinds

deny contains {"msg": "a LoadBalancer", "field": "spec.type"} if input.service.spec.type == "LoadBalancer"

deny contains {"msg": "no owner"} if not input.object.metadata.labels.owner
`
		create(ctx, kinds)
		record := decision.Publication{Published: true}
		reviewer := facts.Reviewer{
			Reader: facts.Reader{Client: direct, Cluster: "a", Peers: twoPeers{}, Published: func(context.Context, *mcsv1beta1.ServiceExport) (decision.Publication, error) {
				return record, nil
			}},
			Evaluator: r.engine,
		}
		export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "ratchet", Name: "web", UID: "u"}}
		audit := func() []string {
			verdict := reviewer.Admit(ctx, export)
			if verdict.Kept != "" {
				record.Kept = verdict.Kept // which the publisher writes
			}
			out := []string{verdict.Outcome.String()}
			for _, one := range append(verdict.Violations, verdict.Warnings...) {
				out = append(out, one.String())
			}
			return out
		}
		change := func(kind corev1.ServiceType) {
			web.Spec.Type = kind
			Expect(direct.Update(ctx, web)).To(Succeed())
		}
		const (
			owner        = "[kinds] would be refused if it were not published already: no owner."
			loadBalancer = "[kinds] spec.type: a LoadBalancer."
		)
		Eventually(audit).Within(timeout).Should(Equal([]string{"Allowed", owner}), "the policy came later")
		change(corev1.ServiceTypeLoadBalancer)
		Expect(audit()).To(Equal([]string{"Denied", loadBalancer, owner}))
		Expect(audit()).To(Equal([]string{"Denied", loadBalancer, owner}), "time makes it no better")
		change(corev1.ServiceTypeNodePort)
		Expect(audit()).To(Equal([]string{"Allowed", owner}))
	})
})
