// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/comity/install"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// owner is the ClusterRole of the release.
const owner = "comity"

// manifest is a file of policies.
func manifest(names ...string) []byte {
	var documents []string
	for _, name := range names {
		documents = append(documents, "apiVersion: policy.comity.dev/v1alpha1\nkind: ExportPolicy\nmetadata:\n  name: "+name+
			"\nspec:\n  enforcement: Audit\n  rego: |\n    package comity.policies."+name+"\n")
	}
	return []byte(strings.Join(documents, "---\n"))
}

// installPolicies runs `comity install policies`.
func installPolicies(ctx context.Context, file []byte) (string, error) {
	out := &output{}
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	err := install.Policies(ctx, policyJob, out, policyOptions(file))
	return out.String(), err
}

func policyOptions(file []byte) install.PolicyOptions {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "policies.yaml")
	Expect(os.WriteFile(path, file, 0o600)).To(Succeed())
	return install.PolicyOptions{File: path, OwnerClusterRole: owner}
}

// inBackground runs it while the spec goes on.
func inBackground(ctx context.Context, file []byte) (*output, <-chan error) {
	out, ended := &output{}, make(chan error, 1)
	options := policyOptions(file)
	go func() { ended <- install.Policies(ctx, policyJob, out, options) }()
	return out, ended
}

func policyNames(ctx context.Context) []string {
	GinkgoHelper()
	list := &v1alpha1.ExportPolicyList{}
	Expect(admin.List(ctx, list)).To(Succeed())
	names := []string{}
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	return names
}

func userPolicy(name string) *v1alpha1.ExportPolicy {
	return &v1alpha1.ExportPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ExportPolicySpec{Rego: "package comity.policies." + name}}
}

func clusterRole(ctx context.Context, name string) *rbacv1.ClusterRole {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(admin.Create(ctx, role)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(admin.Delete(ctx, role))).To(Succeed()) })
	return role
}

// policySpecs need the definitions.
func policySpecs() {
	var role *rbacv1.ClusterRole

	BeforeEach(func(ctx SpecContext) {
		role = clusterRole(ctx, owner)
		Expect(admin.DeleteAllOf(ctx, &v1alpha1.ExportPolicy{})).To(Succeed())
	})

	It("applies the file, follows its changes, and leaves the policies of users alone", func(ctx SpecContext) {
		Expect(admin.Create(ctx, userPolicy("mine"))).To(Succeed())
		out, err := installPolicies(ctx, manifest("one", "two"))
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(Equal("exportpolicy one created\nexportpolicy two created\n"))
		one := &v1alpha1.ExportPolicy{}
		Expect(admin.Get(ctx, client.ObjectKey{Name: "one"}, one)).To(Succeed())
		Expect(one.OwnerReferences).To(Equal([]metav1.OwnerReference{{
			APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: owner, UID: role.UID,
		}}))

		_, err = installPolicies(ctx, manifest("one", "two")) // stores the default of the status, which a creation drops
		Expect(err).NotTo(HaveOccurred())
		out, err = installPolicies(ctx, manifest("one", "two"))
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(Equal("exportpolicy one unchanged\nexportpolicy two unchanged\n"))

		changed := strings.Replace(string(manifest("two", "three")), "Audit", "Warn", 1)
		out, err = installPolicies(ctx, []byte(changed))
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(Equal("exportpolicy two configured\nexportpolicy three created\nexportpolicy one deleted\n"))
		Expect(policyNames(ctx)).To(ConsistOf("mine", "two", "three"))
	})

	It("gives policies to the ClusterRole that took the place of their owner", func(ctx SpecContext) {
		_, err := installPolicies(ctx, manifest("one"))
		Expect(err).NotTo(HaveOccurred())
		Expect(admin.Delete(ctx, role)).To(Succeed())
		role = clusterRole(ctx, owner)
		out, err := installPolicies(ctx, manifest("one"))
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(Equal("exportpolicy one configured\n"))
		one := &v1alpha1.ExportPolicy{}
		Expect(admin.Get(ctx, client.ObjectKey{Name: "one"}, one)).To(Succeed())
		Expect(one.OwnerReferences).To(HaveExactElements(HaveField("UID", role.UID)))
	})

	It("refuses policies that users made, and names them all before it writes any", func(ctx SpecContext) {
		Expect(admin.Create(ctx, userPolicy("two"))).To(Succeed())
		Expect(admin.Create(ctx, userPolicy("three"))).To(Succeed())
		_, err := installPolicies(ctx, manifest("one", "two", "three"))
		Expect(err).To(MatchError(And(ContainSubstring("exportpolicy two exists"), ContainSubstring("exportpolicy three exists"), ContainSubstring("delete it"))))
		Expect(policyNames(ctx)).To(ConsistOf("two", "three"))
	})

	It("neither deletes nor takes the policies of another installation, but waits until they are gone", func(ctx SpecContext) {
		other := clusterRole(ctx, "other-comity")
		theirs := userPolicy("one")
		theirs.Labels = map[string]string{"app.kubernetes.io/managed-by": "comity-install"}
		theirs.OwnerReferences = []metav1.OwnerReference{{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: other.Name, UID: other.UID}}
		Expect(admin.Create(ctx, theirs)).To(Succeed())

		background, ended := inBackground(ctx, manifest("two"))
		Eventually(background.String).Should(ContainSubstring("ClusterRole other-comity, another installation"))
		Expect(policyNames(ctx)).To(ConsistOf("one"))
		Expect(admin.Delete(ctx, theirs)).To(Succeed())
		Eventually(ended).Should(Receive(BeNil()))
		Expect(policyNames(ctx)).To(ConsistOf("two"))
	})

	It("waits for the webhook, and gives up at once when that refuses, with its words", func(ctx SpecContext) {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		webhook := httptest.NewUnstartedServer(http.HandlerFunc(review))
		Expect(webhook.Listener.Close()).To(Succeed())
		address := listener.Addr().String()
		Expect(listener.Close()).To(Succeed()) // nothing listens there now
		guard(ctx, "https://"+address, certificateOf(webhook))

		out, ended := inBackground(ctx, manifest("one"))
		Eventually(out.String).Should(ContainSubstring("waiting: Internal error occurred: failed calling webhook"))
		webhook.Listener, err = new(net.ListenConfig).Listen(ctx, "tcp", address)
		Expect(err).NotTo(HaveOccurred())
		webhook.StartTLS()
		DeferCleanup(webhook.Close)
		Eventually(ended).Should(Receive(BeNil()))
		Expect(out.String()).To(ContainSubstring("exportpolicy one created"))

		started := time.Now()
		_, err = installPolicies(ctx, manifest("one", "bad"))
		Expect(err).To(MatchError(And(ContainSubstring("exportpolicy bad"), ContainSubstring("line 3 does not compile"))))
		Expect(time.Since(started)).To(BeNumerically("<", 5*time.Second), "it did not wait")
	})
}

// review refuses the policy called bad.
func review(w http.ResponseWriter, r *http.Request) {
	var in admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := &admissionv1.AdmissionResponse{UID: in.Request.UID, Allowed: in.Request.Name != "bad"}
	if !answer.Allowed {
		answer.Result = &metav1.Status{Code: http.StatusForbidden, Message: "line 3 does not compile"}
	}
	in.Request, in.Response = nil, answer
	_ = json.NewEncoder(w).Encode(in)
}

// guard has the API server ask a webhook about policies.
func guard(ctx context.Context, url string, ca []byte) {
	GinkgoHelper()
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "guard"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "guard.comity.dev", ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"policy.comity.dev"}, APIVersions: []string{"v1alpha1"}, Resources: []string{"exportpolicies"}},
			}},
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: ptr.To[int32](3),
		}},
	}
	Expect(admin.Create(ctx, configuration)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(admin.Delete(ctx, configuration)).To(Succeed()) })
	// Until the API server asks, which takes it a moment.
	Eventually(func() error { return admin.Create(ctx, userPolicy("asked"), client.DryRunAll) }).Should(MatchError(ContainSubstring("failed calling webhook")))
}
