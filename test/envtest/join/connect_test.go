// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/install"
)

// recorder collects the steps of a run.
type recorder struct{ steps []join.Step }

func (r *recorder) options() join.Options {
	return join.Options{Progress: func(step join.Step) {
		GinkgoWriter.Println(step)
		r.steps = append(r.steps, step)
	}}
}

// versions are the resource versions of everything that a join may write.
func versions(ctx SpecContext) map[string]string {
	GinkgoHelper()
	found := map[string]string{}
	for id := range clusters {
		for _, list := range []client.ObjectList{
			&corev1.NamespaceList{}, &corev1.SecretList{}, &corev1.ServiceAccountList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &v1alpha1.PeerList{},
		} {
			Expect(admin(id).List(ctx, list)).To(Succeed())
			Expect(apimeta.EachListItem(list, func(item runtime.Object) error {
				object := item.(client.Object)
				if strings.HasPrefix(object.GetNamespace(), "kube-") {
					return nil // the API server still makes its own roles there
				}
				found[fmt.Sprintf("%s %T %s", id, object, client.ObjectKeyFromObject(object))] = object.GetResourceVersion()
				return nil
			})).To(Succeed())
		}
	}
	return found
}

var _ = Describe("Connect", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		Expect(install.Join(ctx, nil, []join.Cluster{cluster("a"), cluster("b")}, join.Options{})).To(Succeed())
	})

	It("writes nothing when everything stands", func(ctx SpecContext) {
		before := versions(ctx)
		By("waiting for the next second: within one, a needless write leaves no trace in managedFields")
		Eventually(time.Now).WithTimeout(cachedFor).Should(BeTemporally(">=", time.Now().Truncate(time.Second).Add(time.Second)))
		run := &recorder{}
		Expect(install.Join(ctx, nil, []join.Cluster{cluster("a"), cluster("b")}, run.options())).To(Succeed())
		Expect(cmp.Diff(before, versions(ctx))).To(BeEmpty())
		Expect(run.steps).NotTo(BeEmpty())
		Expect(run.steps).To(HaveEach(HaveField("Verb", join.Unchanged)))
	})

	It("restores what somebody widened", func(ctx SpecContext) {
		role := &rbacv1.Role{}
		role.Namespace, role.Name = "comity-a", "comity-exchange-reader"
		Expect(admin("a").Get(ctx, client.ObjectKeyFromObject(role), role)).To(Succeed())
		role.Rules[0].Verbs = []string{"*"}
		Expect(admin("a").Update(ctx, role)).To(Succeed())

		run := &recorder{}
		Expect(install.Join(ctx, nil, []join.Cluster{cluster("a"), cluster("b")}, run.options())).To(Succeed())
		Expect(run.steps).To(ContainElement(join.Step{Cluster: "a", Kind: "Role", Namespace: "comity-a", Name: "comity-exchange-reader", Verb: join.Changed}))
		Expect(admin("a").Get(ctx, client.ObjectKeyFromObject(role), role)).To(Succeed())
		Expect(role.Rules[0].Verbs).To(Equal([]string{"get", "list", "watch"}))
	})

	It("makes a Peer with the UID of the cluster, and a Secret that says nothing but the credential", func(ctx SpecContext) {
		peer := peerOf(ctx, "b", "a")
		Expect(peer.Labels).To(Equal(map[string]string{model.LabelClusterID: "a", model.LabelClusterSet: "prod"}))
		peer.Spec.AcceptedNamespaces = nil // another spec may have set it
		Expect(peer.Spec).To(Equal(v1alpha1.PeerSpec{ClusterSet: "prod", ClusterUID: uidOf(ctx, "a"), KubeconfigSecret: "peer-a", AcceptedCIDRs: []string{"10.1.0.0/16"}}))
		secret := peerSecret(ctx, "b", "a")
		Expect(secret.Annotations).To(BeEmpty())
		Expect(secret.Labels).To(Equal(map[string]string{"app.kubernetes.io/managed-by": "comity-join"}))
	})

	It("keeps what the administrator set in a Peer", func(ctx SpecContext) {
		peer := peerOf(ctx, "b", "a")
		before := peer.DeepCopy()
		DeferCleanup(func(ctx SpecContext) {
			peer := peerOf(ctx, "b", "a")
			peer.Labels, peer.Spec = before.Labels, before.Spec
			Expect(admin("b").Update(ctx, peer)).To(Succeed())
		})
		confirmed := metav1.Unix(1_800_000_000, 0)
		peer.Labels["region"], peer.Spec.ConfirmMissingBefore, peer.Spec.AcceptedNamespaces = "eu", &confirmed, &[]string{"shop"}
		Expect(admin("b").Update(ctx, peer)).To(Succeed())
		a := cluster("a")
		a.PodCIDRs = prefixes("10.1.0.0/17")
		Expect(install.Join(ctx, nil, []join.Cluster{a, cluster("b")}, join.Options{})).To(Succeed())
		peer = peerOf(ctx, "b", "a")
		Expect(peer.Labels).To(HaveKeyWithValue("region", "eu"))
		Expect(peer.Spec.AcceptedCIDRs).To(Equal([]string{"10.1.0.0/17"}), "the join changed the Peer")
		Expect(peer.Spec.AcceptedNamespaces).To(HaveValue(Equal([]string{"shop"})))
		Expect(peer.Spec.ConfirmMissingBefore.Equal(&confirmed)).To(BeTrue())
	})

	It("takes back that a cluster was removed", func(ctx SpecContext) {
		for _, spec := range []v1alpha1.PeerSpec{{Removed: true}, {Removed: true, ClusterSet: "prod", ClusterUID: uidOf(ctx, "c"), KubeconfigSecret: "peer-again", AcceptedCIDRs: []string{"10.3.0.0/16"}}} {
			again := cluster("c")
			again.ID = "again"
			left := &v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "again"}, Spec: spec}
			Expect(client.IgnoreNotFound(admin("a").Delete(ctx, left.DeepCopy()))).To(Succeed())
			Expect(admin("a").Create(ctx, left)).To(Succeed())
			Expect(install.Join(ctx, nil, []join.Cluster{cluster("a"), again}, join.Options{})).To(Succeed())
			Expect(peerOf(ctx, "a", "again").Spec.Removed).To(BeFalse())
			Expect(peerOf(ctx, "a", "again").Spec.ClusterUID).To(Equal(uidOf(ctx, "c")))
			before := versions(ctx)
			Expect(install.Join(ctx, nil, []join.Cluster{cluster("a"), again}, join.Options{})).To(Succeed())
			Expect(cmp.Diff(before, versions(ctx))).To(BeEmpty())
		}
	})

	It("keeps a token that the agent renewed", func(ctx SpecContext) {
		renewed := renew(ctx, "b", "a")
		before := versions(ctx)
		Expect(install.Join(ctx, nil, []join.Cluster{cluster("a"), cluster("b")}, join.Options{})).To(Succeed())
		Expect(cmp.Diff(before, versions(ctx))).To(BeEmpty())
		Expect(peerSecret(ctx, "b", "a").Data[join.KubeconfigKey]).To(Equal(renewed))
	})

	It("replaces a token that the agent should have renewed", func(ctx SpecContext) {
		before := peerSecret(ctx, "b", "a").Data
		later := join.Options{Now: func() time.Time { return time.Now().Add(15 * time.Hour) }}
		Expect(install.Join(ctx, nil, []join.Cluster{cluster("a"), cluster("b")}, later)).To(Succeed())
		Expect(peerSecret(ctx, "b", "a").Data).NotTo(Equal(before))
	})

	It("replaces a token whose account was made again, which no clock shows", func(ctx SpecContext) {
		before := peerSecret(ctx, "b", "a").Data
		Expect(admin("a").Delete(ctx, account("peer-b"))).To(Succeed())
		Expect(install.Join(ctx, nil, []join.Cluster{cluster("a"), cluster("b")}, join.Options{})).To(Succeed())
		Expect(peerSecret(ctx, "b", "a").Data).NotTo(Equal(before))
		asB := connectTo(credential(ctx, "b", "a"))
		Expect(asB.List(ctx, &v1alpha1.ExportRecordList{}, client.InNamespace("comity-a"))).To(Succeed())
	})

	It("accepts what is given, and keeps it while the peer says nothing else", func(ctx SpecContext) {
		a, b := cluster("c"), cluster("b")
		a.ID, a.PodCIDRs = "given", cluster("a").PodCIDRs // other specs change the Peers a and b
		a.AcceptedCIDRs = prefixes("10.2.0.0/16", "10.1.0.0/16")
		Expect(install.Join(ctx, nil, []join.Cluster{a, b}, join.Options{})).To(Succeed())
		stored := []string{"10.1.0.0/16", "10.2.0.0/16"}
		Expect(peerOf(ctx, "b", "given").Spec.AcceptedCIDRs).To(Equal(stored))
		a.PodCIDRs, a.AcceptedCIDRs = nil, nil
		Expect(install.Join(ctx, nil, []join.Cluster{a, b}, join.Options{Rotate: true})).To(Succeed())
		Expect(peerOf(ctx, "b", "given").Spec.AcceptedCIDRs).To(Equal(stored))
	})

	It("accepts the pod ranges of the peer's nodes if none are given, and says so", func(ctx SpecContext) {
		a, b := cluster("a"), cluster("b")
		a.PodCIDRs, b.PodCIDRs = nil, nil
		b.ID = "nodes"
		refusedFor(ctx, a, b, "no pod range of cluster nodes is known")

		node := &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: "10.7.1.0/24", PodCIDRs: []string{"10.7.1.0/24"}}}
		node.Name = "one"
		for _, id := range []model.ClusterID{"a", "b"} {
			node := node.DeepCopy()
			if id == "a" {
				node.Spec.PodCIDR, node.Spec.PodCIDRs = "10.8.1.0/24", []string{"10.8.1.0/24"}
			}
			Expect(admin(id).Create(ctx, node)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(admin(id).Delete(ctx, node)).To(Succeed()) })
		}
		run := &recorder{}
		Expect(install.Join(ctx, nil, []join.Cluster{a, b}, run.options())).To(Succeed())
		Expect(peerOf(ctx, "a", "nodes").Spec.AcceptedCIDRs).To(Equal([]string{"10.7.1.0/24"}))
		Expect(run.steps).To(ContainElement(And(HaveField("Name", "nodes"), HaveField("Kind", "Peer"),
			HaveField("Note", ContainSubstring("accepts 10.7.1.0/24 from nodes, the pod ranges of its nodes")))))

		By("knowing the subnet of the whole cluster where kubeadm wrote it down")
		kubeadmStates(ctx, "b", "networking:\n  podSubnet: 10.7.0.0/16\n  serviceSubnet: 10.0.0.0/24\n")
		b.ID = "kubeadm"
		Expect(install.Join(ctx, nil, []join.Cluster{a, b}, join.Options{})).To(Succeed())
		Expect(peerOf(ctx, "a", "kubeadm").Spec.AcceptedCIDRs).To(Equal([]string{"10.7.0.0/16"}))
	})
})

