// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/policy/simulate"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/policy/violation"
	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Policies of the specs, by what they deny.
const (
	namedWeb = "package comity.policies.named\n\ndeny contains {\"msg\": \"web stays here\", \"field\": \"metadata.name\"} if input.object.metadata.name == \"web\"\n"
	unknown  = "package comity.policies.sure\n\ndeny contains {\"msg\": \"b is not known\"} if input.peers.b.namespace.presence == \"unknown\"\n"
)

var _ = Describe("policy simulate", func() {
	var namespace string
	BeforeEach(func() {
		agents := newNamespace()
		install(agents, true)
		peer("b", nil)
		namespace = newNamespace()
		for _, name := range []string{"web", "db"} {
			export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			create(
				&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
				export)
			if name == "web" {
				publish(export)
			}
		}
	})
	file := func(name, text string) string {
		GinkgoHelper()
		path := filepath.Join(GinkgoT().TempDir(), name)
		Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
		Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
		return path
	}
	policy := func(name, rego string) *policyv1alpha1.ExportPolicy {
		return &policyv1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: policyv1alpha1.ExportPolicySpec{Rego: rego}}
	}
	manifest := func(name, rego string) string {
		GinkgoHelper()
		object := policy(name, rego)
		object.APIVersion, object.Kind = policyv1alpha1.GroupVersion.String(), "ExportPolicy"
		text, err := json.Marshal(object)
		Expect(err).NotTo(HaveOccurred())
		return file(name+".json", string(text))
	}
	simulated := func(got outcome) simulate.Result {
		GinkgoHelper()
		var result simulate.Result
		Expect(json.Unmarshal([]byte(got.out), &result)).To(Succeed(), got.out+got.err)
		return result
	}
	effects := func(result simulate.Result) (out []string) {
		for _, effect := range result.Clusters[0].Effects {
			if effect.Namespace == namespace {
				out = append(out, string(effect.Effect)+" "+effect.Name)
			}
		}
		return out
	}

	It("says what would be withdrawn, and stores nothing", func() {
		got := run("policy", "simulate", "--context", "a", "-f", manifest("named", namedWeb))
		Expect(got.code).To(Equal(1), got.err)
		Expect(got.out).To(And(
			MatchRegexp(`(?m)^CLUSTER +EFFECT +KIND +NAMESPACE +NAME +WHY$`),
			MatchRegexp(`(?m)^a +Withdraw +ServiceExport +%s +web +\[named\] metadata\.name: web stays here\.$`, namespace),
			MatchRegexp(`(?m)^Cluster a \(context a\), \d+ exports and 0 imports: Withdraw 1$`),
			ContainSubstring("not known: the namespaces of cluster b are unknown to policies, and imports from there are left out: give the context of that cluster as well")))
		Expect(got.out).NotTo(ContainSubstring("db"))
		var stored policyv1alpha1.ExportPolicyList
		Expect(target.Client.List(scratch, &stored)).To(Succeed())
		Expect(stored.Items).To(BeEmpty())
	})
	It("needs no more than the right to read", func() {
		reader := &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "reader-"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}}},
		}
		create(reader)
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "reader-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: reader.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "reader"}},
		}
		create(binding)
		policies := manifest("named", namedWeb)
		Eventually(func() int { return run("policy", "simulate", "a", "-f", policies, "--as", "reader").code }).Should(Equal(1))
		got := run("policy", "simulate", "a", "-f", policies, "--as", "nobody")
		Expect(got.code).To(Equal(2))
		Expect(got.err).To(ContainSubstring(`User "nobody" cannot get resource "namespaces"`))
	})
	It("reads a folder of a policy, and prints JSON", func() {
		folder := filepath.Dir(file("named/policy.rego", namedWeb))
		got := run("policy", "simulate", "a", "-f", folder, "-o", "json")
		Expect(got.code).To(Equal(1), got.err)
		result := simulated(got)
		Expect(result.Changes).To(BeTrue())
		Expect(result.Clusters[0].Policies).To(Equal([]string{"named"}))
		Expect(effects(result)).To(Equal([]string{"Withdraw web"}))
		at := slices.IndexFunc(result.Clusters[0].Effects, func(e simulate.Effect) bool { return e.Namespace == namespace })
		Expect(result.Clusters[0].Effects[at].Why).To(Equal([]violation.Violation{{
			Policy: "named", Reason: "Named", Field: "metadata.name", Message: "web stays here", Text: "[named] metadata.name: web stays here.",
		}}), "as policy eval prints it")
	})
	It("exits 0 where nothing would change", func() {
		create(policy("named", namedWeb))
		got := run("policy", "simulate", "a", "-f", manifest("named", namedWeb))
		Expect(got.code).To(BeZero(), got.err+got.out)
		Expect(got.out).To(ContainSubstring("nothing would change"))
	})
	It("leaves policies out, replaces them, and keeps the others", func() {
		create(policy("named", namedWeb), policy("sure", unknown))
		got := run("policy", "simulate", "a", "--without", "sure", "-o", "json")
		Expect(got.code).To(Equal(1), got.err)
		Expect(effects(simulated(got))).To(Equal([]string{"Allow db"}))
		got = run("policy", "simulate", "a", "--replace", "-f", manifest("named", namedWeb), "-o", "json")
		Expect(effects(simulated(got))).To(Equal([]string{"Allow db"}))
		got = run("policy", "simulate", "a", "-f", manifest("sure", "package comity.policies.sure\n\ndeny contains {\"msg\": \"no\"} if false\n"), "-o", "json")
		Expect(effects(simulated(got))).To(Equal([]string{"Allow db"}))
		Expect(simulated(got).Clusters[0].Policies).To(Equal([]string{"named", "sure"}))
	})
	DescribeTable("exits 2 and says why",
		func(args func() []string, words string) {
			got := run(append([]string{"policy", "simulate"}, args()...)...)
			Expect(got.code).To(Equal(2), got.out)
			Expect(got.err).To(ContainSubstring(words))
			Expect(got.out).To(BeEmpty())
		},
		Entry("without a policy", func() []string { return []string{"a"} }, "there is nothing to try"),
		Entry("for a policy that cannot be used", func() []string {
			return []string{"a", "-f", manifest("named", "package comity.policies.named\n\ndeny contains {\"msg\": \"no\"} if input.srevice\n")}
		}, "ExportPolicy named cannot be used:\nnamed.rego:3:"),
		Entry("for a policy that is there twice", func() []string {
			return []string{"a", "-f", manifest("named", namedWeb), "-f", manifest("named", namedWeb)}
		}, "the name named is also that of the policy in"),
		Entry("for an unknown field", func() []string {
			return []string{"a", "-f", file("p.yaml", "apiVersion: policy.comity.dev/v1alpha1\nkind: ExportPolicy\nmetadata: {name: p}\nspec: {regoo: x}\n")}
		}, `p.yaml: ExportPolicy: unknown field "spec.regoo"`),
		Entry("for a name to leave out that does not exist", func() []string { return []string{"a", "--without", "nobody"} }, "there is no ExportPolicy nobody"),
		Entry("for a cluster that does not answer", func() []string { return []string{"dead", "-f", manifest("named", namedWeb)} }, `context "dead"`),
	)
})

// publish makes the record of an export in the exchange of cluster a, as the agent does.
func publish(export *mcsv1beta1.ServiceExport) { publishAs(export, false) }

// lose publishes an export whose ServiceExport disappeared with a restore.
func lose(export *mcsv1beta1.ServiceExport) { publishAs(export, true) }

func publishAs(export *mcsv1beta1.ServiceExport, lost bool) {
	GinkgoHelper()
	exchange := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: model.ExchangeNamespace("a"), Labels: map[string]string{model.LabelExchangeFrom: "a"}}}
	Expect(client.IgnoreAlreadyExists(target.Client.Create(scratch, exchange))).To(Succeed())
	record := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "exchange.comity.dev/v1alpha1", "kind": "ExportRecord",
		"metadata": map[string]any{"namespace": exchange.Name, "name": model.RecordName(export.Namespace, export.Name)},
		"spec": map[string]any{
			"service": map[string]any{"namespace": export.Namespace, "name": export.Name}, "exportUID": string(export.UID),
			"exportedAt": "2026-01-01T00:00:00Z", "type": "ClusterSetIP", "lost": lost,
		},
	}}
	Expect(target.Client.Apply(scratch, client.ApplyConfigurationFromUnstructured(record), client.FieldOwner(model.FieldOwner), client.ForceOwnership)).To(Succeed())
	DeferCleanup(func() { Expect(target.Client.Delete(scratch, record)).To(Succeed()) })
}
