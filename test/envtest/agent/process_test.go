// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/test/install"
)

// expireLease does for a test what seconds do for the lease of an agent that was killed.
func (m *member) expireLease(ctx context.Context) {
	GinkgoHelper()
	m.remove(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: lease}})
}

// holder is who leads in m; empty if nobody does.
func (m *member) holder(ctx context.Context) string {
	l := &coordinationv1.Lease{}
	if err := m.client.Get(ctx, types.NamespacedName{Namespace: install.Namespace, Name: lease}, l); err != nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// unguard takes the webhooks of one resource away until the spec ends.
func unguard(ctx context.Context, m *member, resource string) {
	GinkgoHelper()
	config := &admissionv1.ValidatingWebhookConfiguration{}
	Expect(m.client.Get(ctx, types.NamespacedName{Name: "comity"}, config)).To(Succeed())
	guarded := config.DeepCopy()
	kept := config.Webhooks[:0]
	for _, hook := range config.Webhooks {
		if hook.Rules[0].Resources[0] != resource {
			kept = append(kept, hook)
		}
	}
	Expect(kept).To(HaveLen(len(guarded.Webhooks) - 1))
	config.Webhooks = kept
	Expect(m.client.Update(ctx, config)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(m.client.Get(ctx, types.NamespacedName{Name: "comity"}, config)).To(Succeed())
		config.Webhooks = guarded.Webhooks
		Expect(m.client.Update(ctx, config)).To(Succeed())
	})
}

var _ = Describe("The program", func() {
	It("refuses a cluster id that is no RFC 1123 label with one line and exit code 1", func(ctx SpecContext) {
		for _, id := range []string{"Cluster_1", "a.b", "-a", strings.Repeat("a", 64)} {
			var stderr bytes.Buffer
			cmd := exec.CommandContext(ctx, binary, "--cluster-id", id, "--clusterset", clusterset)
			cmd.Stderr = &stderr
			var exit *exec.ExitError
			Expect(errors.As(cmd.Run(), &exit)).To(BeTrue(), "it ends with %q", id)
			Expect(exit.ExitCode()).To(Equal(1))
			said := strings.TrimSuffix(stderr.String(), "\n")
			Expect(said).To(And(HavePrefix("comity: --cluster-id: "), ContainSubstring(id), ContainSubstring("RFC 1123"),
				ContainSubstring("choose another id"), Not(ContainSubstring("\n"))))
		}
	})

	It("serves its metrics by TLS where it does not lead, ends cleanly when asked, and the next leader takes over at once", func(ctx SpecContext) {
		c := members["c"]
		first := c.holder(ctx)
		Expect(first).NotTo(BeEmpty())
		standby, err := install.Replica(c.target(), binary, "--metrics-secure=true")
		Expect(err).NotTo(HaveOccurred())
		Expect(standby.Start()).To(Succeed())
		// One that is killed would count as a replica for 70 s, and then change the status of the policies.
		DeferCleanup(func() { Expect(standby.Stop()).To(Succeed()) })
		Expect(standby.WaitReady(ctx, ready)).To(Succeed())
		log := filepath.Join(c.dir, "comity-replica.log")
		Eventually(logged(log, "Attempting to acquire leader lease")).ShouldNot(BeEmpty())
		c.expectAuthentication(ctx, standby)

		asked := time.Now()
		Expect(c.agent.Stop()).To(Succeed())
		Expect(time.Since(asked)).To(BeNumerically("<", 9*time.Second), "the first one ends")
		Expect(c.holder(ctx)).NotTo(Equal(first), "it released the lease")
		Eventually(func() string { return c.holder(ctx) }).ShouldNot(BeEmpty())
		AddReportEntry("the next leader took over after", time.Since(asked).Round(time.Millisecond).String())

		// What is asked to end while its caches fill says so as errors.
		for _, loop := range loops {
			Eventually(logged(log, `"Starting workers"`, fmt.Sprintf(`"controller":%q`, loop))).ShouldNot(BeEmpty())
		}
		Expect(c.agent.Start()).To(Succeed())
		Expect(c.agent.WaitReady(ctx, ready)).To(Succeed())
		asked = time.Now()
		Expect(standby.Stop()).To(Succeed())
		Expect(time.Since(asked)).To(BeNumerically("<", 9*time.Second), "the second one ends")
		Expect(standby.WaitReady(ctx, ready)).To(MatchError(ContainSubstring("exit status 0")))
		Expect(errorsIn(log)).To(BeEmpty())
		Eventually(c.notConverged).WithTimeout(ready).Should(Succeed())
		everythingElseWorks(ctx)
	})
})

// undefine deletes definitions and waits until they are gone.
func (m *member) undefine(ctx context.Context, names ...string) {
	GinkgoHelper()
	definitions := runtime.NewScheme()
	Expect(apiextensionsv1.AddToScheme(definitions)).To(Succeed())
	direct, err := client.New(m.RESTConfig(), client.Options{Scheme: definitions})
	Expect(err).NotTo(HaveOccurred())
	for _, name := range names {
		Expect(direct.Delete(ctx, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	}
	for _, name := range names {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		Eventually(func() bool {
			return apierrors.IsNotFound(direct.Get(ctx, client.ObjectKey{Name: name}, definition))
		}).WithTimeout(2*time.Minute).Should(BeTrue(), "%s is gone", name) // the API server waits for its own watches
	}
}

// errorsIn are the lines of a log that tell of an error, but for those that are written
// about every lease that is released, about a renewal or a write that the end interrupts, and
// about a token that is none.
func errorsIn(log string) []string {
	GinkgoHelper()
	return slices.DeleteFunc(logged(log, `"level":"error"`)(Default), func(line string) bool {
		return strings.Contains(line, `"error":"leader election lost"`) || strings.Contains(line, `"error":"invalid bearer token"`) ||
			(strings.Contains(line, `"logger":"leaderelection"`) || strings.Contains(line, `"msg":"Reconciler error"`)) && strings.Contains(line, "context canceled")
	})
}
