// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
)

func TestWhetherTheZoneIsServedIsReadWhereItsOwnerKeepsIt(t *testing.T) {
	const plain = ".:53 {\n    kubernetes cluster.local {\n        pods insecure\n    }\n}\n"
	config := func(data string) *corev1.ConfigMap { return &corev1.ConfigMap{Data: map[string]string{"x": data}} }
	for _, test := range []struct {
		name     string
		set      func(*found)
		served   bool
		severity finding.Severity
		fix      string
	}{
		{"kubeadm's without the zone", func(*found) {}, false, finding.Error, "kubectl comity coredns enable prod"},
		{"kubeadm's with the zone", func(f *found) {
			f.config.Data[configKey] = strings.Replace(plain, "cluster.local {", "cluster.local clusterset.local {\n        multicluster clusterset.local", 1)
		}, true, "", ""},
		{"one that cannot be read", func(f *found) { f.config.Data[configKey] = "}" }, false, finding.Error, "kubectl --context prod -n kube-system edit configmap coredns"},
		{"AKS without the zone", func(f *found) { f.custom = config("") }, false, finding.Error, "coredns-custom"},
		{"AKS with the zone", func(f *found) { f.custom = config("clusterset.local:53 {") }, true, "", ""},
		{"GKE without the zone", func(f *found) { *f = found{kubeDNS: true, stubs: config("")} }, false, finding.Error, "kube-dns (as on GKE)"},
		{"GKE with the zone", func(f *found) { *f = found{kubeDNS: true, stubs: config(`{"clusterset.local":["10.8.0.53"]}`)} }, true, "", ""},
		{"a DNS in no known place", func(f *found) { *f = found{} }, false, finding.Warning, "there is no ConfigMap kube-system/coredns"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := corednsOf("registry.k8s.io/coredns/coredns:v1.12.4", plain)
			test.set(&f)
			served, problem := f.zone()
			if served != test.served {
				t.Errorf("served: %v", served)
			}
			if !served && (problem.Severity != test.severity || !strings.Contains(problem.Fix, test.fix) || problem.Message == "") {
				t.Errorf("got %+v", problem)
			}
		})
	}
}
