// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/comity-mcs/comity/cmd/comity/probe"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
)

func TestClassifyNamesTheStage(t *testing.T) {
	const want = "b in n"
	good := func(ms float64) probe.Result {
		return probe.Result{Status: 200, Body: want, Address: "10.0.0.1:80", Milliseconds: ms}
	}
	for _, test := range []struct {
		name    string
		answers []probe.Result
		passed  bool
		stage   Stage
		message string
	}{
		{"all came", []probe.Result{good(3), good(1), good(2)}, true, "", ""},
		{"no name", []probe.Result{{Error: "cannot resolve verify-1.n.svc.clusterset.local: no such host"}}, false, StageResolve, "no such host"},
		{"no way", []probe.Result{good(1), {Error: "timed out: no answer", Address: ""}}, false, StageConnect, "timed out"},
		{"somebody else", []probe.Result{{Status: 200, Body: "hello"}}, false, StageAnswer, `"hello"; expected "b in n"`},
		{"a server error", []probe.Result{{Status: 503, Body: want, Error: "answers 503"}}, false, StageAnswer, "answers 503"},
		{"nothing", nil, false, StageAnswer, "no request"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := classify(Check{From: "b", To: "a", Family: "IPv4", Stage: StageConnect, Message: "old"}, test.answers, want)
			if got.Passed != test.passed || got.Stage != test.stage || !strings.Contains(got.Message, test.message) {
				t.Errorf("got %+v", got)
			}
			if test.passed && (got.Milliseconds != 2 || got.Message != "") {
				t.Errorf("got %+v, want the median 2 and no message", got)
			}
			if !test.passed && len(test.answers) > 0 && got.Remedy == "" {
				t.Errorf("stage %s has no remedy", got.Stage)
			}
		})
	}
}

func TestOnlyWhatFailedBlocksAFetch(t *testing.T) {
	well, refused := &member{}, &member{failed: errors.New("denied"), failedAt: StageAdmit}
	broken := &member{failed: errors.New("no image"), failedAt: StageCreate}
	for _, test := range []struct {
		name           string
		from, to, want *member
	}{
		{"both are well", well, well, nil},
		{"the export was refused", refused, well, refused},
		{"the importer's own export was refused", well, refused, nil},
		{"the importer has no Pod to fetch with", well, broken, broken},
	} {
		if got := blocking(test.from, test.to); got != test.want {
			t.Errorf("%s: got %+v", test.name, got)
		}
	}
}

func TestPrintShowsATableAndThenTheFailures(t *testing.T) {
	result := Result{Namespace: "n", Clusters: []string{"a", "b"}, Checks: []Check{
		{From: "a", To: "a", Family: "IPv4", Passed: true, Milliseconds: 0.84},
		{From: "a", To: "a", Family: "IPv6", Passed: true, Milliseconds: 1},
		{From: "a", To: "b", Family: "IPv4", Passed: true, Milliseconds: 12.06},
		{From: "a", To: "b", Family: "IPv6", Stage: StageConnect, Message: "timed out", Remedy: "check routes"},
		{From: "b", To: "a", Stage: StageImport, Message: "not imported: there is no ServiceImport", Remedy: "join"},
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

FAILED: b fetching from a over IPv6, at stage Connect: timed out
  check routes

FAILED: a fetching from b, at stage Import: not imported: there is no ServiceImport
  join

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
