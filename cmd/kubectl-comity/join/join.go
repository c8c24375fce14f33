// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/utils/net"

	"github.com/comity-mcs/comity/cmd/comity/probe"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

const joinLong = `Make the clusters of the given contexts members of one clusterset.

Everything is checked before anything is written, also from inside each cluster
whether it reaches the API servers and Pods of the others. The command may be
repeated at any time: it repairs what was deleted or has expired.

The other clusters store the first address of each API server that answers inside
them: that of --server, of an earlier join, of the kubeconfig, or, if that is a
loopback address as in kind, the one that the cluster itself reports.

A cluster that was made again with the same id is refused without --replace.`

const joinExample = `  # Make a mesh of three clusters.
  kubectl comity join a b c

  # The kubeconfig's address of a is reachable from this machine only.
  kubectl comity join a b --server a=https://10.0.0.1:6443 --ca a=ca.crt

  # Use the cluster of context hub as the exchange of all members.
  kubectl comity join --hub hub a b c

  # Print what a join would apply, without credentials, to keep it in Git.
  kubectl comity join a b --dry-run -o yaml`

// options are the flags of join and rotate.
type options struct {
	output           command.Output
	hub              string
	values           perCluster
	how              join.Options
	skipReachability bool
	probe            Prober
}

// NewJoin is the command join. probe is agent.Probe, save in tests.
func NewJoin(env *command.Env, probe Prober) *cobra.Command {
	o := &options{probe: probe}
	cmd := env.Command("join CONTEXT CONTEXT...", "Make clusters members of one clusterset", joinLong, joinExample, 1, o.run)
	o.addFlags(cmd)
	o.output.AddFlags(cmd)
	cmd.Flags().Lookup("output").Usage = "Output format of the objects that --dry-run prints, without credentials: json or yaml; annotation " + join.AnnotationCluster + " names the cluster of each"
	cmd.Flags().BoolVar(&o.how.Replace, "replace", false, "Accept clusters that were made again with the id of another one: their Peers get the new UID")
	return cmd
}

// addFlags registers what join and rotate share.
func (o *options) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&o.how.DryRun, "dry-run", false, "Run all checks and print what would be written, and write nothing")
	flags.StringVar(&o.hub, "hub", "", "Context of the hub in whose API server all members publish")
	o.values = perCluster{}
	for name, usage := range map[string]string{
		"server":            "ID=URL: the API server of a cluster as the others reach it; the hub's id is hub",
		"ca":                "ID=FILE: the PEM bundle that verifies the API server of a cluster",
		"pod-cidrs":         "ID=RANGE,...: the ranges of a cluster's Pods, if they cannot be read from it",
		"service-cidrs":     "ID=RANGE,...: the ranges of a cluster's Services, if they cannot be read from it",
		"accept-cidrs":      "ID=RANGE,...: the addresses that the others accept from a cluster instead of its Pod ranges",
		"accept-namespaces": "ID=NAME,...: the namespaces, such as team-*, whose exports the others import from a cluster",
	} {
		o.values[name] = flags.StringToString(name, nil, usage+" (repeatable)")
	}
	flags.BoolVar(&o.how.AllowOverlap, "allow-overlap", false, "Join clusters although their ranges overlap; endpoints in the overlap are not imported")
	flags.BoolVar(&o.skipReachability, "skip-reachability", false, "Do not check from inside the clusters what they reach; the first known address is stored")
	flags.DurationVar(&o.how.Expiry, "expiry", join.DefaultExpiry, "How long a new credential is valid; the agents renew it in time")
}

func (o *options) run(ctx context.Context, env *command.Env, contexts []string) error {
	if o.output.Structured() && !o.how.DryRun {
		return errors.New("-o prints what join would apply; expected --dry-run with it")
	}
	sites, err := agent.Sites(ctx, env, contexts)
	if err != nil {
		return err
	}
	if err := cmp.Or(agent.Problems(sites), checkModes(sites, o.hub != "")); err != nil {
		return err
	}
	report := newReport(env)
	hub, err := openHub(ctx, env, o.hub)
	if err != nil {
		return err
	}
	clusters := clustersOf(sites)
	if err := o.values.apply(clusters, hub); err != nil {
		return err
	}
	o.how.Progress, o.how.ReadOnly = report.step, o.output.Structured()
	prepared, err := join.Prepare(ctx, hub, clusters, o.how)
	if err != nil {
		return err
	}
	if o.output.Structured() {
		return o.output.PrintObjects(env.Out, prepared.Objects())
	}
	if !o.skipReachability {
		if err := o.reach(ctx, env, prepared.Routes, sites); err != nil {
			return err
		}
	}
	if err := report.replacements(ctx, prepared.Replaced, sites); err != nil {
		return err
	}
	if err := prepared.Write(ctx); err != nil {
		return command.Incomplete(fmt.Errorf("%w\nRepeat the command to continue; it keeps what is done already", err))
	}
	report.summary(o.how, sites)
	return nil
}

const rotateLong = `Replace the credentials by which joined clusters read each other.

Use it if a token may have leaked; the agents renew their tokens without it. Each
account is deleted and created again, and the API server refuses the old tokens after
10 s. Nothing is withdrawn meanwhile.`

// NewRotate is the command rotate. probe is agent.Probe, save in tests.
func NewRotate(env *command.Env, probe Prober) *cobra.Command {
	o := &options{probe: probe, how: join.Options{Rotate: true}}
	cmd := env.Command("rotate CONTEXT CONTEXT...", "Replace the credentials of joined clusters and invalidate the old ones", rotateLong,
		"  kubectl comity rotate a b\n  kubectl comity rotate --hub hub a b c", 1, o.run)
	o.addFlags(cmd)
	return cmd
}

