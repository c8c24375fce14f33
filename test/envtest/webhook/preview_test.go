// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/app"
	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
)

var _ = Describe("The preview of an ExportPolicy", func() {
	// staysHere denies the exports of one namespace whose names begin with web.
	staysHere := func(namespace string) *policyv1alpha1.ExportPolicy {
		return &policyv1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: "stays-here"}, Spec: policyv1alpha1.ExportPolicySpec{Rego: fmt.Sprintf(`package comity.policies.stays_here

deny contains {"msg": "web stays here"} if {
	input.namespace.metadata.name == %q
	startswith(input.object.metadata.name, "web")
}
`, namespace)}}
	}
	// create makes the exports and waits until the webhook's cache has them.
	create := func(ctx SpecContext, exports ...*unstructured.Unstructured) {
		GinkgoHelper()
		for _, object := range exports {
			Expect(k8s.Create(ctx, object)).To(Succeed())
		}
		Eventually(func(g Gomega) {
			stored, err := serving.Exports(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			var names []string
			for _, export := range stored {
				names = append(names, export.Namespace+"/"+export.Name)
			}
			for _, object := range exports {
				g.Expect(names).To(ContainElement(object.GetNamespace() + "/" + object.GetName()))
			}
		}).WithTimeout(20 * time.Second).Should(Succeed())
	}
	outcome := func(ctx SpecContext, namespace, name string) decision.Outcome {
		GinkgoHelper()
		in, err := serving.Input(ctx, decision.Input{Object: storedExport(ctx, namespace, name)})
		Expect(err).NotTo(HaveOccurred())
		return judges.engine.Evaluate(ctx, in).Outcome
	}

	It("warns what it would do, in a dry run as well, and that then happens", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		published := export("v1beta1", namespace, "web")
		published.SetLabels(map[string]string{labelPublished: "true"})
		create(ctx, published, export("v1beta1", namespace, "web-new"), export("v1beta1", namespace, "db"))
		would := ConsistOf(
			MatchRegexp(`^\[stays-here\] would withdraw 1 of \d+ exports: %s/web$`, namespace),
			MatchRegexp(`^\[stays-here\] would deny 1 of \d+ exports: %s/web-new$`, namespace))

		Eventually(func(g Gomega) { // a busy machine may have no time for a whole preview
			warnings.Take()
			g.Expect(k8s.Create(ctx, staysHere(namespace), client.DryRunAll)).To(Succeed())
			g.Expect(warnings.Take()).To(would)
		}).WithTimeout(20 * time.Second).Should(Succeed())
		Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKey{Name: "stays-here"}, &policyv1alpha1.ExportPolicy{}))).To(BeTrue())

		By("storing it")
		policy := staysHere(namespace)
		Expect(k8s.Create(ctx, policy)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(k8s.Delete(ctx, policy)).To(Succeed()) })
		Expect(warnings.Take()).To(would)
		judges.Load(engine.FromObject(policy, time.Now()))
		Expect(outcome(ctx, namespace, "web")).To(Equal(decision.Denied))
		Expect(outcome(ctx, namespace, "web-new")).To(Equal(decision.Denied))
		Expect(outcome(ctx, namespace, "db")).To(Equal(decision.Allowed))

		By("correcting it")
		policy.Spec.Match = &policyv1alpha1.Match{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"nobody": "has-it"}}}
		Expect(k8s.Update(ctx, policy)).To(Succeed())
		Expect(warnings.Take()).To(ConsistOf(
			MatchRegexp(`^\[stays-here\] would no longer deny 2 of \d+ exports: %[1]s/web, %[1]s/web-new$`, namespace),
			MatchRegexp(`^\[stays-here\] matches no export \(there are \d+\)$`)))

		By("changing nothing that counts")
		policy.Labels = map[string]string{"team": "platform"}
		Expect(k8s.Update(ctx, policy)).To(Succeed())
		Expect(warnings.Take()).To(BeEmpty())
	})

	It("is not made of a policy that is refused", func(ctx SpecContext) {
		policy := staysHere("any")
		policy.Spec.Rego += "\nsurplus := 1\n"
		warnings.Take()
		Expect(apierrors.IsBadRequest(k8s.Create(ctx, policy))).To(BeTrue())
		Expect(warnings.Take()).To(BeEmpty())
	})

	It("is what kubectl comity policy simulate prints, which stores nothing", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		published := export("v1beta1", namespace, "web")
		published.SetLabels(map[string]string{labelPublished: "true"})
		create(ctx, published)
		user, err := environment.AddUser(envtest.User{Name: "author", Groups: []string{"system:masters"}}, nil)
		Expect(err).NotTo(HaveOccurred())
		kubeconfig, err := user.KubeConfig()
		Expect(err).NotTo(HaveOccurred())
		folder := GinkgoT().TempDir()
		write := func(name string, text []byte) string {
			GinkgoHelper()
			path := filepath.Join(folder, name)
			Expect(os.WriteFile(path, text, 0o600)).To(Succeed())
			return path
		}
		manifest := func(policy *policyv1alpha1.ExportPolicy) string {
			GinkgoHelper()
			policy.APIVersion, policy.Kind = policyv1alpha1.GroupVersion.String(), "ExportPolicy"
			text, err := json.Marshal(policy)
			Expect(err).NotTo(HaveOccurred())
			return write(policy.Name+".json", text)
		}
		simulate := func(code int, args ...string) (out, problem string) {
			GinkgoHelper()
			var stdout, stderr bytes.Buffer
			args = append([]string{"policy", "simulate", "--kubeconfig", write("kubeconfig", kubeconfig)}, args...)
			Expect(app.Run(ctx, genericiooptions.IOStreams{Out: &stdout, ErrOut: &stderr}, args)).To(Equal(code), stdout.String()+stderr.String())
			return stdout.String(), stderr.String()
		}

		policy := staysHere(namespace)
		out, _ := simulate(1, "-f", manifest(policy))
		Expect(out).To(MatchRegexp(`(?m)^  \[stays-here\] would withdraw 1 of \d+ exports: %s/web$`, namespace))
		Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKey{Name: "stays-here"}, &policyv1alpha1.ExportPolicy{}))).To(BeTrue())

		By("storing it")
		Expect(k8s.Create(ctx, policy)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(k8s.Delete(ctx, policy)).To(Succeed()) })
		judges.Load(engine.FromObject(policy, time.Now()))
		out, _ = simulate(0, "-f", manifest(policy))
		Expect(out).To(ContainSubstring("[stays-here] nothing would change"))
		out, _ = simulate(1, "--without", "stays-here", "-o", "json")
		Expect(out).To(And(ContainSubstring(`"changes": true`), ContainSubstring("[stays-here] would no longer deny 1 of")))

		By("asking for what cannot be simulated")
		for words, args := range map[string][]string{
			"there is nothing to try":         nil,
			"there is no ExportPolicy nobody": {"--without", "nobody"},
		} {
			_, problem := simulate(2, args...)
			Expect(problem).To(ContainSubstring(words))
		}
		policy = staysHere(namespace)
		policy.Spec.Rego += "\nsurplus := 1\n"
		_, problem := simulate(2, "-f", manifest(policy))
		Expect(problem).To(And(ContainSubstring("ExportPolicy stays-here cannot be used"), ContainSubstring("stays-here.rego:8:1")))
	})
})
