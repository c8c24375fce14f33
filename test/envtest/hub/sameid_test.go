// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/install"
)

// quiet is how long nothing must be written before a state counts as final: longer
// than the pause between two writes of one status.
const quiet = 2 * time.Second

// uid is the UID of the kube-system namespace of m.
func (m *member) uid(ctx context.Context) types.UID {
	GinkgoHelper()
	ns := &corev1.Namespace{}
	Expect(m.client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, ns)).To(Succeed())
	return ns.UID
}

// condition is one of ServiceExport web as "Status/Reason: message"; empty while it is not set.
func (m *member) condition(namespace, kind string) func(Gomega, context.Context) string {
	return func(g Gomega, ctx context.Context) string {
		export := &mcsv1beta1.ServiceExport{}
		g.Expect(m.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "web"}, export)).To(Succeed())
		c := meta.FindStatusCondition(export.Status.Conditions, kind)
		if c == nil {
			return ""
		}
		return fmt.Sprintf("%s/%s: %s", c.Status, c.Reason, c.Message)
	}
}

// toldOfComity are the events about Comity's Namespace in m, as "Reason: note".
func (m *member) toldOfComity() func(Gomega, context.Context) []string {
	return func(g Gomega, ctx context.Context) []string {
		var events eventsv1.EventList
		g.Expect(m.client.List(ctx, &events)).To(Succeed())
		var out []string
		for _, e := range events.Items {
			if e.Regarding.Kind == "Namespace" && e.Regarding.Name == install.Namespace {
				out = append(out, e.Reason+": "+e.Note)
			}
		}
		return out
	}
}

// holderIn is the cluster that holds the place of id in the hub.
func holderIn(ctx context.Context, id string) types.UID {
	GinkgoHelper()
	lease := &coordinationv1.Lease{}
	Expect(theHub.client.Get(ctx, client.ObjectKey{Namespace: "comity-" + id, Name: id}, lease)).To(Succeed())
	return types.UID(lease.Annotations[model.AnnotationClusterUID])
}

// publishedBy are the UIDs of the ServiceExports in these namespaces that are published
// under id, and of the clusters that say that they are id.
func publishedBy(ctx context.Context, id string, namespaces ...string) (exports, clusters []types.UID) {
	GinkgoHelper()
	var records exchangev1alpha1.ExportRecordList
	Expect(theHub.client.List(ctx, &records, client.InNamespace("comity-"+id))).To(Succeed())
	for _, r := range records.Items {
		if slices.ContainsFunc(namespaces, func(namespace string) bool { return r.Name == model.RecordName(namespace, "web") }) {
			exports = append(exports, r.Spec.ExportUID)
		}
	}
	var memberRecords exchangev1alpha1.MemberRecordList
	Expect(theHub.client.List(ctx, &memberRecords, client.InNamespace("comity-"+id))).To(Succeed())
	for _, r := range memberRecords.Items {
		clusters = append(clusters, r.Spec.ClusterUID)
	}
	return exports, clusters
}

func (m *member) exportUID(ctx context.Context, namespace string) types.UID {
	GinkgoHelper()
	export := &mcsv1beta1.ServiceExport{}
	Expect(m.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "web"}, export)).To(Succeed())
	return export.UID
}

// awaitQuiet waits until the agents of these members write neither at home nor in the
// hub, but for Leases and events.
func awaitQuiet(of ...*member) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		from := time.Now()
		g.Consistently(func() []string {
			var out []string
			for _, m := range append([]*member{theHub}, of...) {
				writes, err := m.Writes(from)
				g.Expect(err).NotTo(HaveOccurred())
				for _, w := range writes {
					if strings.HasPrefix(w.User, "system:serviceaccount:") && w.Resource != "coordination.k8s.io/leases" && w.Resource != "events" && w.Resource != "events.k8s.io/events" {
						out = append(out, fmt.Sprintf("%s: %s %s %s/%s (%d) by %s", m.ID(), w.Verb, w.Resource, w.Namespace, w.Name, w.Code, w.User))
					}
				}
			}
			return out
		}, quiet, quiet/7).Should(BeEmpty())
	}).WithTimeout(ready).Should(Succeed())
}

