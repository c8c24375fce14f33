// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/comity/probe"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/drain"
	joincmd "github.com/comity-mcs/comity/cmd/kubectl-comity/join"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

// admins are the contexts of the test's kubeconfig.
type admins map[string]*rest.Config

// write stores them as a kubeconfig and returns its path.
func (a admins) write() string {
	GinkgoHelper()
	config := clientcmdapi.NewConfig()
	for name, access := range a {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: access.Host, CertificateAuthorityData: access.CAData}
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{
			ClientCertificateData: access.CertData, ClientKeyData: access.KeyData,
			Impersonate: access.Impersonate.UserName, ImpersonateGroups: access.Impersonate.Groups,
		}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}

// all are the contexts that lead to the clusters of the same name.
func all() admins {
	contexts := admins{}
	for id, config := range clusters {
		contexts[string(id)] = config
	}
	return contexts
}

// fakeProbe answers for the agents, which are no Pods here: fails has the
// targets that cannot be reached, and from where.
type fakeProbe struct {
	requests map[model.ClusterID]probe.Request
	fails    func(from model.ClusterID, target string) string
}

func (f *fakeProbe) run(_ context.Context, _ *command.Target, from agent.Agent, request probe.Request) (results []probe.Result, err error) {
	if f.requests == nil {
		f.requests = map[model.ClusterID]probe.Request{}
	}
	f.requests[from.ID] = request
	for _, t := range request.Targets {
		r := probe.Result{Target: t.Target}
		if f.fails != nil {
			r.Error = f.fails(from.ID, t.Target)
		}
		results = append(results, r)
	}
	return results, nil
}

// targets are those that a cluster was asked for, of one scheme.
func (f *fakeProbe) targets(from model.ClusterID, scheme string) (all []string) {
	for _, t := range f.requests[from].Targets {
		if strings.HasPrefix(t.Target, scheme) {
			all = append(all, t.Target)
		}
	}
	return all
}

// plugin runs the commands on a kubeconfig.
type plugin struct {
	kubeconfig string
	probe      fakeProbe
	// answer is what is typed on a terminal; without it the input is none.
	answer string
}

// run gives what a command printed, and its error.
func (p *plugin) run(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	out, errs := &bytes.Buffer{}, &bytes.Buffer{}
	env := command.NewEnv(genericiooptions.IOStreams{In: strings.NewReader(p.answer), Out: out, ErrOut: errs})
	env.IsTerminal = func(any) bool { return p.answer != "" }
	root := &cobra.Command{Use: "kubectl-comity", SilenceErrors: true, SilenceUsage: true}
	root.SetOut(out)
	root.SetErr(errs)
	env.AddFlags(root.PersistentFlags())
	root.AddCommand(joincmd.NewJoin(env, p.probe.run), joincmd.NewRotate(env, p.probe.run), joincmd.NewLeave(env), drain.New(env))
	root.SetArgs(append(args, "--kubeconfig", p.kubeconfig))
	err = root.ExecuteContext(ctx)
	GinkgoWriter.Printf("$ kubectl comity %s\n%s%s", strings.Join(args, " "), out, errs)
	if err != nil {
		GinkgoWriter.Printf("Error (exit code %d): %v\n", command.CodeOf(err), err)
	}
	return out.String(), errs.String(), err
}

// servers are flags: no address but loopback leads to these API servers.
func servers(ids ...string) []string {
	var flags []string
	for _, id := range ids {
		flags = append(flags, "--server", id+"="+strings.TrimRight(clusters[model.ClusterID(id)].Host, "/"))
	}
	return flags
}

// agentOf describes what an agent states of itself.
func agentOf(id model.ClusterID) model.AgentInfo {
	return model.AgentInfo{
		ID: id, Set: "prod", Version: command.Version, Mode: model.ExchangeMesh, ServiceAccount: join.DefaultServiceAccount,
		PodCIDRs: cluster(id).PodCIDRs,
	}
}

