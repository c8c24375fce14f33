// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

// manifests are the objects that a command printed, by cluster, as they are in Git.
func manifests(text string) map[model.ClusterID][]*unstructured.Unstructured {
	GinkgoHelper()
	out := map[model.ClusterID][]*unstructured.Unstructured{}
	for _, document := range strings.Split(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(strings.TrimPrefix(document, "---\n")), &o.Object)).To(Succeed())
		id := model.ClusterID(o.GetAnnotations()[join.AnnotationCluster])
		out[id] = append(out[id], o)
	}
	return out
}

var _ = Describe("The objects of a join in Git", func() {
	var p *plugin
	// where is the API server of each cluster.
	where := map[model.ClusterID]model.ClusterID{"git-a": "a", "git-b": "b"}

	BeforeEach(func(ctx SpecContext) {
		for id, at := range where {
			info := agentOf(at)
			info.ID = id
			installed(ctx, at, info, join.DefaultNamespace, "10."+string('1'+at[0]-'a')+".0.5")
		}
		p = &plugin{kubeconfig: all().write()}
	})

	// sync applies the manifests as a GitOps tool does, with the marks by which it finds what
	// it applied.
	sync := func(ctx SpecContext, desired map[model.ClusterID][]*unstructured.Unstructured) {
		GinkgoHelper()
		for id, objects := range desired {
			for _, o := range objects {
				marked := o.DeepCopy()
				marked.SetLabels(with(o.GetLabels(), map[string]string{"app.kubernetes.io/instance": "clusterset", "kustomize.toolkit.fluxcd.io/name": "clusterset"}))
				marked.SetAnnotations(with(o.GetAnnotations(), map[string]string{"argocd.argoproj.io/tracking-id": "clusterset:" + o.GetName()}))
				Expect(admin(where[id]).Apply(ctx, client.ApplyConfigurationFromUnstructured(marked), client.FieldOwner("argocd-controller"), client.ForceOwnership)).To(Succeed())
			}
		}
	}

	It("are complete, and one command adds the credentials and nothing else", func(ctx SpecContext) {
		printed, _, err := p.run(ctx, "join", "a", "b", "--dry-run", "-o", "yaml")
		Expect(err).NotTo(HaveOccurred())
		desired := manifests(printed)
		Expect(desired).To(And(HaveLen(2), HaveKey(model.ClusterID("git-a")), HaveKey(model.ClusterID("git-b"))))
		for _, objects := range desired {
			for _, o := range objects {
				Expect(o.GetKind()).NotTo(Equal("Secret"))
				Expect([]string{o.GetKind(), o.GetName()}).NotTo(Equal([]string{"Namespace", join.DefaultNamespace}), "it would be pruned, with the agent in it")
				Expect(o.Object).NotTo(HaveKey("status"))
			}
		}

		By("applying them from Git")
		sync(ctx, desired)
		Expect(peerOf(ctx, "a", "git-b").Spec.ClusterUID).To(Equal(uidOf(ctx, "b")))
		Expect(peerOf(ctx, "a", "git-b").Labels).To(HaveKeyWithValue("app.kubernetes.io/instance", "clusterset"))
		secret := &corev1.Secret{}
		Expect(client.IgnoreNotFound(admin("a").Get(ctx, client.ObjectKey{Namespace: join.DefaultNamespace, Name: model.PeerName("git-b")}, secret))).To(Succeed())
		Expect(secret.Name).To(BeEmpty())

		By("running the command")
		out, _, err := p.run(ctx, append([]string{"join", "a", "b"}, flagsOf(where)...)...)
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(And(ContainSubstring("git-a: Secret comity-system/peer-git-b created (new credential"), ContainSubstring("git-b: Secret comity-system/peer-git-a created (new credential"),
			MatchRegexp(`of clusterset prod: 2 created, \d+ unchanged in`)))
		for holder, peer := range map[model.ClusterID]model.ClusterID{"a": "git-b", "b": "git-a"} {
			Eventually(reading(ctx, holder, peer)).WithTimeout(cachedFor).Should(Succeed())
		}

		By("changing nothing afterwards, neither from Git nor by the command")
		sync(ctx, desired) // Kubernetes may note that two apply the same
		before := versions(ctx)
		Eventually(time.Now).WithTimeout(cachedFor).Should(BeTemporally(">=", time.Now().Truncate(time.Second).Add(time.Second)))
		sync(ctx, desired)
		_, _, err = p.run(ctx, append([]string{"join", "a", "b"}, flagsOf(where)...)...)
		Expect(err).NotTo(HaveOccurred())
		Expect(cmp.Diff(before, versions(ctx))).To(BeEmpty())
		again, _, err := p.run(ctx, "join", "a", "b", "--dry-run", "-o", "yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(cmp.Diff(printed, again)).To(BeEmpty(), "Git needs no change either")

		By("restoring a credential that was lost, and replacing all")
		Expect(admin("a").Delete(ctx, peerSecret(ctx, "a", "git-b"))).To(Succeed())
		_, _, err = p.run(ctx, append([]string{"join", "a", "b"}, flagsOf(where)...)...)
		Expect(err).NotTo(HaveOccurred())
		Eventually(reading(ctx, "a", "git-b")).WithTimeout(cachedFor).Should(Succeed())
		_, _, err = p.run(ctx, append([]string{"rotate", "a", "b"}, flagsOf(where)...)...)
		Expect(err).NotTo(HaveOccurred())
		sync(ctx, desired) // the accounts are new, and have the marks again
		Eventually(reading(ctx, "a", "git-b")).WithTimeout(cachedFor).Should(Succeed())
		Eventually(reading(ctx, "b", "git-a")).WithTimeout(cachedFor).Should(Succeed())
	})
})

// with is a map with more entries.
func with(in, more map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range []map[string]string{in, more} {
		for key, value := range m {
			out[key] = value
		}
	}
	return out
}

// flagsOf are the flags --server of clusters by where they are.
func flagsOf(where map[model.ClusterID]model.ClusterID) (flags []string) {
	for id, at := range where {
		flags = append(flags, "--server", string(id)+"="+strings.TrimRight(clusters[at].Host, "/"))
	}
	return flags
}
