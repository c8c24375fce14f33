// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/policies/controller"
	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/webhook/facts"
)

// timeout is far more than anything here takes on a busy machine.
const timeout = 30 * time.Second

// policy denies every export with its message.
func policy(name, message string) *v1alpha1.ExportPolicy {
	return &v1alpha1.ExportPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.ExportPolicySpec{Rego: module(name, message)},
	}
}

func module(name, message string) string {
	return fmt.Sprintf("package comity.policies.%s\n\ndeny contains {\"msg\": %q} if true\n", name, message)
}

func create(ctx context.Context, objects ...*v1alpha1.ExportPolicy) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(direct.Create(ctx, object)).To(Succeed())
	}
}

// edit changes the module of a stored policy.
func edit(ctx context.Context, name, rego string) {
	GinkgoHelper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec": {"rego": %q}}`, rego))
	Expect(direct.Patch(ctx, &v1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch)).To(Succeed())
}

// stored gives a policy as it is stored, with the condition Compiled, if any.
func stored(ctx context.Context, name string) (v1alpha1.ExportPolicy, metav1.Condition) {
	GinkgoHelper()
	var object v1alpha1.ExportPolicy
	Expect(direct.Get(ctx, client.ObjectKey{Name: name}, &object)).To(Succeed())
	condition := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionCompiled)
	if condition == nil || condition.ObservedGeneration != object.Generation {
		return object, metav1.Condition{} // nothing was said of this version yet
	}
	return object, *condition
}

// compiled is status and reason of the condition of this very version.
func compiled(ctx context.Context, name string) func() string {
	return func() string {
		_, condition := stored(ctx, name)
		return string(condition.Status) + "/" + condition.Reason
	}
}

// answer is what a replica says to an export that nothing is wrong with.
func (r *replica) answer() []string {
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
	verdict := r.engine.Evaluate(context.Background(), decision.Input{
		Operation: decision.Create, Subject: decision.SubjectServiceExport, Object: export, Cluster: "a",
		Scope: decision.Scope{All: true}, NamespaceScope: decision.Scope{All: true},
	})
	said := []string{}
	if verdict.Outcome == decision.NotEvaluated {
		said = append(said, "NotEvaluated: "+verdict.Problem)
	}
	for _, violation := range verdict.Violations {
		said = append(said, violation.Policy+" "+violation.Message)
	}
	return said
}

// events are type and reason of the events on a policy, in any order. They
// outlive a spec, so names of policies do not come twice where they count.
func events(ctx context.Context, name string) func() []string {
	return func() []string {
		GinkgoHelper()
		var list eventsv1.EventList
		Expect(direct.List(ctx, &list)).To(Succeed())
		told := []string{}
		for _, event := range list.Items {
			if event.Regarding.Name == name {
				told = append(told, event.Type+" "+event.Reason)
			}
		}
		return told
	}
}