// installed gives a cluster what an agent that runs there would show.
func installed(ctx SpecContext, at model.ClusterID, info model.AgentInfo, namespace string, ips ...string) {
	GinkgoHelper()
	ns := &corev1.Namespace{}
	ns.Name = namespace
	Expect(client.IgnoreAlreadyExists(admin(at).Create(ctx, ns))).To(Succeed())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "comity-0"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "comity", Image: "comity:dev", Ports: []corev1.ContainerPort{{Name: "webhook", ContainerPort: 9443}, {Name: "health", ContainerPort: 8082}},
		}}},
	}
	Expect(admin(at).Create(ctx, pod)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(admin(at).Delete(ctx, pod, client.GracePeriodSeconds(0)))).To(Succeed())
	})
	pod.Status.Phase = corev1.PodRunning
	for _, ip := range ips {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	pod.Status.PodIP = ips[0]
	Expect(admin(at).Status().Update(ctx, pod)).To(Succeed())
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: model.LeaderLease, Annotations: info.Annotations()},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("comity-0_1234"), RenewTime: ptr.To(metav1.NewMicroTime(time.Now()))},
	}
	Expect(admin(at).Create(ctx, lease)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(admin(at).Delete(ctx, lease))).To(Succeed()) })
}

// installedAll installs agents a, b and c in the clusters of these names.
func installedAll(ctx SpecContext) {
	for i, id := range []model.ClusterID{"a", "b", "c"} {
		n := string(rune('1' + i))
		installed(ctx, id, agentOf(id), join.DefaultNamespace, "10."+n+".0.5", "fd00:"+n+"::5")
	}
}

var _ = Describe("kubectl comity join", func() {
	var p *plugin

	BeforeEach(func(ctx SpecContext) {
		installedAll(ctx)
		p = &plugin{kubeconfig: all().write()}
	})

	It("joins three clusters, prints every object, and repeated changes nothing", func(ctx SpecContext) {
		args := append([]string{"join", "a", "b", "c"}, servers("a", "b", "c")...)
		out, _, err := p.run(ctx, args...)
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("Joined clusters a, b, c of clusterset prod"))
		Expect(out).To(ContainSubstring("Next: kubectl comity status a b c --wait 1m"))
		for _, pair := range [][2]model.ClusterID{{"a", "b"}, {"b", "a"}, {"a", "c"}, {"c", "a"}, {"b", "c"}, {"c", "b"}} {
			Eventually(reading(ctx, pair[0], pair[1])).WithTimeout(cachedFor).Should(Succeed(), "%v", pair)
		}
		Expect(p.probe.targets("a", "http:")).To(ConsistOf(
			"http://10.2.0.5:8082/healthz", "http://[fd00:2::5]:8082/healthz", "http://10.3.0.5:8082/healthz", "http://[fd00:3::5]:8082/healthz"))

		before := versions(ctx)
		out, _, err = p.run(ctx, args...)
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(MatchRegexp(`Joined clusters a, b, c of clusterset prod: \d+ unchanged in`))
		Expect(cmp.Diff(before, versions(ctx))).To(BeEmpty())

		By("using what is stored, without the flags")
		_, _, err = p.run(ctx, "join", "a", "b", "c")
		Expect(err).NotTo(HaveOccurred())
		Expect(cmp.Diff(before, versions(ctx))).To(BeEmpty())
	})

	It("repairs what was deleted and what has expired", func(ctx SpecContext) {
		_, _, err := p.run(ctx, append([]string{"join", "a", "b"}, servers("a", "b")...)...)
		Expect(err).NotTo(HaveOccurred())
		role := &corev1.Secret{}
		role.Namespace, role.Name = join.DefaultNamespace, "peer-b"
		Expect(admin("a").Delete(ctx, role)).To(Succeed())
		secret := peerSecret(ctx, "b", "a")
		config, err := clientcmd.Load(secret.Data[join.KubeconfigKey])
		Expect(err).NotTo(HaveOccurred())
		config.AuthInfos["peer-b"].Token = expiredToken
		secret.Data[join.KubeconfigKey], err = clientcmd.Write(*config)
		Expect(err).NotTo(HaveOccurred())
		Expect(admin("b").Update(ctx, secret)).To(Succeed())

		out, _, err := p.run(ctx, append([]string{"join", "a", "b"}, servers("b")...)...)
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("a: Secret comity-system/peer-b created (new credential, valid until"))
		Expect(out).To(ContainSubstring("b: Secret comity-system/peer-a changed (new credential, valid until"))
		Eventually(reading(ctx, "b", "a")).WithTimeout(cachedFor).Should(Succeed())
	})

	It("prints what it would do, and does nothing", func(ctx SpecContext) {
		before := versions(ctx)
		out, _, err := p.run(ctx, append([]string{"join", "a", "c", "--dry-run"}, servers("a", "c")...)...)
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("Dry run, nothing was written."))
		Expect(cmp.Diff(before, versions(ctx))).To(BeEmpty())
	})

	It("prints the objects without credentials, and for which cluster they are", func(ctx SpecContext) {
		before := versions(ctx)
		out, _, err := p.run(ctx, "join", "a", "b", "--dry-run", "-o", "yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("comity.dev/cluster: a"))
		Expect(out).To(ContainSubstring("comity.dev/cluster: b"))
		Expect(out).NotTo(ContainSubstring("kind: Secret"))
		Expect(out).NotTo(ContainSubstring("token:"))
		Expect(strings.Count(out, "name: comity-a-to-b\n")).To(Equal(1))
		Expect(out).To(And(ContainSubstring("kind: Peer"), ContainSubstring("clusterUID: "+string(uidOf(ctx, "b"))), ContainSubstring("kubeconfigSecret: peer-b")))
		Expect(cmp.Diff(before, versions(ctx))).To(BeEmpty())
	})

	It("takes the next address where the first does not answer", func(ctx SpecContext) {
		_, _, err := p.run(ctx, append([]string{"join", "a", "b"}, servers("a", "b")...)...)
		Expect(err).NotTo(HaveOccurred())
		p.probe.fails = func(_ model.ClusterID, target string) string {
			if strings.HasPrefix(target, "https://") {
				return "connection refused"
			}
			return ""
		}
		_, _, err = p.run(ctx, "join", "a", "b")
		Expect(err).To(MatchError(ContainSubstring("(stored by an earlier join): connection refused")))
		Expect(err).To(MatchError(ContainSubstring("pass an address that Pods of cluster a reach as --server b=https://HOST:PORT")))
		kubeadmStates(ctx, "b", "controlPlaneEndpoint: b.example:6443\nnetworking: {serviceSubnet: 10.0.0.0/24}\n")
		DeferCleanup(func(ctx SpecContext) {
			p.probe.fails = nil
			_, _, err := p.run(ctx, append([]string{"join", "a", "b"}, servers("a", "b")...)...)
			Expect(err).NotTo(HaveOccurred())
		})
		p.probe.fails = func(from model.ClusterID, target string) string {
			if from == "a" && strings.HasPrefix(target, "https://") && !strings.Contains(target, "b.example") {
				return "connection refused"
			}
			return ""
		}
		out, _, err := p.run(ctx, "join", "a", "b")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("the API server of cluster b at https://b.example:6443 (kubeadm's control plane endpoint, since the kubeconfig's is on loopback)"))
		Expect(credential(ctx, "a", "b").Host).To(Equal("https://b.example:6443"))
	})

	It("limits the namespaces that the others accept from a cluster, and keeps that when it is repeated", func(ctx SpecContext) {
		namespaces := func() *[]string { return peerOf(ctx, "b", "a").Spec.AcceptedNamespaces }
		DeferCleanup(func(ctx SpecContext) {
			_, _, err := p.run(ctx, "join", "a", "b", "--accept-namespaces", "a=*")
			Expect(err).NotTo(HaveOccurred())
		})
		out, _, err := p.run(ctx, "join", "a", "b", "--accept-namespaces", "a=shop,team-*")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("accepts only namespaces shop,team-* from "))
		Expect(namespaces()).To(HaveValue(Equal([]string{"shop", "team-*"})))
		_, _, err = p.run(ctx, "join", "a", "b")
		Expect(err).NotTo(HaveOccurred())
		Expect(namespaces()).To(HaveValue(Equal([]string{"shop", "team-*"})))
		_, _, err = p.run(ctx, "join", "a", "b", "--accept-namespaces", "a=Shop")
		Expect(err).To(MatchError(And(ContainSubstring("check Peer a: "), ContainSubstring("spec.acceptedNamespaces"))))
	})

	It("accepts a cluster that was made again, shows what is imported from it, and says how to confirm what is missing", func(ctx SpecContext) {
		_, _, err := p.run(ctx, append([]string{"join", "a", "b"}, servers("a", "b")...)...)
		Expect(err).NotTo(HaveOccurred())
		peer := peerOf(ctx, "a", "b")
		peer.Spec.ClusterUID = "before"
		Expect(admin("a").Update(ctx, peer)).To(Succeed())
		importing(ctx, "a", "replaced", "b")
		_, _, err = p.run(ctx, "join", "a", "b")
		Expect(err).To(MatchError(And(ContainSubstring("the Peer b is that of another cluster with the id b (UID before, not "), ContainSubstring("run kubectl comity join --replace"))))
		out, _, err := p.run(ctx, "join", "a", "b", "--replace")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(ContainSubstring("In cluster a, cluster b is replaced: UID before becomes " + string(uidOf(ctx, "b")) + ". Imports with an export of the cluster before: 1."))
		Expect(out).To(ContainSubstring("kubectl comity confirm missing b --context a\n"))
		out, _, err = p.run(ctx, "join", "a", "b", "--replace")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).NotTo(Or(ContainSubstring("is replaced"), ContainSubstring("confirm missing")))
	})

	It("stores a credential that lives as long as asked", func(ctx SpecContext) {
		_, _, err := p.run(ctx, append([]string{"rotate", "a", "b", "--expiry", "20m"}, servers("a", "b")...)...)
		Expect(err).NotTo(HaveOccurred())
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: credential(ctx, "a", "b").BearerToken}}
		Eventually(func() (bool, error) {
			asked := review.DeepCopy()
			err := admin("b").Create(ctx, asked)
			return asked.Status.Authenticated, err
		}).WithTimeout(cachedFor).Should(BeTrue())
		Expect(lifetime(credential(ctx, "a", "b").BearerToken)).To(Equal(20 * time.Minute))
	})
})

// importing gives a cluster a derived Service whose list has exports of others.
func importing(ctx SpecContext, at model.ClusterID, name string, from ...model.ClusterID) *corev1.Service {
	GinkgoHelper()
	list := model.List{Formed: time.Unix(1, 0)}
	for _, id := range from {
		list.Entries = append(list.Entries, model.Entry{SourceExport: model.SourceExport{Cluster: id, UID: "u"}})
	}
	derived := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service", "spec": map[string]any{"ports": []any{map[string]any{"port": int64(80)}}},
		"metadata": map[string]any{
			"namespace": "default", "name": model.DerivedName(name), "labels": map[string]any{model.LabelServiceName: name},
			"annotations": map[string]any{model.AnnotationList: list.String()},
		},
	}}
	Expect(admin(at).Apply(ctx, client.ApplyConfigurationFromUnstructured(derived), client.FieldOwner(model.FieldOwner))).To(Succeed())
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: model.DerivedName(name)}}
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(admin(at).Delete(ctx, service))).To(Succeed()) })
	return service
}

// expiredToken is well-formed and from 1970.
const expiredToken = "eyJhbGciOiJub25lIn0.eyJpYXQiOjEsImV4cCI6Mn0.c2ln"

// lifetime is how long a token is valid from when it was issued.
func lifetime(token string) time.Duration {
	GinkgoHelper()
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	Expect(err).NotTo(HaveOccurred())
	var claims struct{ Iat, Exp int64 }
	Expect(json.Unmarshal(payload, &claims)).To(Succeed())
	return time.Duration(claims.Exp-claims.Iat) * time.Second
}
