// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

var _ = Describe("graph", func() {
	It("shows what one cluster imports, and what it publishes for others", func() {
		install(newNamespace(), true)
		peer("b", nil, good()...)
		peer("c", nil, good(is(exchangev1alpha1.PeerConnected, metav1.ConditionFalse, "Lost", "no heartbeat"))...)
		namespace := newNamespace()
		imported(namespace, "db", nil, entry("c", "1", "", time.Time{}), entry("b", "2", model.SourceMissing, time.Now()))
		exchange := "comity-a-to-b"
		create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: exchange, Labels: map[string]string{model.LabelExchangeFrom: "a", model.LabelExchangeTo: "b"}}})
		for _, name := range []string{"web", "gone"} {
			record := &exchangev1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{Namespace: exchange, Name: name}}
			record.Spec.Service = exchangev1alpha1.ServiceReference{Namespace: "shop", Name: name}
			record.Spec.ExportUID, record.Spec.ExportedAt, record.Spec.Type = "3", metav1.Now(), mcsv1beta1.ClusterSetIP
			record.Spec.Withdrawn = name == "gone"
			create(record)
		}

		got := run("graph", "a")
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.out).To(Equal("FROM   TO   COUNT   SERVICES\n" +
			"a      b    1       shop/web\n" +
			"b      a    1       " + namespace + "/db (Missing)\n" +
			"c      a    1       " + namespace + "/db\n" +
			"Cluster c: Lost in a\n"))

		got = run("graph", "a", "dead", "-o", "dot")
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.err).To(ContainSubstring(`Warning: context "dead": `))
		Expect(got.out).To(ContainSubstring(`  c0 -> c1 [label="shop/web"];`))
		Expect(got.out).To(ContainSubstring(`  c3 [label="dead\nUnreachable", color=red];`))

		got = run("graph", "-o", "mermaid")
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.out).To(ContainSubstring(`  c1 ==>|"` + namespace + `/db (Missing)"| c0`))
		Expect(run("graph", "-o", "png").code).To(Equal(2))
	})
})
