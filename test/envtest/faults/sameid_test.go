// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/members"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
	"github.com/comity-mcs/comity/test/install"
)

// trust makes a Secret by which m reads another cluster as the peer id, with an account
// of that cluster: what an administrator may do without kubectl comity join, which
// refuses a second cluster.
func trust(ctx context.Context, m, other *clusterset.Member, name string, id model.ClusterID, account string) {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clusters.ServiceAccountKubeconfig(ctx, other.Cluster, install.Namespace, account, path)).To(Succeed())
	kubeconfig, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	m.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: install.Namespace, Name: name,
			Labels:      map[string]string{model.LabelClusterID: string(id), model.LabelClusterSet: m.As(id).Set},
			Annotations: map[string]string{model.AnnotationAcceptedCIDRs: "0.0.0.0/0"},
		},
		Data: map[string][]byte{join.KubeconfigKey: kubeconfig},
	})
}

// letRead makes what m needs so that peer can read what it publishes under the id self.
func letRead(ctx context.Context, m *clusterset.Member, self model.ClusterID, peer join.Cluster) {
	GinkgoHelper()
	objects, err := join.Objects(m.As(self), peer)
	Expect(err).NotTo(HaveOccurred())
	for _, o := range objects {
		Expect(client.IgnoreAlreadyExists(m.Client.Create(ctx, o))).To(Succeed(), "create %T %s", o, o.GetName())
	}
}

// clusterUID is the UID of the kube-system namespace of m.
func clusterUID(ctx context.Context, m *clusterset.Member) string {
	GinkgoHelper()
	return string(clusterset.Get(ctx, m, clusterset.Namespace(metav1.NamespaceSystem)).UID)
}

// writtenIn are the writes of m's agent in one namespace.
func writtenIn(m *clusterset.Member, ns string, since time.Time) []string {
	GinkgoHelper()
	return clusterset.Describe(slices.DeleteFunc(m.AgentWrites(since), func(w controlplane.Write) bool { return w.Namespace != ns }))
}

// In a mesh each of them publishes in its own API server, so that none overwrites what
// the other publishes. Who reads them must not take the one for the other.
var _ = Describe("FAULT 38: two clusters with one id in a mesh", func() {
	It("the one that is read already stays, and both are imported once the other one has an id of its own", func(ctx SpecContext) {
		const ns = "sameid"
		set.Add(ctx, controlplane.Options{IDs: []string{"first", "second", "reader"}, APIServerOnly: true})
		first, second, reader := set.Members["first"], set.Members["second"], set.Members["reader"]
		all := []*clusterset.Member{first, second, reader}
		for _, m := range all {
			m.Create(ctx, clusterset.Namespace(ns))
		}
		first.Restart(ctx, "--cluster-id=x")
		second.Restart(ctx, "--cluster-id=x")
		exportOne(ctx, first, ns, "web", 8080, "10.90.1.1")
		exportOne(ctx, second, ns, "web", 8080, "10.90.2.1")
		exportOne(ctx, second, ns, "own", 8080, "10.90.2.9")
		Expect(join.Connect(ctx, first.As("x"), reader.As("reader"), join.Options{})).To(Succeed())
		Eventually(ctx, reader.Backends(ns, "web")).Should(Equal([]string{"x/10.90.1.1"}))
		Eventually(ctx, first.ExportCondition(ns, "web", "Available")).Should(HavePrefix("True/Imported: "))
		peer := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: join.PeerName("x")}}
		Eventually(ctx, func() string { return clusterset.Get(ctx, reader, peer).Annotations[model.AnnotationClusterUID] }).Should(Equal(clusterUID(ctx, first)))
		clusterset.AwaitQuiet(ctx, all...)

		By("refusing to join the second one")
		from := time.Now()
		version := clusterset.Get(ctx, reader, peer).ResourceVersion
		Expect(join.Connect(ctx, second.As("x"), reader.As("reader"), join.Options{})).To(MatchError(And(
			ContainSubstring("peer-x is that of another cluster with the id x"), ContainSubstring(clusterUID(ctx, first)), ContainSubstring(clusterUID(ctx, second)))))
		Expect(clusterset.Get(ctx, reader, peer).ResourceVersion).To(Equal(version))

		By("joining it by hand, with a second Secret")
		letRead(ctx, second, "x", reader.As("reader"))
		trust(ctx, second, reader, join.PeerName("reader"), "reader", join.PeerName("x"))
		trust(ctx, reader, second, "peer-x-2", "x", join.PeerName("reader"))
		awaitEventOn(ctx, reader, "peer-x-2", members.ReasonDuplicateClusterID, `"x" is claimed by the older Secret peer-x already`)
		for _, name := range []string{"web", "own"} {
			Eventually(ctx, second.ExportCondition(ns, name, "Available")).Should(And(HavePrefix("Unknown/Pending: "), ContainSubstring("not reported yet by reader")))
		}
		clusterset.AwaitQuiet(ctx, all...)
		change(ctx, second, ns, "web", "10.90.2.2")
		change(ctx, first, ns, "web", "10.90.1.2")
		Eventually(ctx, reader.Backends(ns, "web")).Should(Equal([]string{"x/10.90.1.2"}))
		clusterset.AwaitQuiet(ctx, all...)
		Expect(writtenIn(reader, ns, from)).To(HaveLen(1), "the change of the first one's endpoint is all that is written")

		By("reading the same one after a restart, which finds both Secrets")
		again := time.Now()
		reader.Restart(ctx)
		clusterset.AwaitQuiet(ctx, all...)
		Expect(writtenIn(reader, ns, again)).To(BeEmpty())
		Expect(reader.AllBackends(ctx, ns)).To(Equal([]string{"x/10.90.1.2"}))
		Expect(first.ExportCondition(ns, "web", "Available")(NewGomega(Fail), ctx)).To(HavePrefix("True/Imported: "))
		Expect(second.ExportCondition(ns, "web", "Available")(NewGomega(Fail), ctx)).To(HavePrefix("Unknown/Pending: "), "the report on the first one's export is not about its own")

		By("giving the second one another id")
		Expect(reader.Client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: "peer-x-2"}})).To(Succeed())
		second.Restart(ctx, "--cluster-id=y")
		Expect(join.Connect(ctx, second.As("y"), reader.As("reader"), join.Options{})).To(Succeed())
		Expect(join.Connect(ctx, second.As("y"), first.As("x"), join.Options{})).To(Succeed())
		for _, m := range all {
			Eventually(ctx, m.Backends(ns, "web")).Should(Equal([]string{"x/10.90.1.2", "y/10.90.2.2"}), m.ID())
			Eventually(ctx, m.Backends(ns, "own")).Should(Equal([]string{"y/10.90.2.9"}), m.ID())
		}
		for name, m := range map[string]*clusterset.Member{"web": first, "own": second} {
			Eventually(ctx, m.ExportCondition(ns, name, "Available")).Should(HavePrefix("True/Imported: imported by all 2 clusters"), "%s of %s", name, m.ID())
		}
		clusterset.AwaitQuiet(ctx, all...)
		reader.HoldInvariants(from, nil)
	}, SpecTimeout(6*time.Minute))
})