// renew does what the agent of holder does: ask for a token of its own and
// store it under its own field owner.
func renew(ctx SpecContext, holder, peer model.ClusterID) []byte {
	GinkgoHelper()
	request := &authenticationv1.TokenRequest{}
	self := connectTo(credential(ctx, holder, peer))
	Expect(self.SubResource("token").Create(ctx, account(model.PeerName(holder)), request)).To(Succeed())

	secret := peerSecret(ctx, holder, peer)
	config, err := clientcmd.Load(secret.Data[join.KubeconfigKey])
	Expect(err).NotTo(HaveOccurred())
	for _, user := range config.AuthInfos {
		user.Token = request.Status.Token
	}
	secret.Data[join.KubeconfigKey], err = clientcmd.Write(*config)
	Expect(err).NotTo(HaveOccurred())
	Expect(admin(holder).Update(ctx, secret, client.FieldOwner(model.FieldOwner))).To(Succeed())
	return secret.Data[join.KubeconfigKey]
}

// refusedFor demands that Connect says message and leaves everything as it is.
func refusedFor(ctx SpecContext, a, b join.Cluster, message string) {
	GinkgoHelper()
	before := versions(ctx)
	Expect(install.Join(ctx, nil, []join.Cluster{a, b}, join.Options{})).To(MatchError(ContainSubstring(message)))
	Expect(cmp.Diff(before, versions(ctx))).To(BeEmpty())
}

