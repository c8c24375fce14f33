// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/app"
	tracecmd "github.com/comity-mcs/comity/cmd/kubectl-comity/trace"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
	"github.com/comity-mcs/comity/test/install"
)

// useContexts has kubectl, and the plugin, find the clusters by their ids, as a user's kubeconfig names them.
func useContexts(ctx context.Context) {
	GinkgoHelper()
	kubectl, err := install.Kubectl(ctx)
	Expect(err).NotTo(HaveOccurred())
	bin := GinkgoT().TempDir()
	Expect(os.Symlink(kubectl, filepath.Join(bin, "kubectl"))).To(Succeed())
	GinkgoT().Setenv("PATH", bin+":"+os.Getenv("PATH"))
	kubeconfig := filepath.Join(bin, "kubeconfig")
	Expect(clusters.MergedKubeconfig(kubeconfig, both()...)).To(Succeed())
	GinkgoT().Setenv("KUBECONFIG", kubeconfig)
}

// leads makes the Pod that holds the leader's Lease: the agents are processes.
func leads(ctx context.Context, m *clusterset.Member) {
	GinkgoHelper()
	m.AwaitLeader(ctx)
	lease := clusterset.Get(ctx, m, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: model.LeaderLease}})
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	containers := []corev1.Container{{Name: "comity", Image: "comity:test"}}
	like := agent.Agent{Pod: &corev1.Pod{Spec: corev1.PodSpec{Containers: containers}}}
	pod := like.NewPod(install.Namespace, name, nil, "ok") // as the namespace admits it
	pod.Spec.ServiceAccountName = install.Account
	m.Create(ctx, pod)
	pod.Status.Phase = corev1.PodRunning
	Expect(m.Client.Status().Update(ctx, pod)).To(Succeed())
	_ = m.Client.Create(ctx, deployment(install.Namespace, "comity", map[string]string{"app.kubernetes.io/name": "comity"}, containers))
	scaled := clusterset.Get(ctx, m, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: install.Namespace, Name: "comity"}})
	replicas := *scaled.Spec.Replicas // of which the controller of Deployments would say this
	scaled.Status.Replicas, scaled.Status.ReadyReplicas, scaled.Status.AvailableReplicas = replicas, replicas, replicas
	Expect(m.Client.Status().Update(ctx, scaled)).To(Succeed())
}

// deployment has no replica: nothing runs Pods here.
func deployment(namespace, name string, labels map[string]string, containers []corev1.Container) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{ServiceAccountName: "coredns", Containers: containers}},
	}}
}

// serveZone makes a CoreDNS, and enables it.
func serveZone(ctx context.Context, m *clusterset.Member) {
	GinkgoHelper()
	m.Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "coredns"}, Data: map[string]string{
			"Corefile": ".:53 {\n    kubernetes cluster.local clusterset.local {\n       multicluster clusterset.local\n    }\n    cache 30 {\n       disable success cluster.local clusterset.local\n    }\n}\n"}},
		deployment(metav1.NamespaceSystem, "coredns", map[string]string{"k8s-app": "kube-dns"}, []corev1.Container{{Name: "coredns", Image: "registry.k8s.io/coredns/coredns:v1.12.4"}}))
	sh(ctx, "kubectl --context "+m.ID()+" create clusterrole comity-coredns --verb=list,watch --resource=serviceimports.multicluster.x-k8s.io")
	sh(ctx, "kubectl --context "+m.ID()+" create clusterrolebinding comity-coredns --clusterrole=comity-coredns --serviceaccount=kube-system:coredns")
}

// sh runs a command that was printed, as a user does who pastes it.
func sh(ctx context.Context, line string) {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, "sh", "-c", line).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s: %s", line, out)
}

// plugin runs kubectl comity in this process.
func plugin(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = app.Run(ctx, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errs}, args)
	return code, out.String(), errs.String()
}

// trace runs the command without a connection.
func trace(ctx context.Context, args ...string) tracecmd.Report {
	GinkgoHelper()
	code, out, errs := plugin(ctx, append([]string{"trace", "--no-connect", "-o", "json"}, args...)...)
	var r tracecmd.Report
	Expect(json.Unmarshal([]byte(out), &r)).To(Succeed(), errs)
	Expect(code == 1).To(Equal(r.Broken), "exit code %d of %s", code, out)
	return r
}

// cause is "CHECK in CLUSTER: REASON", or empty.
func cause(r tracecmd.Report) string {
	if r.Cause == nil {
		return ""
	}
	return r.Cause.Check + " in " + r.Cause.Cluster + ": " + r.Cause.Reason
}

// fix pastes the command of the cause; one of the plugin itself runs in this process.
func fix(ctx context.Context, r tracecmd.Report) {
	GinkgoHelper()
	Expect(r.Cause).NotTo(BeNil())
	if own, is := strings.CutPrefix(r.Cause.Fix, "kubectl comity "); is {
		code, out, errs := plugin(ctx, strings.Fields(own)...)
		Expect(code).To(BeZero(), "%s: %s%s", r.Cause.Fix, out, errs)
		return
	}
	sh(ctx, r.Cause.Fix)
}

// exported makes a Service that a exports and b imports, in a namespace of both.
func exported(ctx context.Context, namespace string) {
	GinkgoHelper()
	for _, m := range both() {
		m.AwaitReady(ctx)
		m.Create(ctx, clusterset.Namespace(namespace))
		DeferCleanup(func(ctx SpecContext) {
			Expect(m.Client.DeleteAllOf(ctx, clusterset.Export("", ""), client.InNamespace(namespace))).To(Succeed())
		}, NodeTimeout(time.Minute))
	}
	a.Create(ctx, clusterset.Service(namespace, "web"), clusterset.Endpoints(namespace, "web", "web-x", 8080, "10.91.0.1", "10.91.0.2"), clusterset.Export(namespace, "web"))
}
