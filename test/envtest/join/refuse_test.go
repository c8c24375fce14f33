// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/install"
)

var _ = Describe("kubectl comity join refuses, with one message and nothing written,", func() {
	var p *plugin

	BeforeEach(func() { p = &plugin{kubeconfig: all().write()} })

	// refused demands a message and that nothing was written.
	refused := func(ctx SpecContext, args []string, messages ...string) {
		GinkgoHelper()
		before := versions(ctx)
		_, _, err := p.run(ctx, args...)
		for _, message := range messages {
			Expect(err).To(MatchError(ContainSubstring(message)))
		}
		Expect(command.CodeOf(err)).To(Equal(command.ExitRefused))
		Expect(cmp.Diff(before, versions(ctx))).To(BeEmpty())
	}
	joining := func(ids ...string) []string { return append(append([]string{"join"}, ids...), servers(ids...)...) }

	It("an unknown context, and names those that are known", func(ctx SpecContext) {
		refused(ctx, []string{"join", "a", "nowhere"}, `context "nowhere" is not in the kubeconfig; expected one of: a, b, c`)
	})

	It("fewer than two clusters", func(ctx SpecContext) {
		installedAll(ctx)
		refused(ctx, []string{"join", "a"}, "expected at least two clusters to join")
	})

	It("one cluster under two contexts", func(ctx SpecContext) {
		contexts := all()
		contexts["twin"] = clusters["a"]
		p.kubeconfig = contexts.write()
		refused(ctx, []string{"join", "a", "twin"}, `contexts "a" and "twin" lead to one cluster`)
	})

	It("a cluster without an agent", func(ctx SpecContext) {
		installed(ctx, "a", agentOf("a"), join.DefaultNamespace, "10.1.0.5")
		refused(ctx, []string{"join", "a", "b"}, `context "b": no Comity agent is installed`)
	})

	It("two releases in one cluster", func(ctx SpecContext) {
		installedAll(ctx)
		installed(ctx, "b", agentOf("b"), "another", "10.2.0.9")
		refused(ctx, []string{"join", "a", "b"}, "one in each of the namespaces another, comity-system")
	})

	It("values for a cluster that is not given, or that cannot be read", func(ctx SpecContext) {
		installedAll(ctx)
		refused(ctx, append(joining("a", "b"), "--server", "x=https://x"), "--server x=https://x: no given cluster has the id x; expected one of: a, b")
		refused(ctx, append(joining("a", "b"), "--pod-cidrs", "b:10.0.0.0/8"), "b:10.0.0.0/8 must be formatted as key=value")
		refused(ctx, append(joining("a", "b"), "--pod-cidrs", "b=10.0.0.1/8"), `"10.0.0.1/8" is not an address range`)
	})

	It("two agents with one id", func(ctx SpecContext) {
		installed(ctx, "a", agentOf("a"), join.DefaultNamespace, "10.1.0.5")
		installed(ctx, "b", agentOf("a"), join.DefaultNamespace, "10.2.0.5")
		refused(ctx, []string{"join", "a", "b"}, `two clusters have the id "a"`)
	})

	It("two clustersets", func(ctx SpecContext) {
		installed(ctx, "a", agentOf("a"), join.DefaultNamespace, "10.1.0.5")
		other := agentOf("b")
		other.Set = "test"
		installed(ctx, "b", other, join.DefaultNamespace, "10.2.0.5")
		refused(ctx, []string{"join", "a", "b"}, `cluster a belongs to clusterset "prod" and cluster b to "test"`)
	})

	It("a mode that differs from the flags", func(ctx SpecContext) {
		installed(ctx, "a", agentOf("a"), join.DefaultNamespace, "10.1.0.5")
		other := agentOf("b")
		other.Mode = model.ExchangeHub
		installed(ctx, "b", other, join.DefaultNamespace, "10.2.0.5")
		refused(ctx, []string{"join", "a", "b"}, `cluster b (context "b") publishes in a hub; name its context with --hub`)
		refused(ctx, []string{"join", "a", "b", "--hub", "c"}, `cluster a (context "a") publishes in its own API server; leave out --hub`)
	})

	It("an unknown pod range, and says what to pass", func(ctx SpecContext) {
		installed(ctx, "a", agentOf("a"), join.DefaultNamespace, "10.1.0.5")
		unknown := agentOf("b")
		unknown.ID, unknown.PodCIDRs = "unknown", nil
		installed(ctx, "b", unknown, join.DefaultNamespace, "10.2.0.5")
		refused(ctx, []string{"join", "a", "b"}, "no pod range of cluster unknown is known", "--pod-cidrs unknown=10.20.0.0/16")
	})

	It("ranges that overlap", func(ctx SpecContext) {
		installedAll(ctx)
		refused(ctx, append(joining("a", "c"), "--pod-cidrs", "c=10.1.0.0/17"), "the pod range 10.1.0.0/16 of cluster a overlaps the pod range 10.1.0.0/17 of cluster c", "--allow-overlap")
	})

	It("a server address that only the administrator's machine reaches", func(ctx SpecContext) {
		installedAll(ctx)
		p.probe.fails = func(_ model.ClusterID, target string) string {
			if strings.HasPrefix(target, "https://127.0.0.1:") {
				return "dial tcp 127.0.0.1: connect: connection refused"
			}
			return ""
		}
		refused(ctx, joining("a", "c"),
			"cluster a does not reach the API server of cluster c; tried https://127.0.0.1:",
			"pass an address that Pods of cluster a reach as --server c=https://HOST:PORT, with --ca c=FILE if needed",
			"cluster c does not reach the API server of cluster a")
	})

	It("Pods that are not reached, in one address family", func(ctx SpecContext) {
		installedAll(ctx)
		p.probe.fails = func(from model.ClusterID, target string) string {
			if from == "a" && strings.HasPrefix(target, "http://[fd00:3::5]") {
				return "i/o timeout"
			}
			return ""
		}
		refused(ctx, joining("a", "c"), "cluster a does not reach Pods of cluster c; tried http://[fd00:3::5]:8082/healthz (the agent's Pod comity-system/comity-0): i/o timeout",
			"route the Pod ranges between the clusters")
	})

	It("a CA from the system's store", func(ctx SpecContext) {
		public := cluster("c")
		public.RESTConfig = rest.CopyConfig(clusters["c"])
		address := strings.TrimPrefix(public.RESTConfig.Host, "https://")
		public.RESTConfig.Host = "https://public.example:6443"
		public.RESTConfig.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, strings.TrimRight(address, "/"))
		}
		// No public authority signs for this name, so nothing is verified here.
		public.RESTConfig.CAData, public.RESTConfig.Insecure = nil, true
		public.ID = "public"
		_, err := join.Prepare(ctx, nil, []join.Cluster{cluster("a"), public}, join.Options{})
		Expect(err).To(MatchError(ContainSubstring("cluster public: no certificate authority for https://public.example:6443 is known; ")))
		Expect(err).To(MatchError(ContainSubstring("pass the PEM bundle that verifies it with --ca public=FILE")))
	})

	It("a file for --ca that holds no certificate", func(ctx SpecContext) {
		installedAll(ctx)
		file := filepath.Join(GinkgoT().TempDir(), "ca.crt")
		refused(ctx, append(joining("a", "b"), "--ca", "b="+file), "--ca b="+file, "no such file")
		Expect(os.WriteFile(file, []byte("text"), 0o600)).To(Succeed())
		refused(ctx, append(joining("a", "b"), "--ca", "b="+file), "the file holds no PEM certificate")
	})

	It("a cluster without the definition of Peer", func(ctx SpecContext) {
		installedAll(ctx)
		definition := &apiextensionsv1.CustomResourceDefinition{}
		Expect(admin("c").Get(ctx, client.ObjectKey{Name: "peers.exchange.comity.dev"}, definition)).To(Succeed())
		// The Peers of other specs go with it.
		Expect(admin("c").Delete(ctx, definition)).To(Succeed())
		served := func(ctx context.Context) bool { return admin("c").List(ctx, &v1alpha1.PeerList{}) == nil }
		DeferCleanup(func(ctx SpecContext) {
			again := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: definition.Name}, Spec: definition.Spec}
			Eventually(func() error { return admin("c").Create(ctx, again.DeepCopy()) }).WithTimeout(time.Minute).Should(Succeed())
			Eventually(served).WithContext(ctx).WithTimeout(time.Minute).Should(BeTrue())
		})
		Eventually(served).WithContext(ctx).WithTimeout(time.Minute).Should(BeFalse())
		_, _, err := p.run(ctx, joining("b", "c")...)
		Expect(err).To(MatchError(And(ContainSubstring("cluster c: the API server does not serve Peer of exchange.comity.dev/v1alpha1"),
			ContainSubstring("helm upgrade comity oci://ghcr.io/comity-mcs/charts/comity --namespace comity-system"))))
		Expect(command.CodeOf(err)).To(Equal(command.ExitRefused))
	})

	It("a missing right, and names every one and the cluster", func(ctx SpecContext) {
		installedAll(ctx)
		contexts := maps.Clone(all())
		limited := rest.CopyConfig(clusters["c"])
		limited.Impersonate = rest.ImpersonationConfig{UserName: "reader", Groups: []string{"system:authenticated"}}
		contexts["c"] = limited
		p.kubeconfig = contexts.write()
		role := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "reader"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "reader"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "reader"}},
		}
		rules := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"", "apps", "coordination.k8s.io", "networking.k8s.io", rbacv1.GroupName}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
			{APIGroups: []string{""}, Resources: []string{"namespaces", "serviceaccounts"}, Verbs: []string{"create", "patch"}},
		}}
		for _, object := range []client.Object{rules, role} {
			Expect(admin("c").Create(ctx, object)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(admin("c").Delete(ctx, object)).To(Succeed()) })
		}
		refused(ctx, joining("b", "c"), "the access given lacks rights, so nothing was written; ", "\ncluster c: ",
			"create secrets in namespace comity-system; patch secrets in namespace comity-system",
			"patch peers.exchange.comity.dev",
			"create roles.rbac.authorization.k8s.io in namespace comity-c-to-b",
			"patch exportrecords.exchange.comity.dev in namespace comity-c",
			"create serviceaccounts/token in namespace comity-system",
			"create tokenreviews.authentication.k8s.io")
	})

	It("to rotate what is not joined", func(ctx SpecContext) {
		installed(ctx, "a", agentOf("a"), join.DefaultNamespace, "10.1.0.5")
		stranger := agentOf("b")
		stranger.ID = "stranger"
		installed(ctx, "b", stranger, join.DefaultNamespace, "10.2.0.5")
		refused(ctx, []string{"rotate", "a", "b"}, "cluster a: there is no Secret comity-system/peer-stranger; run kubectl comity join first")
	})
})

