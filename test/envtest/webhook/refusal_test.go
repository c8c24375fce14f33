// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("A refused ServiceExport", func() {
	events := func(ctx context.Context, namespace string) []string {
		GinkgoHelper()
		var list eventsv1.EventList
		Expect(k8s.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
		said := []string{}
		for _, e := range list.Items {
			said = append(said, e.Type+" "+e.Reason+" "+e.Regarding.Kind+" "+e.Regarding.Name+" "+e.Action)
		}
		return said
	}

	It("is an event in its namespace, though it is not stored, and none on a dry run", func(ctx SpecContext) {
		namespace := newNamespace(ctx, nil)
		Expect(k8s.Create(ctx, externalName(namespace, "web"))).To(Succeed())
		Expect(k8s.Create(ctx, externalName(namespace, "db"))).To(Succeed())
		err := k8s.Create(ctx, export("v1beta1", namespace, "db"), client.DryRunAll)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		for range 3 {
			err := k8s.Create(ctx, export("v1beta1", namespace, "web"))
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		}
		only := Equal([]string{"Warning PolicyDenied ServiceExport web CREATE"})
		Eventually(events).WithArguments(ctx, namespace).WithTimeout(30 * time.Second).Should(only)
		// That of the dry run would have come before.
		Expect(events(ctx, namespace)).To(only)
	})
})