// In a hub both have one place. What is there was made by one account, so nothing but
// the Lease shows whose it is. Which of two gets it that come at the same moment is in
// sync/controllers/claim_test.go.
var _ = Describe("FAULT 38: a second cluster with the id of a member of the hub", Serial, Ordered, func() {
	const id = "b"
	var second *member

	BeforeAll(func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		started := startClusters(controlplane.Options{IDs: []string{"second"}, FirstNetwork: len(ids) + 2, Dir: dir, APIServerOnly: true})
		second = newMember(started[0], dir)
		DeferCleanup(func() {
			if second.agent != nil {
				Expect(second.agent.Kill()).To(Succeed())
			}
		})
		Expect(second.install(ctx, "--cluster-id", id)).To(Succeed())
	}, NodeTimeout(2*time.Minute))

	AfterEach(func() {
		if CurrentSpecReport().Failed() {
			GinkgoWriter.Printf("\ncomity in %s:\n%s\n", second.ID(), second.agent.LogTail(30))
		}
	})

	It("says why it does not publish, and does once it has an id of its own", func(ctx SpecContext) {
		first, c := members[id], members["c"]
		shared, own, addresses := newNamespace(ctx), map[*member]string{}, map[*member][]string{}
		for _, m := range []*member{first, second} {
			own[m] = newNamespace(ctx)
		}
		namespaces := []string{shared, own[first], own[second]}
		for _, namespace := range namespaces {
			Expect(second.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
		}
		for _, m := range []*member{first, second} {
			addresses[m] = []string{m.export(ctx, shared, ""), m.export(ctx, own[m], "")}
		}

		By("giving it what the member has, as the same manifests from Git do")
		secret, peer := &corev1.Secret{}, &exchangev1alpha1.Peer{}
		Expect(first.client.Get(ctx, client.ObjectKey{Namespace: install.Namespace, Name: model.ExchangeSecret}, secret)).To(Succeed())
		Expect(first.client.Get(ctx, client.ObjectKey{Name: "c"}, peer)).To(Succeed())
		Expect(second.client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, Labels: secret.Labels}, Data: secret.Data,
		})).To(Succeed())
		Expect(second.client.Create(ctx, &exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: peer.Labels}, Spec: peer.Spec})).To(Succeed())
		second.put(first.exchangeSecret(ctx).Data[join.KubeconfigKey])

		By("saying in it, in an event and in the status of its exports, what is wrong")
		why := And(ContainSubstring("is of another cluster with this id"), ContainSubstring(string(first.uid(ctx))),
			ContainSubstring(string(second.uid(ctx))), ContainSubstring("give one of the two another id"))
		Eventually(second.toldOfComity()).WithContext(ctx).Should(ContainElement(And(HavePrefix("DuplicateClusterID: "), why)))
		for _, namespace := range []string{shared, own[second]} {
			Eventually(second.condition(namespace, "Ready")).WithContext(ctx).Should(And(HavePrefix("False/Failed: "), why))
			Eventually(second.condition(namespace, "Available")).WithContext(ctx).Should(HavePrefix("False/NotPublished: "))
		}
		Eventually(c.backends(shared)).WithContext(ctx).Should(ConsistOf(id + "/" + addresses[first][0]))
		Eventually(c.backends(own[first])).WithContext(ctx).Should(ConsistOf(id + "/" + addresses[first][1]))
		Eventually(first.condition(shared, "Available")).WithContext(ctx).Should(HavePrefix("True/Imported: "))

		By("writing no more, neither of them, after the endpoints of both changed and the member restarted")
		before := c.imported(ctx, shared)
		addresses[first][0], addresses[second][0] = first.move(ctx, shared), second.move(ctx, shared)
		Eventually(c.backends(shared)).WithContext(ctx).Should(ConsistOf(id + "/" + addresses[first][0]))
		Expect(first.agent.Stop()).To(Succeed())
		Expect(first.agent.Start()).To(Succeed())
		Expect(first.agent.WaitReady(ctx, ready)).To(Succeed())
		awaitQuiet(first, second, c)
		exports, clusters := publishedBy(ctx, id, namespaces...)
		Expect(exports).To(ConsistOf(first.exportUID(ctx, shared), first.exportUID(ctx, own[first])))
		Expect(clusters).To(ConsistOf(first.uid(ctx)))
		Expect(holderIn(ctx, id)).To(Equal(first.uid(ctx)))
		Expect(c.backends(shared)(NewGomega(Fail), ctx)).To(ConsistOf(id + "/" + addresses[first][0]))
		Expect(c.backends(own[second])(NewGomega(Fail), ctx)).To(BeEmpty())

		By("giving it another id")
		Expect(install.Join(ctx, hub(), append(sides(id, "c"), second.as("y")), join.Options{})).To(Succeed())
		second.mount(ctx)
		Expect(second.agent.StopFor(second.flags("--cluster-id", "y")...)).To(Succeed())
		Expect(second.agent.Start()).To(Succeed())
		Expect(second.agent.WaitReady(ctx, ready)).To(Succeed())
		for _, m := range []*member{c, first, second} {
			Eventually(m.backends(shared)).WithContext(ctx).Should(ConsistOf(id+"/"+addresses[first][0], "y/"+addresses[second][0]), m.ID())
			Eventually(m.backends(own[first])).WithContext(ctx).Should(ConsistOf(id+"/"+addresses[first][1]), m.ID())
			Eventually(m.backends(own[second])).WithContext(ctx).Should(ConsistOf("y/"+addresses[second][1]), m.ID())
		}
		for m, imported := range map[*member]string{first: "imported by all 3 clusters", second: "imported by all 2 clusters"} {
			for _, namespace := range []string{shared, own[m]} {
				Eventually(m.condition(namespace, "Ready")).WithContext(ctx).Should(HavePrefix("True/Exported: "), m.ID())
				Eventually(m.condition(namespace, "Available")).WithContext(ctx).Should(HavePrefix("True/Imported: "+imported), m.ID())
			}
		}
		after := c.imported(ctx, shared)
		for object, uid := range before {
			Expect(after).To(HaveKeyWithValue(object, uid), "nothing of what was imported was deleted and created again")
		}
	}, SpecTimeout(4*time.Minute))

	It("is taken back out, and nothing from the others", func(ctx SpecContext) {
		first, inHub := members[id], second.inHub(ctx)
		Expect(inHub.List(ctx, &exchangev1alpha1.ExportRecordList{}, client.InNamespace("comity-b-to-y"))).To(Succeed())

		By("publishing for it, whose namespace came after the agent had started")
		namespace := newNamespace(ctx)
		first.export(ctx, namespace, "y")
		Eventually(func() []string { return published(ctx, namespace) }).Should(Equal([]string{"comity-b-to-y"}))

		Expect(join.Disconnect(ctx, hub(), second.as("y"), sides(id, "c"), join.Options{})).To(Succeed())

		Eventually(func() error {
			return inHub.List(ctx, &exchangev1alpha1.ExportRecordList{}, client.InNamespace("comity-b"))
		}).Should(WithTransform(apierrors.IsUnauthorized, BeTrue()), "the token of a removed account")
		gone := func(c client.Client, namespace, name string, object client.Object) {
			GinkgoHelper()
			Expect(apierrors.IsNotFound(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object))).To(BeTrue(), "%T %s/%s", object, namespace, name)
		}
		gone(theHub.client, "comity-b", "member-y", &rbacv1.RoleBinding{})
		gone(theHub.client, join.DefaultNamespace, "member-y", &rbacv1.Role{})
		gone(first.client, "", "y", &exchangev1alpha1.Peer{})
		for _, name := range []string{"comity-y", "comity-y-to-b", "comity-b-to-y"} {
			ns := &corev1.Namespace{}
			Expect(theHub.client.Get(ctx, client.ObjectKey{Name: name}, ns)).To(Succeed())
			Expect(ns.DeletionTimestamp).NotTo(BeNil(), "nobody finishes deletions here, but that of %s was asked for", name)
		}
		Expect(first.inHub(ctx).List(ctx, &exchangev1alpha1.ExportRecordList{}, client.InNamespace("comity-c"))).To(Succeed())
	})
})