// perCluster is what is given for clusters by id, such as --server a=https://….
type perCluster map[string]*map[string]string

// apply sets the values on clusters, and on hub, which may be nil.
func (v perCluster) apply(clusters []join.Cluster, hub *join.Cluster) error {
	for _, flag := range slices.Sorted(maps.Keys(v)) {
		for _, id := range slices.Sorted(maps.Keys(*v[flag])) {
			text := (*v[flag])[id]
			c := hub
			if i := slices.IndexFunc(clusters, func(c join.Cluster) bool { return string(c.ID) == id }); i >= 0 {
				c = &clusters[i]
			} else if hub == nil || id != string(join.HubID) || flag != "server" && flag != "ca" {
				return fmt.Errorf("--%s %s=%s: no given cluster has the id %s; expected one of: %s", flag, id, text, id, model.Join(idsOf(clusters), ", "))
			}
			var err error
			switch items := strings.Split(text, ","); flag {
			case "server":
				c.Server = text
			case "ca":
				c.CAData, err = os.ReadFile(text)
				if err == nil && !x509.NewCertPool().AppendCertsFromPEM(c.CAData) {
					err = errors.New("the file holds no PEM certificate; expected the bundle that verifies the API server")
				}
			case "pod-cidrs":
				c.PodCIDRs, err = model.ParsePrefixes(items)
			case "service-cidrs":
				c.ServiceCIDRs, err = model.ParsePrefixes(items)
			case "accept-cidrs":
				c.AcceptedCIDRs, err = model.ParsePrefixes(items)
			case "accept-namespaces":
				c.AcceptedNamespaces = items
			}
			if err != nil {
				return fmt.Errorf("--%s %s=%s: %w", flag, id, text, err)
			}
		}
	}
	return nil
}

// Prober checks from inside a cluster what it reaches: agent.Probe, save in tests.
type Prober func(ctx context.Context, target *command.Target, from agent.Agent, request probe.Request) ([]probe.Result, error)

// reach asks each member what it reaches of the others, and sets the address of every route
// to the first that answers. The error lists everything that cannot be reached.
func (o *options) reach(ctx context.Context, env *command.Env, routes []*join.Route, sites []*agent.Site) error {
	var problems []string
	for _, s := range sites {
		var request probe.Request
		ways := waysOf(s, routes, sites)
		for _, w := range ways {
			for _, c := range w.Candidates {
				request.Targets = append(request.Targets, probe.Target{Target: c.Server, CA: c.CAData})
			}
		}
		env.Printf("Checking from inside cluster %s (Pod %s/%s) what it reaches\n", s.Agent.ID, s.Agent.Pod.Namespace, s.Agent.Pod.Name)
		results, err := o.probe(ctx, s.Target, s.Agent, request)
		if err != nil {
			return err
		}
		for _, w := range ways {
			var tried []string
			chosen := slices.IndexFunc(results[:len(w.Candidates)], func(r probe.Result) bool { return r.Error == "" })
			for i, c := range w.Candidates {
				tried = append(tried, fmt.Sprintf("%s (%s): %s", c.Server, c.Source, results[i].Error))
			}
			if results = results[len(w.Candidates):]; chosen < 0 {
				problems = append(problems, fmt.Sprintf("cluster %s does not reach %s; tried %s; %s", w.Holder, w.to, strings.Join(tried, ", "), w.advice))
				continue
			}
			w.Address = w.Candidates[chosen]
			env.Printf("  %s at %s (%s)\n", w.to, w.Address.Server, w.Address.Source)
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("clusters do not reach each other, so nothing was written:\n  %s", strings.Join(problems, "\n  "))
	}
	return nil
}

// way is what one of the candidates of a route has to lead to.
type way struct {
	*join.Route
	to, advice string
}

// waysOf are what the agent of a site needs: the API servers that it connects to, and Pods of
// the other clusters, in each family.
func waysOf(s *agent.Site, routes []*join.Route, sites []*agent.Site) (all []way) {
	for _, route := range routes {
		if route.Holder == s.Agent.ID {
			to := "the API server of cluster " + string(route.Peer)
			if route.Peer == join.HubID {
				to = "the API server of the hub"
			}
			all = append(all, way{route, to, fmt.Sprintf("pass an address that Pods of cluster %s reach as --server %s=https://HOST:PORT, with --ca %s=FILE if needed",
				route.Holder, route.Peer, route.Peer)})
		}
	}
	for _, other := range model.Without(sites, func(other *agent.Site) bool { return other == s }) {
		for _, url := range healthURLs(other.Agent, s.Agent) {
			address := join.Address{Server: url, Source: fmt.Sprintf("the agent's Pod %s/%s", other.Agent.Namespace, other.Agent.Pod.Name)}
			all = append(all, way{&join.Route{Holder: s.Agent.ID, Candidates: []join.Address{address}}, "Pods of cluster " + string(other.Agent.ID),
				"route the Pod ranges between the clusters, and allow them in firewalls and network policies"})
		}
	}
	return all
}

// healthURLs answer 200 while the process of agent a lives: at the addresses of its Pod, in
// the families that the Pod of from has too.
func healthURLs(a, from agent.Agent) (urls []string) {
	port := "8081"
	for _, p := range a.Container().Ports {
		if p.Name == "health" {
			port = fmt.Sprint(p.ContainerPort)
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
