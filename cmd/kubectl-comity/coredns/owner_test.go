// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

func corednsOf(image, corefile string) found {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "coredns"}}
	d.Spec.Template.Spec = corev1.PodSpec{ServiceAccountName: "coredns", Containers: []corev1.Container{{Name: "coredns", Image: image}}}
	return found{Target: &command.Target{Context: "prod"}, config: &corev1.ConfigMap{Data: map[string]string{configKey: corefile}}, deployment: d}
}

func TestRefusalNamesTheOwnerAndTheRemedy(t *testing.T) {
	plain := ".:53 {\n    kubernetes cluster.local\n}\n"
	for _, test := range []struct {
		name string
		set  func(*found)
		want []string
	}{
		{"kubeadm's may be changed", func(*found) {}, nil},
		{"GKE", func(f *found) { *f = found{kubeDNS: true} }, []string{"kube-dns", "coredns.md#google-gke"}},
		{"nothing in the known place", func(f *found) { *f = found{} }, []string{"no ConfigMap kube-system/coredns", "coredns.md#two-things-in-every-recipe"}},
		{"no key Corefile", func(f *found) { f.config.Data = nil }, []string{"with a key Corefile"}},
		{"AKS", func(f *found) { f.custom = &corev1.ConfigMap{} }, []string{"Azure", "coredns-custom", "coredns.md#azure-aks-k3s"}},
		{"k3s, before coredns-custom is made", func(f *found) {
			f.config.Data[configKey] = plain + "import /etc/coredns/custom/*.server\n"
		}, []string{"k3s", "owns the Corefile"}},
		{"an EKS add-on", func(f *found) {
			f.config.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "eks", Operation: metav1.ManagedFieldsOperationApply}}
		}, []string{"Amazon EKS", "coredns.md#amazon-eks"}},
		{"EKS without the add-on may be changed", func(f *found) {
			f.config.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "eks", Operation: metav1.ManagedFieldsOperationUpdate}}
		}, nil},
		{"kOps", func(f *found) { f.config.Labels = map[string]string{"addon.kops.k8s.io/name": "coredns.addons.k8s.io"} }, []string{"kOps", "coredns.md#kops-and-add-on-managers"}},
		{"an add-on manager", func(f *found) { f.config.Labels = map[string]string{"addonmanager.kubernetes.io/mode": "Reconcile"} }, []string{"add-on manager", "coredns.md#kops-and-add-on-managers"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := corednsOf("registry.k8s.io/coredns/coredns:v1.12.4", plain)
			test.set(&f)
			why, recipe := f.owner()
			got := why + recipe
			if (got == "") != (len(test.want) == 0) {
				t.Errorf("refusal %q", got)
			}
			for _, want := range test.want {
				if !strings.Contains(got, want) {
					t.Errorf("refusal %q lacks %q", got, want)
				}
			}
		})
	}
}

func TestCheckVersion(t *testing.T) {
	for _, test := range []struct{ image, given, want string }{
		{"registry.k8s.io/coredns/coredns:v1.12.2", "", ""},
		{"registry.k8s.io/coredns/coredns:v1.14.0", "", ""},
		{"localhost:5000/coredns:1.13.1-eksbuild.2", "", ""},
		{"coredns/coredns:1.12.4@sha256:0123", "", ""},
		{"registry.k8s.io/coredns/coredns:v1.12.1", "", "CoreDNS is 1.12.1 (image registry.k8s.io/coredns/coredns:v1.12.1)|set image deployment/coredns coredns=registry.k8s.io/coredns/coredns:v1.12.4"},
		{"602401143452.dkr.ecr.eu-west-1.amazonaws.com/eks/coredns:v1.11.4-eksbuild.2", "", "CoreDNS is 1.11.4"},
		{"localhost:5000/coredns@sha256:0123", "", "--coredns-version"},
		{"coredns:latest", "", "--coredns-version"},
		{"coredns:latest", "1.12.4", ""},
		{"coredns:latest", "v1.9.3", "CoreDNS is 1.9.3"},
	} {
		problem := corednsOf(test.image, "").outdated(test.given)
		if (problem.Reason == "") != (test.want == "") {
			t.Errorf("%s: %v", test.image, problem)
		}
		for want := range strings.SplitSeq(test.want, "|") {
			if text := problem.Message + problem.Fix; !strings.Contains(text, want) {
				t.Errorf("%s: %q lacks %q", test.image, text, want)
			}
		}
	}
}
