// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/kind"
	"github.com/comity-mcs/comity/test/install"
)

const (
	// requestTimeout bounds one request to an API server, and one question to CoreDNS.
	requestTimeout = 30 * time.Second
	// tries are the requests that are sent to see who answers. Of four endpoints
	// one is missed in one of a hundred rounds, and then there is another round.
	tries = 20
)

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, certmanagerv1.AddToScheme, mcsv1alpha1.Install, mcsv1beta1.Install, policyv1alpha1.AddToScheme, exchangev1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err) // the kinds are constants
		}
	}
	return s
}()

// member is one cluster with an administrator's access to it.
type member struct {
	*kind.Cluster
	client client.Client
	typed  kubernetes.Interface
}

func newMember(c *kind.Cluster) *member {
	GinkgoHelper()
	config := c.RESTConfig()
	config.Timeout = requestTimeout
	untyped, err := client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	typed, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return &member{Cluster: c, client: untyped, typed: typed}
}

// other is the other cluster.
func (m *member) other() *member {
	if m == clusterA {
		return clusterB
	}
	return clusterA
}

func (m *member) apply(ctx context.Context, manifest string) error {
	return clusters.Apply(ctx, m.RESTConfig(), []byte(manifest))
}

// applyFile applies a manifest of the demo; its Services get both IP families.
func (m *member) applyFile(ctx context.Context, name string) {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(install.Root(), "test", "demo", "manifests", name))
	Expect(err).NotTo(HaveOccurred())
	objects, err := clusters.Decode(text)
	Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		if object.GetKind() == "Service" {
			Expect(unstructured.SetNestedField(object.Object, string(corev1.IPFamilyPolicyPreferDualStack), "spec", "ipFamilyPolicy")).To(Succeed())
		}
		text, err := object.MarshalJSON()
		Expect(err).NotTo(HaveOccurred())
		_, err = evaluated(ctx, func() (string, error) { return "", m.apply(ctx, string(text)) })
		Expect(err).NotTo(HaveOccurred(), "apply %s in cluster %s", name, m.ID())
	}
}

// tooBusy is what Comity says of a request that it had no time to evaluate, as on a busy machine.
const tooBusy = "try again in a few seconds"

// evaluated makes a request again while it prints that, or fails with it.
func evaluated(ctx context.Context, request func() (string, error)) (out string, err error) {
	GinkgoHelper()
	Eventually(ctx, func() string {
		out, err = request()
		return out + fmt.Sprint(err)
	}).ShouldNot(ContainSubstring(tooBusy))
	return out, err
}

func (m *member) create(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		_, err := evaluated(ctx, func() (string, error) { return "", m.client.Create(ctx, object) })
		Expect(err).NotTo(HaveOccurred(), "create %T %s in cluster %s", object, client.ObjectKeyFromObject(object), m.ID())
	}
}

// patch changes an object by a JSON merge patch.
func (m *member) patch(ctx context.Context, object client.Object, patch string) error {
	_, err := evaluated(ctx, func() (string, error) {
		return "", m.client.Patch(ctx, object, client.RawPatch("application/merge-patch+json", []byte(patch)))
	})
	return err
}

// awaitPods waits until exactly count Pods with label app are ready and gives their names, sorted.
func (m *member) awaitPods(ctx context.Context, namespace, app string, count int) []string {
	GinkgoHelper()
	var names []string
	Eventually(ctx, func(g Gomega) {
		var pods corev1.PodList
		g.Expect(m.client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{"app": app})).To(Succeed())
		names = nil
		for _, pod := range pods.Items {
			g.Expect(pod.DeletionTimestamp).To(BeNil(), "Pod %s is on its way out", pod.Name)
			g.Expect(pod.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.PodReady), HaveField("Status", corev1.ConditionTrue))), "Pod %s is ready", pod.Name)
			names = append(names, pod.Name)
		}
		g.Expect(names).To(HaveLen(count))
	}).Should(Succeed(), "Pods with label app=%s in namespace %s of cluster %s", app, namespace, m.ID())
	slices.Sort(names)
	return names
}

// podIPs are the addresses of Pods by name, IPv4 first; none of a Pod that has not each family yet.
func (m *member) podIPs(ctx context.Context, namespace, app string) map[string][]string {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(m.client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{"app": app})).To(Succeed())
	ips := map[string][]string{}
	for _, pod := range pods.Items {
		ips[pod.Name] = nil
		for _, ip := range pod.Status.PodIPs {
			ips[pod.Name] = append(ips[pod.Name], ip.IP)
		}
	}
	return ips
}

// ask lets the client Pod of m send HTTP requests to host, which it looks up once,
// over one connection each, and gives the names of the Pods that answered. An
// error has what failed; the Pods that answered all others come with it.
func (m *member) ask(ctx context.Context, host string, port, tries int) ([]string, error) {
	raw, err := m.typed.CoreV1().Pods(metav1.NamespaceDefault).ProxyGet("http", "client", "8080", "dial", map[string]string{
		"protocol": "http", "host": host, "port": strconv.Itoa(port), "request": "hostname", "tries": strconv.Itoa(tries),
	}).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the client Pod of cluster %s: %w", m.ID(), err)
	}
	var result struct{ Responses, Errors []string }
	if err := json.Unmarshal(raw, &result); err != nil {
		return nil, fmt.Errorf("the client Pod of cluster %s answers %q: %w", m.ID(), raw, err)
	}
	pods := slices.Compact(slices.Sorted(slices.Values(result.Responses)))
	if failed := len(result.Errors); failed > 0 || len(result.Responses) != tries {
		return pods, fmt.Errorf("%d of %d requests from cluster %s to %s:%d failed: %q", failed, tries, m.ID(), host, port, result.Errors)
	}
	return pods, nil
}

// expectOnly has m send a hundred requests to target: each of the Pods answers some, and no
// other Pod answers one. If one has no answer they are sent again: conntrack remembers a
// request to a Pod that had ended for two minutes, and sends the next one from its port there.
func (m *member) expectOnly(ctx context.Context, target string, pods ...string) {
	GinkgoHelper()
	const requests = 100
	var answered []string
	Eventually(ctx, func() (err error) {
		answered, err = m.ask(ctx, target, servicePort, requests)
		Expect(pods).To(ContainElements(answered), "who answers to cluster %s at %s", m.ID(), target)
		return err
	}).Should(Succeed())
	Expect(answered).To(ConsistOf(pods), "who answers to cluster %s at %s", m.ID(), target)
	step("from %s: %d of %d requests to %s are answered by %v", m.ID(), requests, requests, target, pods)
}

// expectAnswers waits until all requests from m succeed and exactly these Pods
// answer them. Of a name, each record type is asked for, and its address as well
// as the name: so each IP family has to lead there.
func (m *member) expectAnswers(ctx context.Context, host string, port int, pods ...string) {
	GinkgoHelper()
	for _, target := range m.targets(ctx, host) {
		m.expectAnswersAt(ctx, target, port, pods...)
	}
}

// expectAnswersAt is expectAnswers of one name or address as it is, in whatever IP family the client chooses.
func (m *member) expectAnswersAt(ctx context.Context, target string, port int, pods ...string) {
	GinkgoHelper()
	Eventually(ctx, func() ([]string, error) { return m.ask(ctx, target, port, tries) }).
		Should(ConsistOf(pods), "who answers to cluster %s at %s, port %d", m.ID(), target, port)
	step("from %s: %s is answered by %v", m.ID(), net.JoinHostPort(target, strconv.Itoa(port)), pods)
}

// targets are the name and its one address in each IP family of m, from CoreDNS
// of m; or the address alone, if host is one.
func (m *member) targets(ctx context.Context, host string) []string {
	GinkgoHelper()
	found := []string{host}
	if _, err := netip.ParseAddr(host); err == nil {
		return found
	}
	name := host
	if !strings.HasSuffix(name, ".local") {
		name += ".svc.cluster.local"
	}
	for _, kind := range m.addressTypes() {
		var answers []string
		Eventually(ctx, func() (_ []string, err error) {
			answers, err = m.lookup(name, kind)
			return answers, err
		}).Should(And(HaveLen(1), Not(ContainElement(nxdomain))), "%s %s in cluster %s", dns.TypeToString[kind], name, m.ID())
		found = append(found, answers[0])
	}
	return found
}

// addressTypes are the record types of the IP families that m has.
func (m *member) addressTypes() []uint16 {
	types := []uint16{dns.TypeA, dns.TypeAAAA}
	return types[:len(m.Network().PodCIDRs)]
}

// lookup asks CoreDNS of m and gives the answers, sorted: addresses, or "port
// target" of SRV records. No such name is "NXDOMAIN".
func (m *member) lookup(name string, kind uint16) ([]string, error) {
	asker := dns.Client{Net: "tcp", Timeout: requestTimeout}
	reply, _, err := asker.Exchange(new(dns.Msg).SetQuestion(dns.Fqdn(name), kind), m.DNSAddress())
	if err != nil {
		return nil, fmt.Errorf("ask CoreDNS of cluster %s for %s: %w", m.ID(), name, err)
	}
	if reply.Rcode != dns.RcodeSuccess {
		return []string{dns.RcodeToString[reply.Rcode]}, nil
	}
	var found []string
	for _, record := range reply.Answer {
		switch record := record.(type) {
		case *dns.A:
			found = append(found, record.A.String())
		case *dns.AAAA:
			found = append(found, record.AAAA.String())
		case *dns.SRV:
			found = append(found, fmt.Sprintf("%d %s", record.Port, record.Target))
		}
	}
	slices.Sort(found)
	return found, nil
}

// expectDNS waits until CoreDNS of m gives exactly these answers.
func (m *member) expectDNS(ctx context.Context, name string, kind uint16, answers ...string) {
	GinkgoHelper()
	Eventually(ctx, func() ([]string, error) { return m.lookup(name, kind) }).
		Should(ConsistOf(answers), "%s %s in cluster %s", dns.TypeToString[kind], name, m.ID())
	step("in %s: %s %s is %v", m.ID(), dns.TypeToString[kind], name, answers)
}

// expectAddresses waits until CoreDNS of m gives those of the addresses for name
// that each record type can carry.
func (m *member) expectAddresses(ctx context.Context, name string, addresses ...string) {
	GinkgoHelper()
	for i, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		var wanted []string
		for _, a := range addresses {
			if netip.MustParseAddr(a).Is4() == (i == 0) {
				wanted = append(wanted, a)
			}
		}
		m.expectDNS(ctx, name, kind, wanted...)
	}
}

// expectNoName waits until CoreDNS of m has no such name.
func (m *member) expectNoName(ctx context.Context, name string) {
	GinkgoHelper()
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		m.expectDNS(ctx, name, kind, nxdomain)
	}
}

// run runs kubectl for the diagnosis and gives what it printed, errors included.
func (m *member) run(ctx context.Context, args ...string) string {
	out, err := exec.CommandContext(ctx, kubectl, append([]string{"--kubeconfig", m.Kubeconfig()}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s(%v)\n", out, err)
	}
	return string(out)
}
