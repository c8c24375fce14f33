// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
	"github.com/comity-mcs/comity/test/install"
)

// undefine deletes all of Comity's definitions in m, with every object of theirs.
func undefine(ctx context.Context, m *clusterset.Member) {
	GinkgoHelper()
	ours := func() (out []apiextensionsv1.CustomResourceDefinition) {
		var list apiextensionsv1.CustomResourceDefinitionList
		Expect(m.Client.List(ctx, &list)).To(Succeed())
		for _, definition := range list.Items {
			if strings.HasSuffix(definition.Spec.Group, "comity.dev") {
				out = append(out, definition)
			}
		}
		return out
	}
	for _, definition := range ours() {
		Expect(m.Client.Delete(ctx, &definition)).To(Succeed())
	}
	// The API server waits for its own watches.
	Eventually(ctx, ours).WithTimeout(2*time.Minute).Should(BeEmpty(), "no object hangs on a finalizer")
}

// finalizers are those of all that Comity made in a namespace of m.
func finalizers(ctx context.Context, m *clusterset.Member, ns string) (out []string) {
	GinkgoHelper()
	for _, list := range []client.ObjectList{&mcsv1beta1.ServiceImportList{}, &mcsv1beta1.ServiceExportList{}, &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}} {
		Expect(m.Client.List(ctx, list, client.InNamespace(ns))).To(Succeed())
		Expect(meta.EachListItem(list, func(o runtime.Object) error {
			out = append(out, o.(client.Object).GetFinalizers()...)
			return nil
		})).To(Succeed())
	}
	return out
}

var _ = Describe("FAULT 41 and 51: all that Comity has in a cluster is deleted,", func() {
	const ns = "deleted"
	It("and what is imported stays; once it is installed and joined again everything follows", func(ctx SpecContext) {
		setUp(ctx, ns)
		for _, m := range both() {
			keepIfLost(ctx, m, ns)
		}
		afterFailure(func(ctx context.Context) {
			a.Reinstall(ctx)
			set.Join(ctx, "a", "b")
		})
		for i := range 3 {
			exportOne(ctx, b, ns, fmt.Sprintf("web-%d", i), 8080, fmt.Sprintf("10.88.0.%d", i+1))
		}
		exportOne(ctx, a, ns, "web-0", 8080, "10.88.1.1")
		Eventually(ctx, func() []string { return a.AllBackends(ctx, ns) }).Should(HaveLen(4))
		Eventually(ctx, func() []string { return b.AllBackends(ctx, ns) }).Should(HaveLen(4))
		whole, before := a.AllBackends(ctx, ns), addresses(ctx, a, ns)
		stays := func(while string) {
			GinkgoHelper()
			kept(ctx, a, ns, whole, while)
			Expect(addresses(ctx, a, ns)).To(Equal(before), while)
			Expect(b.AllBackends(ctx, ns)).To(Equal(whole), "%s, in b", while)
		}
		By("deleting the Peers, while the agent runs and when it starts")
		Expect(a.Client.DeleteAllOf(ctx, &exchangev1alpha1.Peer{})).To(Succeed())
		stays("its Peers are deleted")
		a.KillAgent(ctx)
		a.AwaitLeader(ctx)
		stays("it started without Peers")
		By("deleting the Secrets, the definitions, and then the namespace")
		Expect(a.Client.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(install.Namespace))).To(Succeed())
		stays("its Secrets are deleted")
		undefine(ctx, a)
		stays("its definitions are deleted")
		deleteNamespace(ctx, a, install.Namespace)
		stays("its namespace is deleted")
		Expect(finalizers(ctx, a, ns)).To(BeEmpty())

		By("installing Comity again, without its Peers")
		a.Reinstall(ctx)
		stays("it does not know its peers")
		a.KillAgent(ctx)
		a.AwaitReady(ctx)
		stays("after a restart")
		By("joining again")
		set.Join(ctx, "a", "b")
		change(ctx, b, ns, "web-1", "10.88.0.9")
		Eventually(ctx, a.Backends(ns, "web-1")).WithTimeout(nextTry).Should(Equal([]string{"b/10.88.0.9"}))
		change(ctx, a, ns, "web-0", "10.88.1.9")
		Eventually(ctx, b.Backends(ns, "web-0")).WithTimeout(nextTry).Should(Equal([]string{"a/10.88.1.9", "b/10.88.0.1"}))
		withdraw(ctx, ns, "web-2")
		Eventually(ctx, a.Backends(ns, "web-2")).Should(BeEmpty())
		Eventually(ctx, held(a, ns)).Should(BeEmpty())
		Eventually(ctx, held(b, ns)).Should(BeEmpty())
	}, SpecTimeout(5*time.Minute))
})
