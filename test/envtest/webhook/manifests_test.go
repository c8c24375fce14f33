// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// install creates every object of one directory under config.
func install(ctx SpecContext, dir string) {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "config", dir, "*.yaml"))
	Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		text, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		Expect(k8s.Create(ctx, parse(string(text)), client.FieldValidation(metav1.FieldValidationStrict))).To(Succeed(), file)
	}
}

var _ = Describe("The manifests", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		warnings.Take()
		for _, dir := range []string{"agent", "rbac", "manager"} {
			install(ctx, dir)
		}
	})

	It("are accepted without a warning, also under the restricted Pod Security Standard", func() {
		Expect(warnings.Take()).To(BeEmpty())
	})

	DescribeTable("give the agent the right that it needs and no other",
		func(ctx SpecContext, verb, group, resource, namespace string, wanted bool) {
			kind, subresource, _ := strings.Cut(resource, "/")
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:comity-system:comity",
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: verb, Group: group, Resource: kind, Subresource: subresource, Namespace: namespace,
				},
			}}
			Expect(k8s.Create(ctx, review)).To(Succeed())
			Expect(review.Status.Allowed).To(Equal(wanted), review.Status.Reason)
		},
		Entry("it watches exports", "watch", "multicluster.x-k8s.io", "serviceexports", "shop", true),
		Entry("it does not change exports", "patch", "multicluster.x-k8s.io", "serviceexports", "shop", false),
		Entry("it tells what came of them", "patch", "multicluster.x-k8s.io", "serviceexports/status", "shop", true),
		Entry("it makes imports", "create", "multicluster.x-k8s.io", "serviceimports", "shop", true),
		Entry("it applies derived Services", "patch", "", "services", "shop", true),
		Entry("it deletes derived slices", "delete", "discovery.k8s.io", "endpointslices", "shop", true),
		Entry("it does not write policies", "patch", "policy.comity.dev", "exportpolicies", "", false),
		Entry("it tells whether they compiled", "patch", "policy.comity.dev", "exportpolicies/status", "", true),
		Entry("it publishes nothing where nobody agreed to", "create", "exchange.comity.dev", "exportrecords", "comity-cluster-1", false),
		Entry("it reads the Secrets of its peers", "watch", "", "secrets", "comity-system", true),
		Entry("it reads no other Secret", "get", "", "secrets", "shop", false),
		Entry("it makes no namespaces", "create", "", "namespaces", "", false),
		Entry("it gives nobody a role", "create", "rbac.authorization.k8s.io", "rolebindings", "comity-system", false),
		Entry("it issues no tokens", "create", "", "serviceaccounts/token", "comity-system", false),
		Entry("it can stand for election", "create", "coordination.k8s.io", "leases", "comity-system", true),
		Entry("it changes no other Lease", "patch", "coordination.k8s.io", "leases", "comity-system", false),
	)
})
