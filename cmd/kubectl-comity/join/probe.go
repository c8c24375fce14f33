// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/utils/net"

	"github.com/comity-mcs/comity/cmd/comity/probe"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join"
)

// Prober checks from inside a cluster what it reaches: agent.Probe, save in tests.
type Prober func(ctx context.Context, target *command.Target, from agent.Agent, request probe.Request) ([]probe.Result, error)

// reach asks each member what it reaches of the others, and sets the address of
// every route. The error lists everything that cannot be reached.
type reach struct {
	env      *command.Env
	prepared *join.Prepared
	sites    []*agent.Site
	probe    Prober
}

func (r reach) run(ctx context.Context) error {
	var problems []string
	for _, s := range r.sites {
		if pod := s.Agent.Pod; len(pod.Status.PodIPs) == 0 {
			return s.Target.Errorf("Pod %s/%s has no address yet; wait until it is ready and repeat the command", pod.Namespace, pod.Name)
		}
		failed, err := r.from(ctx, s)
		if err != nil {
			return err
		}
		problems = append(problems, failed...)
	}
	if len(problems) > 0 {
		return fmt.Errorf("clusters do not reach each other, so nothing was written:\n  %s", strings.Join(problems, "\n  "))
	}
	return nil
}

// from probes everything that s needs to reach, and gives what it does not reach.
func (r reach) from(ctx context.Context, s *agent.Site) (problems []string, err error) {
	var request probe.Request
	// checks judge the results of the request, each those that it asked for.
	var checks []func([]probe.Result) string
	for _, route := range r.prepared.Routes() {
		if route.Holder != s.Agent.ID {
			continue
		}
		candidates, err := r.prepared.Candidates(ctx, route)
		if err != nil {
			return nil, err
		}
		first := len(request.Targets)
		for _, c := range candidates {
			request.Targets = append(request.Targets, probe.Target{Target: c.Server, CA: c.CAData})
		}
		checks = append(checks, func(all []probe.Result) string { return r.chooseServer(route, candidates, all[first:]) })
	}
	for _, other := range r.sites {
		if other.Agent.ID == s.Agent.ID {
			continue
		}
		for _, url := range healthURLs(other.Agent, s.Agent) {
			at := len(request.Targets)
			request.Targets = append(request.Targets, probe.Target{Target: url})
			checks = append(checks, func(all []probe.Result) string { return r.checkPod(s, other, all[at]) })
		}
	}
	r.env.Printf("Checking from inside cluster %s (Pod %s/%s) what it reaches\n", s.Agent.ID, s.Agent.Namespace, s.Agent.Pod.Name)
	results, err := r.probe(ctx, s.Target, s.Agent, request)
	if err != nil {
		return nil, err
	}
	for _, check := range checks {
		if problem := check(results); problem != "" {
			problems = append(problems, problem)
		}
	}
	return problems, nil
}

// chooseServer takes for a route the first address that answered.
func (r reach) chooseServer(route join.Route, candidates []join.Address, results []probe.Result) (problem string) {
	peer := "cluster " + string(route.Peer)
	if route.Peer == join.HubID {
		peer = "the hub"
	}
	var tried []string
	for i, c := range candidates {
		if results[i].Error == "" {
			r.prepared.Use(route, c)
			r.env.Printf("  the API server of %s at %s (%s)\n", peer, c.Server, c.Source)
			return ""
		}
		tried = append(tried, fmt.Sprintf("%s (%s): %s", c.Server, c.Source, results[i].Error))
	}
	return fmt.Sprintf("cluster %s does not reach the API server of %s; tried %s; pass an address that Pods of cluster %s reach as --server %s=https://HOST:PORT, with --ca %s=FILE if needed",
		route.Holder, peer, strings.Join(tried, ", "), route.Holder, route.Peer, route.Peer)
}

// checkPod demands that an address of another agent's Pod answers.
func (r reach) checkPod(s, other *agent.Site, result probe.Result) (problem string) {
	if result.Error == "" {
		r.env.Printf("  Pods of cluster %s, such as %s\n", other.Agent.ID, result.Target)
		return ""
	}
	return fmt.Sprintf("cluster %s does not reach Pods of cluster %s; tried the agent's Pod %s/%s at %s: %s; route the Pod ranges between the clusters, "+
		"and allow them in firewalls and network policies",
		s.Agent.ID, other.Agent.ID, other.Agent.Namespace, other.Agent.Pod.Name, result.Target, result.Error)
}

// healthURLs answer 200 while the process of agent a lives: at the addresses of its Pod, in
// the families that the Pod of from has too.
func healthURLs(a, from agent.Agent) (urls []string) {
	port := "8081"
	for _, p := range a.Container().Ports {
		if p.Name == "health" {
			port = strconv.Itoa(int(p.ContainerPort))
		}
	}
	for _, address := range a.Pod.Status.PodIPs {
		isSame := func(own corev1.PodIP) bool { return utilnet.IsIPv6String(own.IP) == utilnet.IsIPv6String(address.IP) }
		if slices.ContainsFunc(from.Pod.Status.PodIPs, isSame) {
			urls = append(urls, "http://"+net.JoinHostPort(address.IP, port)+"/healthz")
		}
	}
	return urls
}
