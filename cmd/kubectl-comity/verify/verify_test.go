// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/comity-mcs/comity/cmd/comity/probe"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/trace"
	"github.com/comity-mcs/comity/sync/model"
)

func TestACheckPassesIfTheAnswerIsRight(t *testing.T) {
	const want = "b in n"
	for _, test := range []struct {
		name    string
		answer  probe.Result
		message string // empty if it passes
	}{
		{"it came", probe.Result{Status: 200, Body: want, Address: "10.0.0.1:80", Milliseconds: 2}, ""},
		{"no name", probe.Result{Error: "cannot resolve verify-1.n.svc.clusterset.local: no such host"}, "no such host"},
		{"somebody else", probe.Result{Status: 200, Body: "hello"}, `"hello"; expected "b in n"`},
		{"a server error", probe.Result{Status: 503, Body: want, Error: "answers 503"}, "answers 503"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := measured(Check{From: "b", To: "a", Family: "IPv4", Message: "old"}, test.answer, want)
			if got.Passed != (test.message == "") || !strings.Contains(got.Message, test.message) || got.Passed && (got.Milliseconds != 2 || got.Message != "") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestACheckThatFailsSaysWhy(t *testing.T) {
	ended, cancel := context.WithDeadline(context.Background(), time.Now())
	defer cancel()
	of := func(id string, pod *corev1.Pod, err error) *member {
		target := &command.Target{Context: id, Client: fake.NewClientBuilder().WithScheme(command.NewScheme()).Build()}
		running := agent.Agent{AgentInfo: model.AgentInfo{ID: model.ClusterID(id)}, Pod: &corev1.Pod{}}
		return &member{Site: &agent.Site{Context: id, Target: target, Agent: running}, pod: pod, namespace: "n", service: "verify-" + id, failed: err}
	}
	pod := &corev1.Pod{}
	well, refused, broken := of("a", pod, nil), of("b", pod, errors.New("denied")), of("c", nil, errors.New("no image"))
	for _, test := range []struct {
		name          string
		from, to      *member
		message, step string
	}{
		{"nothing is imported", well, well, "it is not imported", "ServiceExport"},
		{"the export was refused", refused, well, "denied", ""},
		{"the importer's own export was refused", well, refused, "it is not imported", "ServiceExport"},
		{"the importer has no Pod to fetch with", well, broken, "no image", ""},
	} {
		got := test.to.check(ended, test.from)
		if len(got) != 1 || got[0].Passed || got[0].Message != test.message || (got[0].Cause == nil) != (test.step == "") {
			t.Fatalf("%s: got %+v", test.name, got)
		}
		if cause := got[0].Cause; cause != nil && (cause.Check != test.step || cause.Cluster != "a") {
			t.Errorf("%s: the cause is %+v", test.name, cause)
		}
	}
}

func TestPrintShowsATableAndThenTheFailures(t *testing.T) {
	result := Result{Namespace: "n", Checks: []Check{
		{From: "a", To: "a", Family: "IPv4", Passed: true, Milliseconds: 0.84},
		{From: "a", To: "a", Family: "IPv6", Passed: true, Milliseconds: 1},
		{From: "a", To: "b", Family: "IPv4", Passed: true, Milliseconds: 12.06},
		{From: "a", To: "b", Family: "IPv6", Message: "timed out", Cause: &trace.Step{Finding: finding.Finding{Check: "Connection", Cluster: "b", Reason: "NotRouted", Message: "0 of 1", Fix: "check routes"}}},
		{From: "b", To: "a", Message: "denied"},
		{From: "b", To: "b", Family: "IPv4", Passed: true, Milliseconds: 2},
		{From: "b", To: "b", Family: "IPv6", Passed: true, Milliseconds: 2},
	}, LeftBehind: []string{"namespace n in context \"b\""}}
	const want = `
FROM   TO   FAMILY   TIME
a      a    IPv4     0.8 ms
a      a    IPv6     1.0 ms
a      b    IPv4     12.1 ms
a      b    IPv6     FAILED
b      a    -        FAILED
b      b    IPv4     2.0 ms
b      b    IPv6     2.0 ms

FAILED: b fetching from a over IPv6: timed out
  b: Connection (NotRouted): 0 of 1
  fix:  check routes

FAILED: a fetching from b: denied

LEFT BEHIND: namespace n in context "b"
`
	var out bytes.Buffer
	show(&out, result)
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestThePodRunsWhereTheAgentDoesWithinTheRestrictedProfile(t *testing.T) {
	image := corev1.Container{Name: "comity", Image: "registry.example/comity:v1", ImagePullPolicy: corev1.PullAlways}
	like := agent.Agent{Pod: &corev1.Pod{Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "sidecar"}, image}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
		Tolerations: []corev1.Toleration{{Key: "arch"}}, NodeSelector: map[string]string{"kubernetes.io/os": "linux"},
	}}}
	pod := like.NewPod("n", "p", nil, "x")
	c := pod.Spec.Containers[0]
	if c.Image != image.Image || c.ImagePullPolicy != corev1.PullAlways || len(pod.Spec.Tolerations) != 1 || pod.Spec.NodeSelector["kubernetes.io/os"] != "linux" || len(pod.Spec.ImagePullSecrets) != 1 {
		t.Errorf("Pod %+v", pod.Spec)
	}
	if *pod.Spec.AutomountServiceAccountToken || !*pod.Spec.SecurityContext.RunAsNonRoot || *c.SecurityContext.AllowPrivilegeEscalation || !*c.SecurityContext.ReadOnlyRootFilesystem {
		t.Errorf("the Pod has rights that it does not need: %+v", pod.Spec)
	}
	if newNamespace("n").Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
		t.Error("the namespace does not enforce the restricted profile")
	}
}

func TestARemovalThatIsForbiddenLaterSaysSo(t *testing.T) {
	deleted := 0
	api := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
			if deleted++; deleted == 1 {
				return nil // it is accepted, and the namespace ends later
			}
			return apierrors.NewForbidden(corev1.Resource("namespaces"), o.GetName(), errors.New("no right"))
		},
	}).Build()
	m := &member{Site: &agent.Site{Target: &command.Target{Context: "a", Client: api}}, namespace: "comity-verify-x"}
	err := m.remove(t.Context())
	if !apierrors.IsForbidden(err) || deleted != 2 || !strings.Contains(err.Error(), `context "a": delete namespace comity-verify-x`) {
		t.Errorf("got %v after %d requests, want the refusal of the second one", err, deleted)
	}
}
