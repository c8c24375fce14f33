// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// as installs an agent in cluster at that says it is id: no namespace of these
// API servers is ever gone, so each spec needs ids of its own.
func as(ctx SpecContext, namespace string, at, id model.ClusterID) {
	GinkgoHelper()
	info := agentOf(at)
	info.ID = id
	installed(ctx, at, info, namespace, "10."+string(rune('1'+at[0]-'a'))+".0.5")
}

// serverOf is the flag for a cluster whose agent says that it is id.
func serverOf(at, id model.ClusterID) []string {
	return []string{"--server", string(id) + "=" + clusters[at].Host}
}

func exists(ctx SpecContext, at model.ClusterID, object client.Object, namespace, name string) bool {
	GinkgoHelper()
	err := admin(at).Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return false
	}
	Expect(err).NotTo(HaveOccurred())
	return object.GetDeletionTimestamp() == nil
}

var _ = Describe("kubectl comity leave", func() {
	var p *plugin
	// namespace is Comity's, one for each spec, so that no other has peers in it.
	var namespace string
	specs := 0

	BeforeEach(func(ctx SpecContext) {
		specs++
		forgetAll(ctx)
		agentsRemove()
		p, namespace = &plugin{kubeconfig: all().write()}, fmt.Sprintf("leave-%d", specs)
	})

	joined := func(ctx SpecContext, ids ...model.ClusterID) {
		GinkgoHelper()
		args := []string{"join"}
		for i, id := range ids {
			at := model.ClusterID(rune('a' + i))
			as(ctx, namespace, at, id)
			args = append(append(args, string(at)), serverOf(at, id)...)
		}
		_, _, err := p.run(ctx, args...)
		Expect(err).NotTo(HaveOccurred())
	}

	It("undoes a join on both sides, and keeps what the others share", func(ctx SpecContext) {
		joined(ctx, "leave-a", "leave-b", "leave-c")
		out, _, err := p.run(ctx, "leave", "c", "a", "b", "--yes")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("Cluster leave-c left clusterset prod"))
		Expect(out).NotTo(ContainSubstring("Left to do"))
		Expect(exists(ctx, "c", &corev1.Namespace{}, "", "comity-leave-c-to-leave-a")).To(BeFalse())
		Expect(exists(ctx, "c", &corev1.Secret{}, namespace, "peer-leave-a")).To(BeFalse())
		Expect(exists(ctx, "c", &v1alpha1.Peer{}, "", "leave-a")).To(BeFalse())
		Expect(exists(ctx, "a", &v1alpha1.Peer{}, "", "leave-c")).To(BeFalse())
		Expect(exists(ctx, "a", &corev1.Secret{}, namespace, "peer-leave-c")).To(BeFalse())
		Expect(exists(ctx, "a", &corev1.ServiceAccount{}, namespace, "peer-leave-c")).To(BeFalse())
		Expect(exists(ctx, "a", &corev1.Namespace{}, "", "comity-leave-a")).To(BeTrue())
		Expect(exists(ctx, "a", &corev1.Secret{}, namespace, "peer-leave-b")).To(BeTrue())
	})

	It("shows how many imports go, and asks", func(ctx SpecContext) {
		joined(ctx, "asked", "asker")
		importing(ctx, "a", "alone", "asker")
		importing(ctx, "a", "both", "asked", "asker")
		_, shown, err := p.run(ctx, "leave", "--id", "asker", "a")
		Expect(err).To(MatchError(ContainSubstring("pass --yes to continue")))
		Expect(command.CodeOf(err)).To(Equal(command.ExitRefused))
		Expect(shown).To(ContainSubstring(`In cluster asked (context "a"), imports that lose an export: 2, of which 1 are deleted with their clusterset IPs`))
		p.answer = "n\n"
		_, _, err = p.run(ctx, "leave", "--id", "asker", "a")
		Expect(err).To(MatchError(ContainSubstring("the answer was not yes; nothing was written")))
		Expect(peerOf(ctx, "a", "asker").Spec.Removed).To(BeFalse())
		p.answer = "yes\n"
		_, _, err = p.run(ctx, "leave", "--id", "asker", "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(exists(ctx, "a", &v1alpha1.Peer{}, "", "asker")).To(BeFalse())
	})

	It("states the removal of a cluster without a Peer, too, and leaves the Peer until the agent runs", func(ctx SpecContext) {
		joined(ctx, "stopped", "vanished")
		Expect(admin("a").Delete(ctx, peerOf(ctx, "a", "vanished"))).To(Succeed())
		derived := importing(ctx, "a", "standing", "vanished")
		removing.Store(false)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: model.LeaderLease}}
		Expect(admin("a").Patch(ctx, lease, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderIdentity":"gone"}}`)))).To(Succeed())
		out, _, err := p.run(ctx, "leave", "--id", "vanished", "a", "--yes")
		Expect(command.CodeOf(err)).To(Equal(command.ExitIncomplete))
		Expect(out).To(ContainSubstring("Left to do: Peer vanished of cluster stopped stays with spec.removed: the agent does not run; imports with an export of cluster vanished: 1; when the agent of cluster stopped runs, repeat the command"))
		Expect(peerOf(ctx, "a", "vanished").Spec).To(Equal(v1alpha1.PeerSpec{Removed: true}))
		Expect(exists(ctx, "a", &rbacv1.Role{}, namespace, "peer-vanished")).To(BeFalse(), "the cluster reads no more")

		By("repeating it when the agent runs again")
		Expect(admin("a").Patch(ctx, lease, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderIdentity":"comity-0_1234"}}`)))).To(Succeed())
		removing.Store(true)
		Expect(admin("a").Delete(ctx, derived)).To(Succeed())
		_, _, err = p.run(ctx, "leave", "--id", "vanished", "a", "--yes")
		Expect(err).NotTo(HaveOccurred())
		Expect(exists(ctx, "a", &v1alpha1.Peer{}, "", "vanished")).To(BeFalse())
		out, _, err = p.run(ctx, "leave", "--id", "vanished", "a", "--yes")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("nothing to do"))
	})

	It("leaves nothing of the peer behind", func(ctx SpecContext) {
		joined(ctx, "rest-a", "rest-b")
		_, _, err := p.run(ctx, "leave", "a", "b", "--yes")
		Expect(err).NotTo(HaveOccurred())
		for at, pair := range map[model.ClusterID][2]string{"a": {"rest-a", "rest-b"}, "b": {"rest-b", "rest-a"}} {
			for _, kind := range []client.ObjectList{&corev1.SecretList{}, &corev1.ServiceAccountList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}} {
				Expect(admin(at).List(ctx, kind)).To(Succeed())
				items, err := meta.ExtractList(kind)
				Expect(err).NotTo(HaveOccurred())
				for _, item := range items {
					object, err := meta.Accessor(item)
					Expect(err).NotTo(HaveOccurred())
					// Nothing empties namespaces here; what is in a deleted one goes with it.
					if object.GetNamespace() == namespace {
						Expect(object.GetName()).NotTo(ContainSubstring(pair[1]), "%T of %s", item, at)
					}
				}
			}
			var namespaces corev1.NamespaceList
			Expect(admin(at).List(ctx, &namespaces)).To(Succeed())
			for _, ns := range namespaces.Items {
				if strings.HasPrefix(ns.Name, "comity-"+pair[0]+"-to-") {
					Expect(ns.DeletionTimestamp).NotTo(BeNil(), ns.Name)
				}
			}
		}
	})

	It("works when the leaving cluster is lost", func(ctx SpecContext) {
		joined(ctx, "stays", "lost")
		contexts := all()
		dead := rest.CopyConfig(clusters["b"])
		dead.Host = "https://127.0.0.1:1"
		contexts["b"] = dead
		p.kubeconfig = contexts.write()
		_, _, err := p.run(ctx, "leave", "b", "a", "--yes")
		Expect(err).To(MatchError(ContainSubstring(`context "b": `)))
		Expect(err).To(MatchError(ContainSubstring("kubectl comity leave --id ID a")))
		Expect(command.CodeOf(err)).To(Equal(command.ExitRefused))

		_, _, err = p.run(ctx, "leave", "--id", "lost", "a", "--yes")
		Expect(err).NotTo(HaveOccurred())
		Expect(exists(ctx, "a", &corev1.Secret{}, namespace, "peer-lost")).To(BeFalse())
		Expect(exists(ctx, "a", &rbacv1.Role{}, namespace, "peer-lost")).To(BeFalse())
		Expect(exists(ctx, "a", &corev1.Namespace{}, "", "comity-stays-to-lost")).To(BeFalse())
	})

	It("says what is left to do where one that remains is lost", func(ctx SpecContext) {
		joined(ctx, "leaver", "silent")
		contexts := all()
		dead := rest.CopyConfig(clusters["b"])
		dead.Host = "https://127.0.0.1:1"
		contexts["b"] = dead
		p.kubeconfig = contexts.write()
		_, _, err := p.run(ctx, "leave", "a", "b", "--yes")
		Expect(command.CodeOf(err)).To(Equal(command.ExitRefused))
		Expect(err).To(MatchError(And(ContainSubstring(`context "b": `), ContainSubstring("Leave this context out"))))
		out, _, err := p.run(ctx, "leave", "a", "--yes")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("Left to do: cluster silent still has the credential and account of cluster leaver; run: kubectl comity leave --id leaver CONTEXT"))
		Expect(exists(ctx, "a", &corev1.Secret{}, namespace, "peer-silent")).To(BeFalse())

		By("finishing there")
		p.kubeconfig = all().write()
		_, _, err = p.run(ctx, "leave", "--id", "leaver", "b", "--yes")
		Expect(err).NotTo(HaveOccurred())
		Expect(exists(ctx, "b", &corev1.Secret{}, namespace, "peer-leaver")).To(BeFalse())
	})

	It("says which peers were not given", func(ctx SpecContext) {
		joined(ctx, "alone", "forgotten")
		out, _, err := p.run(ctx, "leave", "a", "--yes", "--dry-run")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(And(ContainSubstring("alone: Secret "+namespace+"/peer-forgotten deleted"), ContainSubstring("alone: Peer forgotten deleted"),
			ContainSubstring("Left to do: cluster forgotten still has the credential and account of cluster alone; run: kubectl comity leave --id alone CONTEXT")))
		Expect(exists(ctx, "a", &corev1.Secret{}, namespace, "peer-forgotten")).To(BeTrue(), "it was a dry run")
	})

	It("purges what Comity made, and nothing else", func(ctx SpecContext) {
		joined(ctx, "purged", "other")
		user := &corev1.Namespace{}
		user.Name = "shop"
		Expect(admin("a").Create(ctx, user)).To(Succeed())
		made := applyAs(ctx, model.FieldOwner)
		foreign := applyAs(ctx, "somebody")
		export := exportWithStatus(ctx)
		deployment := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "comity", Labels: map[string]string{"app.kubernetes.io/name": "comity"}},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "comity"}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/name": "comity"}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "comity", Image: "comity:dev"}}},
				},
			},
		}
		Expect(admin("a").Create(ctx, deployment)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(admin("a").Delete(ctx, deployment)).To(Succeed()) })

		out, _, err := p.run(ctx, "leave", "a", "b", "--purge", "--yes")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("Deployment " + namespace + "/comity changed (0 replicas; to continue with Comity, kubectl -n " + namespace + " scale deployment comity --replicas=2)"))
		Expect(admin("a").Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		Expect(deployment.Spec.Replicas).To(HaveValue(BeZero()))
		for _, object := range made {
			Expect(exists(ctx, "a", object, "shop", object.GetName())).To(BeFalse(), "%T", object)
		}
		for _, object := range foreign {
			Expect(exists(ctx, "a", object, "shop", object.GetName())).To(BeTrue(), "%T", object)
		}
		Expect(admin("a").Get(ctx, client.ObjectKeyFromObject(export), export)).To(Succeed())
		conditions, _, err := unstructured.NestedSlice(export.Object, "status", "conditions")
		Expect(err).NotTo(HaveOccurred())
		Expect(conditions).To(ConsistOf(HaveKeyWithValue("type", "Foreign")))
		Expect(exists(ctx, "a", &corev1.Namespace{}, "", "comity-purged")).To(BeFalse())
		Expect(exists(ctx, "a", &corev1.Namespace{}, "", namespace)).To(BeTrue())

		By("repeating it")
		out, _, err = p.run(ctx, "leave", "a", "b", "--purge", "--yes")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("nothing to do"))
	})
})