var _ = Describe("Connect refuses, and writes nothing for,", func() {
	It("a namespace of a user's that has the name of an exchange namespace", func(ctx SpecContext) {
		namespace := &corev1.Namespace{}
		namespace.Name = "comity-shop"
		Expect(admin("a").Create(ctx, namespace)).To(Succeed())
		shop := cluster("a")
		shop.ID = "shop"
		refusedFor(ctx, shop, cluster("c"), `namespace comity-shop exists with label comity.dev/exchange-from="", expected "shop"`)
	})

	It("a Secret of somebody else's that has the name of a peer's", func(ctx SpecContext) {
		makeSecret(ctx, "a", "peer-x", nil)
		x := cluster("c")
		x.ID = "x"
		refusedFor(ctx, cluster("a"), x, "the Secret comity-system/peer-x was not made by a join; rename or delete it")
	})

	It("FAULT 38: another cluster than the one of the Peer, until the administrator says that it replaces that one", func(ctx SpecContext) {
		successor := cluster("c")
		successor.ID = "successor"
		Expect(install.Join(ctx, nil, []join.Cluster{cluster("a"), successor}, join.Options{})).To(Succeed())
		Eventually(reading(ctx, "c", "a")).WithTimeout(cachedFor).Should(Succeed())
		old := connectTo(credential(ctx, "c", "a"))
		peer := peerOf(ctx, "a", "successor")
		peer.Spec.ClusterUID = "another"
		Expect(admin("a").Update(ctx, peer)).To(Succeed())
		refusedFor(ctx, cluster("a"), successor, "the Peer successor is that of another cluster with the id successor (UID another, not "+string(uidOf(ctx, "c"))+
			"); give one of the two another id, or, to replace the other one, run kubectl comity join --replace")

		By("joining it, with no credential of the cluster before")
		Expect(admin("c").Delete(ctx, peerSecret(ctx, "c", "a"))).To(Succeed())
		prepared, err := join.Prepare(ctx, nil, []join.Cluster{cluster("a"), successor}, join.Options{Replace: true})
		Expect(err).NotTo(HaveOccurred())
		Expect(prepared.Replaced).To(ConsistOf(join.Replacement{Holder: "a", Peer: "successor", Old: "another", New: uidOf(ctx, "c")}))
		Expect(prepared.Write(ctx)).To(Succeed())
		Expect(peerOf(ctx, "a", "successor").Spec.ClusterUID).To(Equal(uidOf(ctx, "c")))
		Eventually(func() error {
			return old.List(ctx, &v1alpha1.ExportRecordList{}, client.InNamespace("comity-a"))
		}).WithTimeout(cachedFor).Should(BeUnauthorized())
	})

	It("what the schema of Peer does not allow", func(ctx SpecContext) {
		b := cluster("b")
		b.AcceptedNamespaces = []string{"team-[ab]"}
		refusedFor(ctx, cluster("a"), b, "cluster a: check Peer b: ")
	})

	It("clusters whose pod ranges overlap", func(ctx SpecContext) {
		other := cluster("b")
		other.ID, other.PodCIDRs = "overlapping", prefixes("10.1.128.0/17")
		refusedFor(ctx, cluster("a"), other, "the pod range 10.1.0.0/16 of cluster a overlaps the pod range 10.1.128.0/17 of cluster overlapping")
	})

	It("pods that the other cluster would take for its Services", func(ctx SpecContext) {
		// 10.0.0.0/24 is what these API servers give to Services.
		other := cluster("b")
		other.ID, other.PodCIDRs = "overlapping", prefixes("10.0.0.0/20")
		refusedFor(ctx, cluster("a"), other, "the service range 10.0.0.0/24 of cluster a overlaps the pod range 10.0.0.0/20 of cluster overlapping")
	})

	It("a cluster that cannot be reached", func(ctx SpecContext) {
		gone := cluster("b")
		gone.RESTConfig = rest.CopyConfig(gone.RESTConfig)
		gone.RESTConfig.Host = "https://127.0.0.1:1"
		refusedFor(ctx, cluster("a"), gone, "cluster b: https://127.0.0.1:1 cannot be read with the access given")
	})
})

