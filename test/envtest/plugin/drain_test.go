// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// endpoints makes a derived slice with one endpoint of a cluster.
func endpoints(namespace, name, from string, ready bool) {
	GinkgoHelper()
	s := &discoveryv1.EndpointSlice{
		TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name + "-" + from, Labels: map[string]string{model.LabelServiceName: name, model.LabelSourceCluster: from}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}
	Expect(target.Client.Patch(scratch, s, client.Apply, client.FieldOwner(model.FieldOwner), client.ForceOwnership)).To(Succeed()) //nolint:staticcheck // as the agent owns it
}

var _ = Describe("drain and resume", func() {
	drained := func(p *exchangev1alpha1.Peer) *model.Drained {
		GinkgoHelper()
		Expect(target.Client.Get(scratch, client.ObjectKeyFromObject(p), p)).To(Succeed())
		return p.Spec.Drained
	}

	It("mark the Peer, and name what only the cluster serves", func() {
		namespace := newNamespace()
		for _, from := range []string{"b", "c"} {
			endpoints(namespace, "both", from, true)
			endpoints(namespace, "alone", from, from == "b")
		}
		b := peer("b", nil, good()...)
		got := run("drain", "b", "--over", "5m", "--context", "a")
		Expect(got.code).To(BeZero(), got.err)
		Expect(got.err).To(And(ContainSubstring("2 imports have endpoints of cluster b"), ContainSubstring("it goes on serving them:\n  "+namespace+"/alone\n"), Not(ContainSubstring("/both"))))
		Expect(drained(b)).To(HaveValue(And(HaveField("Over.Duration", 5*time.Minute), HaveField("Force", false), HaveField("Since.Time", BeTemporally("~", time.Now(), time.Minute)))))

		By("repeating it, which goes on where it was")
		since := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
		b.Spec.Drained.Since = since
		Expect(target.Client.Update(scratch, b)).To(Succeed())
		Expect(run("drain", "b", "--over", "5m").code).To(BeZero())
		Expect(drained(b).Since.Equal(&since)).To(BeTrue(), drained(b).Since.String())
		got = run("drain", "b", "--over", "6m")
		Expect(got.code).NotTo(BeZero())
		Expect(got.err).To(ContainSubstring("cluster b is drained since " + since.UTC().Format(time.RFC3339) + ", over 5m0s; to begin again"))

		got = run("drain", "b", "--force")
		Expect(got.code).To(Equal(2))
		Expect(got.err).To(ContainSubstring("with --force they have no ready endpoint any more"))
		Expect(drained(b).Force).To(BeFalse())
		Expect(run("drain", "b", "--force", "--yes").code).To(BeZero())
		Expect(drained(b)).To(HaveValue(And(HaveField("Over.Duration", BeZero()), HaveField("Force", true))))

		Expect(run("resume", "b").out).To(Equal("a: cluster b is resumed.\n"))
		Expect(drained(b)).To(BeNil())
	})

	It("mark the MemberRecord of the cluster itself", func() {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "comity-self"}}
		Expect(client.IgnoreAlreadyExists(target.Client.Create(scratch, namespace))).To(Succeed())
		record := &exchangev1alpha1.MemberRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "self"},
			Spec:       exchangev1alpha1.MemberRecordSpec{ClusterID: "self", ClusterSet: "example"},
		}
		create(record)
		Expect(run("drain", "self", "--self", "--over", "1m").code).To(BeZero())
		Expect(target.Client.Get(scratch, client.ObjectKeyFromObject(record), record)).To(Succeed())
		Expect(exchange.Drains(&exchangev1alpha1.PeerSpec{}, record.Annotations[model.AnnotationDrained])).To(
			ConsistOf(And(HaveField("Over.Duration", time.Minute), HaveField("Self", true), HaveField("Since.Time", BeTemporally("~", time.Now(), time.Minute)))))
		Expect(run("drain", "self", "--self").code).To(BeZero())
		Expect(target.Client.Get(scratch, client.ObjectKeyFromObject(record), record)).To(Succeed())
		Expect(exchange.Drains(&exchangev1alpha1.PeerSpec{}, record.Annotations[model.AnnotationDrained])).To(ConsistOf(HaveField("Over", BeZero())), "what the members read")
		Expect(run("resume", "self", "--self").code).To(BeZero())
		Expect(target.Client.Get(scratch, client.ObjectKeyFromObject(record), record)).To(Succeed())
		Expect(record.Annotations).NotTo(HaveKey(model.AnnotationDrained))
	})

	DescribeTable("refuse", func(message string, args ...string) {
		got := run(args...)
		Expect(got.code).NotTo(BeZero())
		Expect(got.err).To(ContainSubstring(message))
	},
		Entry("what has no Peer", `"nobody" not found`, "drain", "nobody"),
		Entry("what is no id", "is not one RFC 1123 label", "drain", "B"),
		Entry("a time that no Peer can have", "expected whole seconds", "drain", "b", "--over", "1500ms"),
		Entry("contexts of one cluster", "lead to one cluster", "drain", "b", "--context", "a,again"),
	)
})
