// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/comity-mcs/comity/cmd/comity/probe"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
)

const (
	// requests is how many a latency is the median of.
	requests = 3
	// requestTimeout bounds each of them.
	requestTimeout = 3 * time.Second
	// retryInterval is the pause after requests that failed: kube-proxy and
	// CoreDNS follow an import within a second or so.
	retryInterval = 2 * time.Second
)

// check fetches what from exports until it works or ctx ends, once for each IP
// family that both clusters have.
func (m *member) check(ctx context.Context, from *member) []Check {
	failed := func(stage Stage, message string) []Check {
		return []Check{{From: from.id(), To: m.id(), Stage: stage, Message: message, Remedy: remedies[stage]}}
	}
	if side := blocking(from, m); side != nil {
		return failed(side.failedAt, side.failed.Error())
	}
	if err := m.awaitImport(ctx, from); err != nil {
		// The deadline is over, and the reason still has to be read.
		reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		stage, why := from.exportProblem(reading)
		if why != "" {
			why = "; in the exporting cluster: " + why
		}
		return failed(stage, err.Error()+why)
	}
	var checks []Check
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		if slices.Contains(from.families, family) && slices.Contains(m.families, family) {
			checks = append(checks, m.fetch(ctx, from, Check{From: from.id(), To: m.id(), Family: string(family)}))
		}
	}
	if len(checks) == 0 {
		return failed(StageConnect, fmt.Sprintf("the clusters have no IP family in common: %v and %v", from.families, m.families))
	}
	return checks
}

// blocking is the side for which nothing can be fetched, if there is one. A
// cluster whose own export was refused can fetch from others all the same.
func blocking(from, to *member) *member {
	if from.failed != nil {
		return from
	}
	if to.failed != nil && to.failedAt == StageCreate {
		return to
	}
	return nil
}

// fetch repeats one check until it passes.
func (m *member) fetch(ctx context.Context, from *member, c Check) Check {
	c.Stage, c.Message = StageConnect, "the time was over before a request was made; give more with --timeout"
	_ = wait.PollUntilContextCancel(ctx, retryInterval, true, func(ctx context.Context) (bool, error) {
		// A request under way is let end, so that what it found out is reported.
		requesting, cancel := context.WithTimeout(context.WithoutCancel(ctx), (requests+2)*requestTimeout)
		defer cancel()
		answers, err := m.request(requesting, from, c.Family)
		if err != nil {
			c.Message = err.Error()
			return false, nil
		}
		c = classify(c, answers, answerOf(from.id(), from.namespace))
		return c.Passed, nil
	})
	return c
}

// request fetches what from exports with this cluster's Pod.
func (m *member) request(ctx context.Context, from *member, family string) ([]probe.Result, error) {
	fetcher := agent.Agent{Pod: m.pod}
	url := fmt.Sprintf("http://%s.%s.svc.clusterset.local/", from.service, from.namespace)
	response, err := agent.Probe(ctx, m.target, fetcher, probe.Request{
		URLs: slices.Repeat([]string{url}, requests), Family: family, TimeoutSeconds: int(requestTimeout.Seconds()),
	})
	return response.URLs, err
}

// classify says by the answers how far the requests came.
func classify(c Check, answers []probe.Result, want string) Check {
	c = Check{From: c.From, To: c.To, Family: c.Family, Stage: StageAnswer, Message: "no request was made"}
	var times []float64
	for _, answer := range answers {
		c.Address = answer.Address
		switch {
		case strings.HasPrefix(answer.Error, "cannot resolve"):
			c.Stage, c.Message = StageResolve, answer.Error
		case answer.Error != "" && answer.Status == 0:
			c.Stage, c.Message = StageConnect, answer.Error
		case answer.Error != "":
			c.Message = answer.Error
		case answer.Body != want:
			c.Message = fmt.Sprintf("the answer is %q; expected %q", answer.Body, want)
		default:
			times = append(times, answer.Milliseconds)
			continue
		}
		c.Remedy = remedies[c.Stage]
		return c
	}
	if len(times) == 0 {
		return c
	}
	slices.Sort(times)
	c.Passed, c.Stage, c.Message, c.Milliseconds = true, "", "", times[len(times)/2]
	return c
}

// remedies are what to do about a failure at each stage.
var remedies = map[Stage]string{
	StageCreate:  "see the events of the namespace while kubectl comity verify runs",
	StageAdmit:   "do what the policy says, or change the policy; kubectl get exportpolicies lists them",
	StageImport:  "run kubectl comity status with both contexts; kubectl comity join repairs what is missing between them",
	StageResolve: "run kubectl comity coredns enable in the cluster that fetches",
	StageConnect: "Pods of one cluster must reach those of the other at their own addresses; check routes, firewalls and network policies",
	StageAnswer:  "something else answers at that address; check for overlapping Pod ranges",
}
