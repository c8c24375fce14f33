// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// What it prints in a cluster with webhooks is tested in package test/envtest/webhook.
var _ = Describe("policy simulate", func() {
	DescribeTable("exits 2 and says why",
		func(words string, args ...string) {
			got := run(append([]string{"policy", "simulate", "-f", "../../../config/policies/export-scope.yaml"}, args...)...)
			Expect(got.code).To(Equal(2), got.out)
			Expect(got.err).To(ContainSubstring(words))
			Expect(got.out).To(BeEmpty())
		},
		Entry("where no webhook would answer", `context "a": no webhook checks ExportPolicies`, "a"),
		Entry("without the right to create ExportPolicies", `User "nobody" cannot`, "a", "--as", "nobody"),
		Entry("for a cluster that does not answer", `context "dead"`, "dead"),
	)
})
