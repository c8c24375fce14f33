// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/controller"
	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/findings"
	"github.com/comity-mcs/comity/policies/replicas"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/test/gitops"
)

// own is Comity's namespace.
const own = "comity-system"

// stating makes a replica state what it enforces.
func stating(name string) func(ctrl.Manager, *replica, *controller.Options) {
	return func(mgr ctrl.Manager, _ *replica, o *controller.Options) {
		GinkgoHelper()
		o.Replicas = statement(name)
		Expect(mgr.Add(o.Replicas)).To(Succeed())
	}
}

func statement(name string) *replicas.Replicas {
	return replicas.New(replicas.Options{Namespace: own, Name: name, Reader: direct, Writer: direct})
}

func state(ctx context.Context, r *replicas.Replicas, policy, digest string) {
	GinkgoHelper()
	_, err := r.State(ctx, map[string]string{policy: digest})
	Expect(err).NotTo(HaveOccurred())
}

// auditing makes a replica audit all stored exports whenever its policies change, as the
// agent does, and show what it finds. Exports in namespace unread are left out.
func auditing(found *findings.Findings) func(ctrl.Manager, *replica, *controller.Options) {
	return func(_ ctrl.Manager, r *replica, o *controller.Options) {
		changed := o.Changed
		o.Findings, o.StatusInterval = found, 100*time.Millisecond
		o.Changed = func() {
			changed()
			r.audit(found)
		}
	}
}

// audit reviews all stored exports.
func (r *replica) audit(found *findings.Findings) {
	var exports mcsv1beta1.ServiceExportList
	Expect(direct.List(context.Background(), &exports)).To(Succeed())
	for i := range exports.Items {
		export := &exports.Items[i]
		found.Record(client.ObjectKeyFromObject(export), "", r.engine.Evaluate(context.Background(), decision.Input{
			Operation: decision.Audit, Subject: decision.SubjectServiceExport, Object: export, Cluster: "a",
			Scope: decision.Scope{All: true}, NamespaceScope: decision.Scope{All: true},
		}))
	}
}

// inForce is status, reason and message of the condition for this very version.
func inForce(ctx context.Context, name string) func() string {
	return func() string {
		object, _ := stored(ctx, name)
		c := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionInForce)
		if c == nil || c.ObservedGeneration != object.Generation {
			return ""
		}
		return fmt.Sprintf("%s/%s: %s", c.Status, c.Reason, c.Message)
	}
}

// condition is status and reason of a condition; empty if there is none.
func condition(object *unstructured.Unstructured, typ string) string {
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range list {
		if c, is := item.(map[string]any); is && c["type"] == typ {
			return fmt.Sprintf("%s/%s", c["status"], c["reason"])
		}
	}
	return ""
}

var _ = Describe("The status of an ExportPolicy", func() {
	BeforeEach(func(ctx context.Context) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: own}}
		Expect(client.IgnoreAlreadyExists(direct.Create(ctx, namespace))).To(Succeed())
	})
	AfterEach(func(ctx context.Context) {
		Expect(direct.DeleteAllOf(ctx, &v1alpha1.ExportPolicy{})).To(Succeed())
		Expect(client.IgnoreNotFound(direct.Delete(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: replicas.LeaseName}}))).To(Succeed())
	})

	It("says 2/2 once every replica enforces it, and not while one lags", func(ctx context.Context) {
		// BAD INPUT: a replica that lags. It states what it enforces, and loads nothing new.
		lagging := statement("lagging")
		running, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- lagging.Start(running) }()
		DeferCleanup(func() { cancel(); Expect(<-ended).To(Succeed()) })
		state(ctx, lagging, "stated", "sha256:of-an-older-version")

		leader := start(stating("leader"))
		leader.elect()
		create(ctx, policy("stated", "no"))
		Eventually(inForce(ctx, "stated")).Within(timeout).Should(Equal(
			"False/ReplicaLags: 1/2 replicas enforce the policy as it is stored; lagging: not yet, see its log if that stays."))

		object, _ := stored(ctx, "stated")
		state(ctx, lagging, "stated", object.Status.Digest)
		Eventually(inForce(ctx, "stated")).Within(timeout).Should(Equal("True/EveryReplica: 2/2 replicas enforce the policy as it is stored."))

		By("editing it")
		edit(ctx, "stated", module("stated", "v2"))
		Eventually(inForce(ctx, "stated")).Within(timeout).Should(HavePrefix("False/ReplicaLags: 1/2 "))

		By("breaking it")
		edit(ctx, "stated", "no rego")
		Eventually(inForce(ctx, "stated")).Within(timeout).Should(Equal("False/NotCompiled: The policy is not in use; see the condition Compiled."))

		By("ending the other replica")
		cancel()
		edit(ctx, "stated", module("stated", "v3"))
		Eventually(inForce(ctx, "stated")).Within(timeout).Should(Equal("True/EveryReplica: 1/1 replicas enforce the policy as it is stored."))
	})

	It("has the conditions of kstatus, which Argo CD and Flux read", func(ctx context.Context) {
		health := func() string {
			GinkgoHelper()
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ExportPolicy"))
			Expect(direct.Get(ctx, client.ObjectKey{Name: "healthy"}, object)).To(Succeed())
			h, err := gitops.Of(object)
			Expect(err).NotTo(HaveOccurred())
			Expect(h.Flux).To(Equal(h.KStatus))
			ready := condition(object, v1alpha1.ConditionReady)
			beside := condition(object, v1alpha1.ConditionReconciling) + condition(object, v1alpha1.ConditionStalled)
			return strings.Join([]string{h.Argo, string(h.Flux), ready, beside}, " ")
		}
		leader := start(stating("leader"))
		create(ctx, policy("healthy", "no"))
		Consistently(health).WithTimeout(time.Second).Should(Equal("Progressing InProgress  "), "nobody leads, so nobody looked at it")

		leader.elect()
		Eventually(health).Within(timeout).Should(Equal("Healthy Current True/EveryReplica "))

		By("breaking it")
		edit(ctx, "healthy", "no rego")
		Eventually(health).Within(timeout).Should(Equal("Degraded Failed False/CompileError True/CompileError"))

		By("fixing it, while another replica lags")
		lagging := statement("lagging")
		running, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- lagging.Start(running) }()
		DeferCleanup(func() { cancel(); Expect(<-ended).To(Succeed()) })
		state(ctx, lagging, "healthy", "sha256:of-an-older-version")
		edit(ctx, "healthy", module("healthy", "v2"))
		Eventually(health).Within(timeout).Should(Equal("Progressing InProgress False/ReplicaLags True/ReplicaLags"))
		object, _ := stored(ctx, "healthy")
		state(ctx, lagging, "healthy", object.Status.Digest)
		Eventually(health).Within(timeout).Should(Equal("Healthy Current True/EveryReplica "))
		object, _ = stored(ctx, "healthy")
		Expect(object.Status.ObservedGeneration).To(Equal(object.Generation))
		Expect(meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionReady).ObservedGeneration).To(Equal(object.Generation))
	})

	It("counts real replicas", func(ctx context.Context) {
		leader, follower := start(stating("leader")), start(stating("follower"))
		leader.elect()
		create(ctx, policy("counted", "no"))
		Eventually(inForce(ctx, "counted")).Within(timeout).Should(HavePrefix("True/EveryReplica: 2/2 "))
		follower.stop()
		Eventually(inForce(ctx, "counted")).Within(timeout).Should(HavePrefix("True/EveryReplica: 1/1 "))

		By("restarting the one that is left")
		leader.stop()
		leader = start(stating("leader"))
		leader.elect()
		Consistently(inForce(ctx, "counted")).WithTimeout(3 * time.Second).Should(HavePrefix("True/EveryReplica: 1/1 "))
		Expect(leader.writes.Load()).To(BeZero(), "a restart changes no status")
	})

	It("has what it matches and the first 20 that violate it, and is written seldom", func(ctx context.Context) {
		const exports = 25
		namespace := "status-1"
		Expect(direct.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(direct.DeleteAllOf(ctx, &mcsv1beta1.ServiceExport{}, client.InNamespace(namespace))).To(Succeed())
		})
		for i := range exports {
			export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("web-%02d", exports-1-i)}}
			if i == 0 {
				export.Labels = map[string]string{"owner": "jane"}
			}
			Expect(direct.Create(ctx, export)).To(Succeed())
		}
		found := findings.New()
		leader := start(auditing(found))
		leader.elect()
		owner := policy("owner", "")
		owner.Spec.Rego = "package comity.policies.owner\n\ndeny contains {\"msg\": \"no owner\"} if not input.object.metadata.labels.owner\n"
		audited := policy("audited", "no")
		audited.Spec.Enforcement = v1alpha1.Audit
		// BAD INPUT: a selector that matches nothing.
		nothing := policy("nothing", "no")
		nothing.Spec.Match = &v1alpha1.Match{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"nobody": "has"}}}
		create(ctx, owner, audited, nothing)

		counts := func(name string) func() string {
			return func() string {
				object, _ := stored(ctx, name)
				if object.Status.Matched == nil || object.Status.Violations == nil {
					return ""
				}
				return fmt.Sprintf("%d matched, %d violate", *object.Status.Matched, object.Status.Violations.Total)
			}
		}
		Eventually(counts("owner")).Within(timeout).Should(Equal("25 matched, 24 violate"))
		Eventually(counts("audited")).Within(timeout).Should(Equal("25 matched, 25 violate"))
		Eventually(counts("nothing")).Within(timeout).Should(Equal("0 matched, 0 violate"))
		object, _ := stored(ctx, "owner")
		Expect(object.Status.Violations.Items).To(HaveLen(20))
		for i, item := range object.Status.Violations.Items {
			Expect(item).To(Equal(v1alpha1.ViolationItem{Namespace: namespace, Name: fmt.Sprintf("web-%02d", i), Message: "no owner."}))
		}
		object, _ = stored(ctx, "audited")
		Expect(object.Status.Violations.Items[0].Message).To(Equal("would be refused: no."))

		By("correcting and breaking one a hundred times")
		before := leader.writes.Load()
		one := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-00"}}
		for i := range 100 {
			labels := map[string]any{"owner": nil}
			if i%2 == 0 {
				labels["owner"] = "joe"
			}
			Expect(patchLabels(ctx, one, labels)).To(Succeed())
			leader.audit(found)
		}
		Expect(direct.Delete(ctx, one)).To(Succeed())
		found.Forget(client.ObjectKeyFromObject(one), func(cluster string) bool { return cluster == "" })
		Eventually(counts("owner")).Within(timeout).Should(Equal("24 matched, 23 violate"))
		Eventually(counts("audited")).Within(timeout).Should(Equal("24 matched, 24 violate"))
		Expect(leader.writes.Load()-before).To(BeNumerically("<", 60), "of three policies, for 200 changes")

		By("starting another leader, which finds all said")
		settled := counts("owner")()
		leader.stop()
		second := start(auditing(findings.New()))
		second.elect()
		Consistently(counts("owner")).WithTimeout(2 * time.Second).Should(Equal(settled))
		Expect(second.writes.Load()).To(BeZero())

		By("deleting all policies") // BAD INPUT: all policies deleted
		Expect(direct.DeleteAllOf(ctx, &v1alpha1.ExportPolicy{})).To(Succeed())
		Eventually(second.answer).Within(timeout).Should(BeEmpty())
	})

	It("ends an exception after its last day, and names it", func(ctx context.Context) {
		end := time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)
		clock := shifted(time.Until(end.Add(-10 * time.Second)))
		leader := start(func(_ ctrl.Manager, _ *replica, o *controller.Options) { o.Clock = clock })
		leader.elect()
		excepting := policy("excepting", "no")
		excepting.Spec.Exceptions = []v1alpha1.Exception{
			{Namespace: "shop", Name: "db", Until: "2027-01-31", Reason: "migration"},
			{Namespace: "bank", Until: "2027-01-10", Reason: "was forgotten"},
		}
		create(ctx, excepting)
		Eventually(compiled(ctx, "excepting")).Within(timeout).Should(Equal("True/Compiled"))
		_, condition := stored(ctx, "excepting")
		Expect(condition.Message).To(Equal("The policy is in use. Exceptions that are over: all of bank (until 2027-01-10)."))
		Expect(leader.answer()).To(BeEmpty())

		Eventually(leader.answer).Within(timeout).Should(ConsistOf("excepting no"))
		Expect(clock.Now()).To(BeTemporally(">=", end), "the last day is over")
		Eventually(func() string { _, c := stored(ctx, "excepting"); return c.Message }).Within(timeout).Should(Equal(
			"The policy is in use. Exceptions that are over: shop/db (until 2027-01-31), all of bank (until 2027-01-10)."))
	})

	DescribeTable("BAD INPUT: the API server refuses", func(ctx context.Context, change func(*v1alpha1.ExportPolicy), says string) {
		bad := policy("bad", "no")
		change(bad)
		Expect(direct.Create(ctx, bad)).To(MatchError(ContainSubstring(says)))
	},
		Entry("an exception without an end", func(p *v1alpha1.ExportPolicy) {
			p.Spec.Exceptions = []v1alpha1.Exception{{Namespace: "shop", Reason: "r"}}
		}, "spec.exceptions[0].until"),
		Entry("an exception until a day that no calendar has", func(p *v1alpha1.ExportPolicy) {
			p.Spec.Exceptions = []v1alpha1.Exception{{Namespace: "shop", Until: "2027-02-30", Reason: "r"}}
		}, "spec.exceptions[0].until"),
		Entry("an enforcement that there is not", func(p *v1alpha1.ExportPolicy) { p.Spec.Enforcement = "Maybe" }, "spec.enforcement"),
		Entry("an exception without a reason", func(p *v1alpha1.ExportPolicy) {
			p.Spec.Exceptions = []v1alpha1.Exception{{Namespace: "shop", Until: "2027-01-31"}}
		}, "spec.exceptions[0].reason"),
		Entry("a grace period that is too long", func(p *v1alpha1.ExportPolicy) {
			p.Spec.Grace = &metav1.Duration{Duration: 721 * time.Hour}
		}, "expected a duration from 0s to 720h"),
	)

	It("BAD INPUT: says where a parameter is misspelled, and which names there are", func(ctx context.Context) {
		leader := start()
		leader.elect()
		bad := policy("limited", "no")
		bad.Spec.ParametersSchema = &apiextensionsv1.JSON{Raw: []byte(`{"type": "object", "properties": {"label": {"type": "string"}}}`)}
		bad.Spec.Parameters = &apiextensionsv1.JSON{Raw: []byte(`{"lable": "app"}`)}
		create(ctx, bad)
		Eventually(compiled(ctx, "limited")).Within(timeout).Should(Equal("False/CompileError"))
		_, condition := stored(ctx, "limited")
		Expect(condition.Message).To(HavePrefix("spec.parameters.lable: unknown; expected one of label\n"))
	})

	It("BAD INPUT: names the one bad policy among ten after a restart", func(ctx context.Context) {
		for i := range 10 {
			p := policy(fmt.Sprintf("ten%d", i), "no")
			if i == 4 {
				p.Spec.Rego = "no rego"
			}
			create(ctx, p)
		}
		first := start(stating("first"))
		first.elect()
		Eventually(compiled(ctx, "ten4")).Within(timeout).Should(Equal("False/CompileError"))
		first.stop()
		second := start(stating("second"))
		second.elect()
		Expect(second.answer()).To(HaveLen(9), "the others deny all the same")
		for i := range 10 {
			want := HavePrefix("True/EveryReplica: 1/1 ")
			if i == 4 {
				want = HavePrefix("False/NotCompiled: ")
			}
			Eventually(inForce(ctx, fmt.Sprintf("ten%d", i))).Within(timeout).Should(want)
		}
	})
})

// patchLabels sets labels of an export; nil removes one.
func patchLabels(ctx context.Context, export *mcsv1beta1.ServiceExport, labels map[string]any) error {
	var items []string
	for key, value := range labels {
		text := "null"
		if value != nil {
			text = fmt.Sprintf("%q", value)
		}
		items = append(items, fmt.Sprintf("%q: %s", key, text))
	}
	patch := fmt.Sprintf(`{"metadata": {"labels": {%s}}}`, strings.Join(items, ", "))
	return direct.Patch(ctx, export, client.RawPatch("application/merge-patch+json", []byte(patch)))
}

// shifted is a clock that is ahead by that much.
type shifted time.Duration

func (s shifted) Now() time.Time { return time.Now().Add(time.Duration(s)) }

func (s shifted) Since(t time.Time) time.Duration { return s.Now().Sub(t) }
