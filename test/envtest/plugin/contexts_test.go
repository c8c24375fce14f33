// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("contexts", func() {
	It("are listed where one is unknown", func() {
		got := run("coredns", "enable", "a", "nope")
		Expect(got.code).To(Equal(2))
		Expect(got.err).To(Equal("Error: context \"nope\" is not in the kubeconfig; expected one of: a, again, dead\n"))
	})
	It("that lead to one cluster are refused", func() {
		for _, command := range [][]string{{"coredns", "enable"}, {"status"}} {
			got := run(append(command, "a", "again")...)
			Expect(got.code).To(Equal(2))
			Expect(got.err).To(ContainSubstring(`contexts "a" and "again" lead to one cluster`))
		}
	})
	It("are refused if given twice", func() {
		Expect(run("status", "a", "a").err).To(ContainSubstring(`contexts "a" and "a" lead to one cluster`))
	})
	It("that do not answer are named with their server", func() {
		got := run("coredns", "disable", "dead")
		Expect(got.code).To(Equal(2))
		Expect(got.err).To(And(ContainSubstring(`context "dead"`), ContainSubstring("https://127.0.0.1:1")))
	})
	It("are completed", func() {
		got := run("__complete", "coredns", "enable", "a", "")
		Expect(got.out).To(HavePrefix("again\ndead\n"))
	})
})