var _ = Describe("ExportPolicies", func() {
	AfterEach(func(ctx context.Context) {
		Expect(direct.DeleteAllOf(ctx, &v1alpha1.ExportPolicy{})).To(Succeed())
	})

	It("are loaded where there are none, which allows everything", func() {
		r := start() // waits for the load
		Expect(r.answer()).To(BeEmpty())
		Expect(r.changes.Load()).To(Equal(int64(1)))
	})

	It("reach every replica, and the leader alone says so", func(ctx context.Context) {
		leader, follower := start(), startApart()
		leader.elect()
		create(ctx, policy("first", "no"))
		Eventually(compiled(ctx, "first")).Within(timeout).Should(Equal("True/Compiled"))
		for _, r := range []*replica{leader, follower} {
			Eventually(r.answer).Within(timeout).Should(ConsistOf("first no"))
		}
		Expect(follower.engine.Digest()).To(Equal(leader.engine.Digest()))
		object, condition := stored(ctx, "first")
		Expect(object.Status.Digest).To(HavePrefix("sha256:"))
		Expect(condition.Message).To(Equal("The policy is in use."))
		Eventually(events(ctx, "first")).Within(timeout).Should(ConsistOf("Normal Compiled"))

		Expect(direct.Delete(ctx, policy("first", ""))).To(Succeed())
		for _, r := range []*replica{leader, follower} {
			Eventually(r.answer).Within(timeout).Should(BeEmpty())
			Eventually(r.changes.Load).Within(timeout).Should(Equal(int64(3)), "none, one, none")
		}
		Expect(follower.writes.Load()).To(BeZero())
	})

	It("that do not compile say where, and the others keep answering", func(ctx context.Context) {
		leader := start()
		leader.elect()
		broken := policy("broken", "no")
		broken.Spec.Rego = "package comity.policies.broken\n\ndeny contains {\"msg\": \"no\"} if input.srevice.spec.type == \"ExternalName\"\n"
		create(ctx, policy("fine", "no"), broken)
		Eventually(compiled(ctx, "broken")).Within(timeout).Should(Equal("False/CompileError"))
		object, condition := stored(ctx, "broken")
		Expect(condition.Message).To(Equal("broken.rego:3:32: undefined ref: input.srevice.spec.type; have: \"srevice\"; want (one of): " +
			`["apiVersion" "cluster" "destinations" "effectiveScope" "namespace" "namespaceScope" "object" "oldObject" "operation" "peers" "ports" "published" "scope" "service" "subject" "userInfo"]` +
			"; expected a field that policies of this stage have: see spec.stage, and policies/INPUT.md" +
			"\nIt is not in use. Exports that it matches are not evaluated: requests are refused, what is published stays, and nothing new is published."))
		Expect(object.Status.Digest).To(BeEmpty())
		Eventually(compiled(ctx, "fine")).Within(timeout).Should(Equal("True/Compiled"))
		Expect(leader.answer()).To(ConsistOf("fine no"))

		By("mending it")
		edit(ctx, "broken", module("broken", "mended"))
		Eventually(compiled(ctx, "broken")).Within(timeout).Should(Equal("True/Compiled"))
		Expect(leader.answer()).To(ConsistOf("fine no", "broken mended"))
		Eventually(events(ctx, "broken")).Within(timeout).Should(ConsistOf("Warning CompileError", "Normal Compiled"))
	})

	It("with stage Import that do not compile say what that means for imports, and block no export", func(ctx SpecContext) {
		leader := start()
		leader.elect()
		broken := policy("inbound", "no")
		broken.Spec.Stage = v1alpha1.StageImport
		broken.Spec.Rego = "package comity.policies.inbound\n\ndeny contains {\"msg\": \"no\"} if input.object.metadata.name == \"db\"\n"
		create(ctx, broken)
		Eventually(compiled(ctx, "inbound")).Within(timeout).Should(Equal("False/CompileError"))
		_, condition := stored(ctx, "inbound")
		Expect(condition.Message).To(Equal("inbound.rego:3:32: undefined ref: input.object.metadata.name; have: \"object\"; want (one of): " +
			`["apiVersion" "cluster" "export" "namespace" "source"]; expected a field that policies of this stage have: see spec.stage, and policies/INPUT.md` + "\n" +
			"It is not in use. Imports that it matches are not evaluated: what is imported stays, and nothing new is imported."))
		Expect(leader.answer()).To(BeEmpty())
		verdict := leader.engine.EvaluateImport(ctx, decision.ImportInput{Source: decision.ImportSource{Cluster: "b"}})
		Expect(verdict.Outcome).To(Equal(decision.NotEvaluated))
		Expect(verdict.Failed).To(ConsistOf("inbound"))
	})

	It("FAULT 34: that are broken by an edit leave their exports not evaluated, on every replica alike", func(ctx context.Context) {
		leader, follower := start(), start()
		leader.elect()
		create(ctx, policy("edited", "v1"))
		Eventually(compiled(ctx, "edited")).Within(timeout).Should(Equal("True/Compiled"))
		Eventually(follower.answer).Within(timeout).Should(ConsistOf("edited v1"))

		edit(ctx, "edited", "package comity.policies.edited\n\nthis is no rego\n")
		Eventually(compiled(ctx, "edited")).Within(timeout).Should(Equal("False/CompileError"))
		object, condition := stored(ctx, "edited")
		Expect(condition.Message).To(HavePrefix("edited.rego:3:1: "))
		Expect(condition.Message).To(HaveSuffix("\nIt is not in use. Exports that it matches are not evaluated: requests are refused, what is published stays, and nothing new is published."))
		Expect(object.Status.Digest).To(BeEmpty())
		restarted := start()
		for _, r := range []*replica{leader, follower, restarted} {
			Eventually(r.answer).Within(timeout).Should(ConsistOf(HavePrefix("NotEvaluated: policy edited cannot be used as it is stored (edited.rego:3:1: ")))
		}
		Expect(restarted.engine.Digest()).To(And(Equal(leader.engine.Digest()), Equal(follower.engine.Digest())))

		By("deleting all policies")
		Expect(direct.Delete(ctx, policy("edited", ""))).To(Succeed())
		for _, r := range []*replica{leader, follower, restarted} {
			Eventually(r.answer).Within(timeout).Should(BeEmpty())
		}
	})

	It("that fail when they are evaluated say so, whichever replica evaluated them", func(ctx context.Context) {
		leader, follower := start(), start()
		leader.elect()
		faulty := policy("faulty", "no")
		faulty.Spec.Rego = "package comity.policies.faulty\n\ndeny contains {\"msg\": \"no\"} if to_number(input.object.metadata.name) > 1\n"
		create(ctx, faulty)
		failed := int64(0)
		answer := func(r *replica) func() []string {
			return func() []string {
				answers := r.answer()
				if len(answers) > 0 { // else the policy is not loaded yet
					failed++
				}
				return answers
			}
		}
		for _, r := range []*replica{leader, follower} {
			Eventually(answer(r)).Within(timeout).Should(ConsistOf(HavePrefix("NotEvaluated: policy faulty: faulty.rego:3:")))
		}
		By("hiding nothing that another policy denies")
		create(ctx, policy("fine", "no"))
		for _, r := range []*replica{leader, follower} {
			Eventually(answer(r)).Within(timeout).Should(ConsistOf("fine no"))
		}
		failures := func() v1alpha1.Failures {
			object, _ := stored(ctx, "faulty")
			if object.Status.Failures == nil {
				return v1alpha1.Failures{}
			}
			return *object.Status.Failures
		}
		Eventually(func() int64 { return failures().Count }).Within(timeout).Should(Equal(failed))
		Expect(failures().LastObject).To(Equal("ServiceExport shop/db"))
		Expect(failures().LastOperation).To(Equal("CREATE"))
		object, _ := stored(ctx, "faulty")
		condition := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionEvaluated)
		Expect(condition).NotTo(BeNil())
		Expect(condition.Reason).To(Equal("EvaluationFailed"))
		Expect(condition.Message).To(HavePrefix(fmt.Sprintf("failed evaluations: %d; the last for ServiceExport shop/db (CREATE): faulty.rego:3:", failed)))
		Eventually(events(ctx, "faulty")).Within(timeout).Should(ConsistOf("Normal Compiled", "Warning EvaluationFailed"))
		fine, _ := stored(ctx, "fine")
		Expect(fine.Status.Failures).To(BeNil())

		By("mending it")
		edit(ctx, "faulty", module("faulty", "mended"))
		Eventually(failures).Within(timeout).Should(BeZero())
		object, _ = stored(ctx, "faulty")
		Expect(meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionEvaluated)).To(BeNil())
		Eventually(compiled(ctx, "faulty")).Within(timeout).Should(Equal("True/Compiled"))
	})

	It("of one package: the older is used, of two of one second the first by name", func(ctx context.Context) {
		leader := start()
		leader.elect()
		older, younger := policy("older", "no"), policy("younger", "no")
		younger.Spec.Rego = older.Spec.Rego
		create(ctx, older)
		Eventually(compiled(ctx, "older")).Within(timeout).Should(Equal("True/Compiled"))
		create(ctx, younger)
		Eventually(compiled(ctx, "younger")).Within(timeout).Should(Equal("False/CompileError"))
		_, condition := stored(ctx, "younger")
		Expect(condition.Message).To(ContainSubstring("younger.rego:1:1: package comity.policies.older is that of policy older already"))
		Expect(leader.answer()).To(ConsistOf("older no"))
	})

	It("cost no write when a new leader finds all said", func(ctx context.Context) {
		first := start()
		first.elect()
		broken := policy("broken-too", "no")
		broken.Spec.Rego = "no rego"
		create(ctx, policy("fine", "no"), broken)
		Eventually(compiled(ctx, "fine")).Within(timeout).Should(Equal("True/Compiled"))
		Eventually(compiled(ctx, "broken-too")).Within(timeout).Should(Equal("False/CompileError"))
		first.stop()

		second := start()
		second.elect()
		// What it does write shows that it has looked at the others.
		create(ctx, policy("last", "no"))
		Eventually(compiled(ctx, "last")).Within(timeout).Should(Equal("True/Compiled"))
		Eventually(events(ctx, "last")).Within(timeout).Should(HaveLen(1))
		Expect(second.writes.Load()).To(Equal(int64(2)), "the status and the event of the policy that is new")
	})

	It("that come with Comity compile as they are in config/policies", func(ctx context.Context) {
		leader := start()
		leader.elect()
		Expect(apply(ctx, "../../../config/policies/*.yaml")).To(ConsistOf("export-scope", "namespace-sameness", "no-external-name"))
		Expect(leader.answer()).To(BeEmpty())
	})

	It("that are there to be copied compile as they are in config/policies/library", func(ctx context.Context) {
		leader := start()
		leader.elect()
		Expect(apply(ctx, "../../../config/policies/library/*.yaml")).To(ConsistOf("accepted-sources", "exported-labels", "namespace-opt-in",
			"owner-required", "protected-ports", "region-residency", "service-kinds"))
		Expect(leader.answer()).To(ConsistOf(
			HavePrefix("namespace-opt-in namespace shop may not export"), HavePrefix("owner-required the export names no owner")))
	})

	It("are checked for the webhook as they would be loaded", func(ctx context.Context) {
		leader := startApart()
		create(ctx, policy("first", "no"))
		Eventually(leader.answer).Within(timeout).Should(ConsistOf("first no"))
		check := func(policy *v1alpha1.ExportPolicy) error {
			_, err := (&controller.Checker{Policies: leader.apart, Source: facts.Reader{Client: direct}}).Check(ctx, policy)
			return err
		}
		Expect(check(policy("second", "no"))).To(Succeed())
		Expect(check(&v1alpha1.ExportPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "second"},
			Spec:       v1alpha1.ExportPolicySpec{Rego: module("first", "no"), Parameters: &apiextensionsv1.JSON{Raw: []byte(`{}`)}},
		})).To(MatchError(ContainSubstring("is that of policy first already")))
		Expect(leader.answer()).To(ConsistOf("first no"))
	})
})

// apply creates the policies in files and waits until they are in use. It gives their names.
func apply(ctx context.Context, pattern string) (names []string) {
	GinkgoHelper()
	paths, err := filepath.Glob(pattern)
	Expect(err).NotTo(HaveOccurred())
	for _, path := range paths {
		if strings.HasSuffix(path, "kustomization.yaml") {
			continue
		}
		text, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		object := &v1alpha1.ExportPolicy{}
		Expect(yaml.UnmarshalStrict(text, object)).To(Succeed())
		create(ctx, object)
		names = append(names, object.Name)
	}
	for _, name := range names {
		Eventually(compiled(ctx, name)).Within(timeout).Should(Equal("True/Compiled"), name)
	}
	return names
}
