// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package clusters_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
)

func start(t *testing.T, options controlplane.Options) []*controlplane.Cluster {
	t.Helper()
	set, err := controlplane.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := controlplane.Close(set); err != nil {
			t.Error(err)
		}
	})
	return set
}

func TestADualStackClusterGivesPodsAndServicesBothFamilies(t *testing.T) {
	c := start(t, controlplane.Options{IDs: []string{"d"}, FirstNetwork: 9, Family: clusters.DualStack, Nodes: 1})[0]
	typed := client(t, c)
	dual := corev1.IPFamilyPolicyRequireDualStack
	s := service("web", webLabels, "")
	s.Spec.IPFamilyPolicy = &dual
	s, err := typed.CoreV1().Services("default").Create(t.Context(), s, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	template := podTemplate(webLabels)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: webLabels}, Spec: template.Spec}
	if _, err := typed.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, func(ctx context.Context) (err error) {
		if pod, err = typed.CoreV1().Pods("default").Get(ctx, "web", metav1.GetOptions{}); err == nil && len(pod.Status.PodIPs) != 2 {
			err = fmt.Errorf("the Pod has addresses %v, want two", pod.Status.PodIPs)
		}
		return err
	})
	for i := range 2 {
		if ip := netip.MustParseAddr(pod.Status.PodIPs[i].IP); !c.Network().PodCIDRs[i].Contains(ip) {
			t.Errorf("Pod address %v is outside of %v", ip, c.Network().PodCIDRs[i])
		}
		if ip := netip.MustParseAddr(s.Spec.ClusterIPs[i]); !c.Network().ServiceCIDRs[i].Contains(ip) {
			t.Errorf("Service address %v is outside of %v", ip, c.Network().ServiceCIDRs[i])
		}
	}
}

func TestAnAPIServerAloneServesTheMCSAPI(t *testing.T) {
	c := start(t, controlplane.Options{IDs: []string{"member-1"}, APIServerOnly: true})[0]
	if c.DNSAddress() != "" || c.PID(controlplane.Scheduler) != 0 || c.PID(controlplane.Etcd) == 0 {
		t.Error("it must run etcd and kube-apiserver, and nothing else")
	}
	resources, err := client(t, c).Discovery().ServerResourcesForGroupVersion("multicluster.x-k8s.io/v1alpha1")
	if err != nil || len(resources.APIResources) == 0 {
		t.Errorf("v1alpha1, which CoreDNS reads, has %v, %v", resources, err)
	}
}

func TestAComponentThatDoesNotStartIsNamedWithItsLogAndNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	_, err := controlplane.Start(t.Context(), controlplane.Options{
		IDs: []string{"a"}, Dir: dir, APIServerOnly: true, APIServerArgs: []string{"--no-such-flag"},
	})
	if err == nil {
		t.Fatal("it started")
	}
	for _, want := range []string{"start cluster a", "kube-apiserver ended before it was ready", "unknown flag: --no-such-flag"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range processes {
		if text, err := os.ReadFile(name); err == nil && strings.Contains(string(text), "--data-dir="+dir) {
			t.Errorf("%s still runs: %q", name, text)
		}
	}
}
