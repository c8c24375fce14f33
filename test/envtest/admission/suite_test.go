// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/envtest/suite"
)

const (
	own    = "comity-system"
	comity = "system:serviceaccount:comity-system:comity"
	// policies is how many ValidatingAdmissionPolicies there are.
	policies = 4
)

var (
	server *rest.Config
	// admin is of the group system:masters; alice may do everything in all
	// namespaces by RBAC, and agent is Comity's account with its own RBAC.
	admin, alice, agent client.Client
)

func TestAdmission(t *testing.T) {
	suite.Run(t, "admission", suite.Waits{Soon: 30 * time.Second, Poll: 100 * time.Millisecond})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	server = suite.Start(suite.APIServer())[0]
	admin = suite.Client(server)
	Expect(admin.Create(ctx, namespace(own))).To(Succeed())
	manifests(ctx, "rbac")
	Expect(admin.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "alice"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.UserKind, Name: "alice"}, {Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:kube-system"},
		},
	})).To(Succeed())
	alice, agent = as("alice"), as(comity)
	makeOlder(ctx)
	manifests(ctx, "admission")
	manifests(ctx, filepath.Join("admission", "tokens"))
	awaitPolicies(ctx)
})

// as is a client that acts as user, with the user's own rights.
func as(user string, groups ...string) client.Client {
	GinkgoHelper()
	config := rest.CopyConfig(server)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return suite.Client(config)
}

// manifests applies the files of a directory below config.
func manifests(ctx context.Context, dir string) {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "config", dir, "*.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(files).NotTo(BeEmpty())
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		text, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		Expect(clusters.Apply(ctx, server, text)).To(Succeed(), file)
	}
}

// awaitPolicies waits until the API server enforces each policy: it does so a
// moment after they are stored. A request that the policy refuses shows it.
func awaitPolicies(ctx context.Context) {
	GinkgoHelper()
	Expect(admin.Create(ctx, namespace("trial"))).To(Succeed())
	Expect(admin.Create(ctx, account("trial", map[string]string{"comity.dev/token-expiry": "1h"}))).To(Succeed())
	for policy, attempt := range map[string]func() error{
		"comity-imports": func() error { return alice.Create(ctx, service("trial", "mine", managedBy), client.DryRunAll) },
		"comity-endpoints": func() error {
			return alice.Create(ctx, slice("trial", "mine", "web", sliceManagedBy), client.DryRunAll)
		},
		"comity-agent":  func() error { return agent.Create(ctx, service("trial", "web", nil), client.DryRunAll) },
		"comity-tokens": func() error { return request(ctx, as(user("trial"), "system:masters"), "trial", 2*time.Hour) },
	} {
		Eventually(ctx, attempt).Should(MatchError(ContainSubstring("'"+policy+"'")), policy)
	}
}

// user is how the API server calls an account of Comity's namespace.
func user(account string) string { return "system:serviceaccount:" + own + ":" + account }

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

var _ = It("the API server finds no fault with the expressions of any policy", func(ctx SpecContext) {
	var all admissionregistrationv1.ValidatingAdmissionPolicyList
	Expect(admin.List(ctx, &all)).To(Succeed())
	Expect(all.Items).To(HaveLen(policies))
	for _, policy := range all.Items {
		Expect(policy.Spec.FailurePolicy).To(HaveValue(Equal(admissionregistrationv1.Fail)), policy.Name)
		for _, condition := range policy.Status.Conditions {
			Expect(condition.Status).NotTo(Equal(metav1.ConditionFalse), "%s: %s", policy.Name, condition.Message)
		}
		if policy.Status.TypeChecking != nil {
			Expect(policy.Status.TypeChecking.ExpressionWarnings).To(BeEmpty(), policy.Name)
		}
	}
}, SpecTimeout(time.Minute))