// applyAs makes one of each kind of import under a field manager, all with
// Comity's labels.
func applyAs(ctx SpecContext, owner string) []client.Object {
	GinkgoHelper()
	labels := map[string]any{"multicluster.kubernetes.io/service-name": "web", "app.kubernetes.io/managed-by": "comity"}
	var made []client.Object
	for _, u := range []*unstructured.Unstructured{
		{Object: map[string]any{"apiVersion": "v1", "kind": "Service", "spec": map[string]any{"ports": []any{map[string]any{"port": int64(80)}}}}},
		{Object: map[string]any{"apiVersion": discoveryv1.SchemeGroupVersion.String(), "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": []any{}}},
		{Object: map[string]any{"apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceImport",
			"spec": map[string]any{"type": "ClusterSetIP", "ports": []any{map[string]any{"port": int64(80), "protocol": "TCP"}}}}},
	} {
		u.Object["metadata"] = map[string]any{"namespace": "shop", "name": "made-by-" + owner, "labels": labels}
		Expect(admin("a").Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(owner))).To(Succeed())
		made = append(made, u)
	}
	return made
}

// exportWithStatus has a condition of Comity's and one of somebody else's.
func exportWithStatus(ctx SpecContext) *unstructured.Unstructured {
	GinkgoHelper()
	export := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "multicluster.x-k8s.io/v1beta1", "kind": "ServiceExport", "metadata": map[string]any{"namespace": "shop", "name": "web"},
	}}
	Expect(admin("a").Create(ctx, export.DeepCopy())).To(Succeed())
	for owner, kind := range map[string]string{model.FieldOwner: "Ready", "somebody": "Foreign"} {
		patch := `{"apiVersion":"multicluster.x-k8s.io/v1beta1","kind":"ServiceExport","metadata":{"namespace":"shop","name":"web"},"status":{"conditions":[` +
			`{"type":"` + kind + `","status":"True","reason":"Test","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
		Expect(admin("a").SubResource("status").Patch(ctx, export.DeepCopy(), client.RawPatch("application/apply-patch+yaml", []byte(patch)), client.FieldOwner(owner))).To(Succeed())
	}
	return export
}