func makeSecret(ctx SpecContext, id model.ClusterID, name string, labels map[string]string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{}
	namespace.Name = join.DefaultNamespace
	Expect(client.IgnoreAlreadyExists(admin(id).Create(ctx, namespace))).To(Succeed())
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name, secret.Labels = join.DefaultNamespace, name, labels
	Expect(admin(id).Create(ctx, secret)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(admin(id).Delete(ctx, secret)).To(Succeed()) })
}

var _ = Describe("Disconnect", func() {
	BeforeEach(agentsRemove)

	It("takes back every right of the one peer and none of the other", func(ctx SpecContext) {
		d := cluster("c")
		d.ID = "d"
		Expect(install.Join(ctx, nil, []join.Cluster{cluster("b"), d}, join.Options{})).To(Succeed())
		Expect(install.Join(ctx, nil, []join.Cluster{cluster("b"), cluster("a")}, join.Options{})).To(Succeed())
		asD := connectTo(credential(ctx, "c", "b"))
		Eventually(reading(ctx, "c", "b")).WithTimeout(cachedFor).Should(Succeed())

		Expect(join.Disconnect(ctx, nil, cluster("b"), []join.Cluster{d}, join.Options{})).To(Succeed())

		Eventually(func() error {
			return asD.List(ctx, &v1alpha1.ExportRecordList{}, client.InNamespace("comity-b"))
		}).WithTimeout(30*time.Second).Should(WithTransform(apierrors.IsUnauthorized, BeTrue()), "the token of a removed account")
		for _, gone := range []struct{ id, peer model.ClusterID }{{"b", "d"}, {"c", "b"}} {
			key := client.ObjectKey{Namespace: join.DefaultNamespace, Name: model.PeerName(gone.peer)}
			Expect(apierrors.IsNotFound(admin(gone.id).Get(ctx, client.ObjectKey{Name: string(gone.peer)}, &v1alpha1.Peer{}))).To(BeTrue(), "Peer in %s", gone.id)
			Expect(apierrors.IsNotFound(admin(gone.id).Get(ctx, key, &corev1.Secret{}))).To(BeTrue(), "Secret in %s", gone.id)
			Expect(apierrors.IsNotFound(admin(gone.id).Get(ctx, key, &rbacv1.Role{}))).To(BeTrue(), "Role in %s", gone.id)
			Expect(apierrors.IsNotFound(admin(gone.id).Get(ctx, key, &rbacv1.RoleBinding{}))).To(BeTrue(), "RoleBinding in %s", gone.id)
		}
		between := &corev1.Namespace{}
		Expect(admin("b").Get(ctx, client.ObjectKey{Name: "comity-b-to-d"}, between)).To(Succeed())
		Expect(between.DeletionTimestamp).NotTo(BeNil(), "nobody finishes deletions here, but it was asked for")

		asA := connectTo(credential(ctx, "a", "b"))
		Expect(asA.List(ctx, &v1alpha1.ExportRecordList{}, client.InNamespace("comity-b"))).To(Succeed())
		Expect(join.Disconnect(ctx, nil, cluster("b"), []join.Cluster{d}, join.Options{})).To(Succeed(), "repeated")
		Expect(install.Join(ctx, nil, []join.Cluster{cluster("b"), d}, join.Options{})).To(MatchError(ContainSubstring("namespace comity-b-to-d is being deleted")))
	})

	It("leaves alone a Secret that no join made", func(ctx SpecContext) {
		makeSecret(ctx, "a", "peer-z", nil)
		run := &recorder{}
		Expect(join.Disconnect(ctx, nil, cluster("a"), []join.Cluster{{ID: "z", Set: "prod"}}, run.options())).To(Succeed())
		Expect(run.steps).To(ConsistOf(HaveField("Verb", join.Kept)))
		peerSecret(ctx, "a", "z")
	})
})
