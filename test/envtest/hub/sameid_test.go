// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters"
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

// holderIn is the cluster that holds the place of id in the hub; empty if none does.
func holderIn(ctx context.Context, id string) types.UID {
	GinkgoHelper()
	lease := &coordinationv1.Lease{}
	err := theHub.client.Get(ctx, client.ObjectKey{Namespace: "comity-" + id, Name: id}, lease)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	return types.UID(lease.Annotations[model.AnnotationClusterUID])
}

// publishedBy are the UIDs of the ServiceExports that are published under id, and of the
// clusters that say that they are id.
func publishedBy(ctx context.Context, id string) (exports, clusters []types.UID) {
	GinkgoHelper()
	var records exchangev1alpha1.ExportRecordList
	Expect(theHub.client.List(ctx, &records, client.InNamespace("comity-"+id))).To(Succeed())
	for _, r := range records.Items {
		exports = append(exports, r.Spec.ExportUID)
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
// the Lease shows whose it is.
var _ = Describe("FAULT 38: two clusters with one id that join a hub at the same moment", Serial, func() {
	It("one publishes, the other says why it does not, and both do once that one has an id of its own", func(ctx SpecContext) {
		dir, c := GinkgoT().TempDir(), members["c"]
		var both []*member
		var installed errgroup.Group
		for _, started := range startClusters(controlplane.Options{IDs: []string{"one", "two"}, FirstNetwork: len(ids) + 3, Dir: dir, APIServerOnly: true}) {
			m := newMember(started, dir)
			both = append(both, m)
			installed.Go(func() error { return m.install(ctx, "--cluster-id", "x") })
		}
		Expect(installed.Wait()).To(Succeed())
		for _, m := range both {
			DeferCleanup(func() {
				if CurrentSpecReport().Failed() {
					GinkgoWriter.Printf("\ncomity in %s:\n%s\n", m.ID(), m.agent.LogTail(30))
				}
				Expect(m.agent.Kill()).To(Succeed())
			})
		}
		shared, own, addresses := newNamespace(ctx), map[*member]string{}, map[*member][]string{}
		for _, m := range both {
			own[m] = newNamespace(ctx)
		}
		for _, m := range both {
			for _, namespace := range []string{shared, own[both[0]], own[both[1]]} {
				Expect(m.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
			}
			addresses[m] = []string{m.export(ctx, shared, ""), m.export(ctx, own[m], "")}
		}

		open := func(m *member, id model.ClusterID) join.Cluster {
			side := m.as(id)
			side.AcceptedCIDRs = clusters.AnyAddress() // whichever cluster has the id x
			return side
		}
		By("joining them as manifests from Git do, which name no cluster, with one account")
		Expect(install.Join(ctx, hub(), []join.Cluster{open(c, "c"), open(both[0], "x")}, join.Options{})).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			for _, id := range []model.ClusterID{"x", "y"} {
				Expect(join.Disconnect(ctx, hub(), join.Cluster{ID: id, Set: clusterset, Namespace: install.Namespace}, sides("c"), join.Options{})).To(Succeed())
			}
		})
		nobody := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, model.AnnotationClusterUID))
		for _, name := range []string{"comity-x", "comity-x-to-c"} {
			Expect(theHub.client.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, nobody)).To(Succeed())
		}
		secret, peer := &corev1.Secret{}, &exchangev1alpha1.Peer{}
		Expect(both[0].client.Get(ctx, client.ObjectKey{Namespace: install.Namespace, Name: model.PeerName("c")}, secret)).To(Succeed())
		Expect(both[0].client.Get(ctx, client.ObjectKey{Name: "c"}, peer)).To(Succeed())
		Expect(both[1].client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, Labels: secret.Labels}, Data: secret.Data,
		})).To(Succeed())
		Expect(both[1].client.Create(ctx, &exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: peer.Labels}, Spec: peer.Spec})).To(Succeed())
		access := both[0].exchangeSecret(ctx).Data[join.KubeconfigKey]
		for _, m := range both {
			m.put(access)
		}

		Eventually(func() types.UID { return holderIn(ctx, "x") }).ShouldNot(BeEmpty())
		first, second := both[0], both[1]
		if holderIn(ctx, "x") != first.uid(ctx) {
			first, second = second, first
		}
		AddReportEntry("the place is that of cluster", first.ID())
		Expect(holderIn(ctx, "x")).To(Equal(first.uid(ctx)))
		By("accepting in the importer the one that has the place")
		accepted := fmt.Appendf(nil, `{"spec":{"clusterUID":%q}}`, first.uid(ctx))
		Expect(c.client.Patch(ctx, &exchangev1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, client.RawPatch(types.MergePatchType, accepted))).To(Succeed())
		Eventually(c.backends(shared)).WithContext(ctx).Should(ConsistOf("x/" + addresses[first][0]))
		Eventually(c.backends(own[first])).WithContext(ctx).Should(ConsistOf("x/" + addresses[first][1]))
		Eventually(first.condition(shared, "Available")).WithContext(ctx).Should(HavePrefix("True/Imported: "))

		By("saying in the other one, in an event and in the status of its exports, what is wrong")
		why := And(ContainSubstring("is of another cluster with this id"), ContainSubstring(string(first.uid(ctx))),
			ContainSubstring(string(second.uid(ctx))), ContainSubstring("give one of the two another id"))
		Eventually(second.toldOfComity()).WithContext(ctx).Should(ContainElement(And(HavePrefix("DuplicateClusterID: "), why)))
		for _, namespace := range []string{shared, own[second]} {
			Eventually(second.condition(namespace, "Ready")).WithContext(ctx).Should(And(HavePrefix("False/Failed: "), why))
			Eventually(second.condition(namespace, "Available")).WithContext(ctx).Should(HavePrefix("False/NotPublished: "))
		}
		ofFirst := func() {
			GinkgoHelper()
			exports, clusters := publishedBy(ctx, "x")
			Expect(exports).To(ConsistOf(first.exportUID(ctx, shared), first.exportUID(ctx, own[first])))
			Expect(clusters).To(ConsistOf(first.uid(ctx)))
			Expect(holderIn(ctx, "x")).To(Equal(first.uid(ctx)))
			Expect(c.backends(own[second])(NewGomega(Fail), ctx)).To(BeEmpty())
		}
		By("writing no more, neither of them, also when the endpoints of both change and the one that publishes restarts")
		awaitQuiet(first, second, c)
		ofFirst()
		before := c.imported(ctx, shared)
		addresses[first][0], addresses[second][0] = first.move(ctx, shared), second.move(ctx, shared)
		Eventually(c.backends(shared)).WithContext(ctx).Should(ConsistOf("x/" + addresses[first][0]))
		Expect(first.agent.Stop()).To(Succeed())
		Expect(first.agent.Start()).To(Succeed())
		Expect(first.agent.WaitReady(ctx, ready)).To(Succeed())
		awaitQuiet(first, second, c)
		ofFirst()
		Expect(c.backends(shared)(NewGomega(Fail), ctx)).To(ConsistOf("x/" + addresses[first][0]))

		By("giving that one another id")
		Expect(install.Join(ctx, hub(), []join.Cluster{open(c, "c"), open(first, "x"), open(second, "y")}, join.Options{})).To(Succeed())
		first.mount(ctx)
		second.mount(ctx)
		Expect(second.agent.StopFor(second.flags("--cluster-id", "y")...)).To(Succeed())
		Expect(second.agent.Start()).To(Succeed())
		Expect(second.agent.WaitReady(ctx, ready)).To(Succeed())
		for _, m := range []*member{c, first, second} {
			Eventually(m.backends(shared)).WithContext(ctx).Should(ConsistOf("x/"+addresses[first][0], "y/"+addresses[second][0]), m.ID())
			Eventually(m.backends(own[first])).WithContext(ctx).Should(ConsistOf("x/"+addresses[first][1]), m.ID())
			Eventually(m.backends(own[second])).WithContext(ctx).Should(ConsistOf("y/"+addresses[second][1]), m.ID())
		}
		for _, m := range []*member{first, second} {
			for _, namespace := range []string{shared, own[m]} {
				Eventually(m.condition(namespace, "Ready")).WithContext(ctx).Should(HavePrefix("True/Exported: "), m.ID())
				Eventually(m.condition(namespace, "Available")).WithContext(ctx).Should(HavePrefix("True/Imported: imported by all 2 clusters"), m.ID())
			}
		}
		awaitQuiet(first, second, c)
		after := c.imported(ctx, shared)
		for object, uid := range before {
			Expect(after).To(HaveKeyWithValue(object, uid), "nothing of what was imported was deleted and created again")
		}
	}, SpecTimeout(6*time.Minute))
})