var _ = Describe("kubectl comity drain", func() {
	It("writes in no cluster unless all that it asks about are agreed to", func(ctx SpecContext) {
		Expect(install.Join(ctx, nil, []join.Cluster{cluster("a"), cluster("c")}, join.Options{})).To(Succeed())
		Expect(install.Join(ctx, nil, []join.Cluster{cluster("b"), cluster("c")}, join.Options{})).To(Succeed())
		DeferCleanup(forgetAll)
		// In b alone, cluster c is the only one that serves an import.
		slice := &discoveryv1.EndpointSlice{
			TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "web-c", Labels: map[string]string{model.LabelServiceName: "web", model.LabelSourceCluster: "c"}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
		}
		Expect(admin("b").Patch(ctx, slice, client.Apply, client.FieldOwner(model.FieldOwner), client.ForceOwnership)).To(Succeed()) //nolint:staticcheck // as the agent owns it
		DeferCleanup(func(ctx SpecContext) { Expect(admin("b").Delete(ctx, slice)).To(Succeed()) })

		p := &plugin{kubeconfig: all().write(), answer: "no\n"}
		_, asked, err := p.run(ctx, "drain", "c", "--context", "a,b", "--force")
		Expect(asked).To(ContainSubstring("Only cluster c serves these 1, and with --force they have no ready endpoint any more:\n  default/web"))
		Expect(err).To(MatchError("the answer was not yes; nothing was written"))
		Expect(command.CodeOf(err)).To(Equal(command.ExitRefused))
		Expect(peerOf(ctx, "a", "c").Spec.Drained).To(BeNil())
		Expect(peerOf(ctx, "b", "c").Spec.Drained).To(BeNil())
	})
})
