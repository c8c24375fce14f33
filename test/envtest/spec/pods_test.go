// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

// pod is one that listens on 8080, of app.
func pod(ns, app, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "none", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		}}},
	}
}

// selecting is a Service of the pods of app of the same name, with these families.
func selecting(ns, name string, families ...corev1.IPFamily) *corev1.Service {
	s := clusterset.Service(ns, name)
	s.Spec.Selector = map[string]string{"app": name}
	if len(families) > 0 {
		s.Spec.IPFamilies = families
		s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	}
	if len(families) > 1 {
		s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	}
	return s
}

// addresses are those of the running pods of an app, of both families, sorted.
func addresses(ctx context.Context, m *clusterset.Member, ns, app string, pods int) []string {
	GinkgoHelper()
	var out []string
	Eventually(ctx, func(g Gomega) {
		var list corev1.PodList
		g.Expect(m.Client.List(ctx, &list, client.InNamespace(ns), client.MatchingLabels{"app": app})).To(Succeed())
		g.Expect(list.Items).To(HaveLen(pods))
		out = nil
		for _, p := range list.Items {
			g.Expect(p.Status.PodIPs).NotTo(BeEmpty(), "pod %s", p.Name)
			for _, ip := range p.Status.PodIPs {
				out = append(out, ip.IP)
			}
		}
	}).Should(Succeed())
	slices.Sort(out)
	return out
}

func key(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }
