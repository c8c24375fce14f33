// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// interval is how often --wait refreshes the status.
const interval = 2 * time.Second

const long = `Show the clusters, the connections to their peers, and every export and import
with its conditions. Problems are listed first, with what to do about them: one line
for each cause, with the number of objects that it affects.

AGENT is Running, Degraded (a replica is not ready), NotRunning, NotInstalled, Hub
(members publish there), Unreachable or Failed. STATE is that of the connection to a
peer: Connected, Drained (kubectl comity drain), or why it is not connected, such as Lost,
NotUsed (the Peer is not accepted), Leaving (spec.removed) or Unknown. docs/conditions.md
and docs/peers.md explain the conditions. Give the context of a hub as well to see what its members lost there.

With --wait, the command waits until there is no problem, or the time is over.

The exit code is 1 if there is a problem.`

// options are the flags.
type options struct {
	command.Output
	wait      time.Duration
	namespace string
}

// New gives the command status.
func New(env *command.Env) *cobra.Command {
	var o options
	cmd := env.Command("status [CONTEXT...]", "Show clusters, peers, exports and imports, and their problems", long,
		"  kubectl comity status a b\n  kubectl comity status a b --wait 2m\n  kubectl comity status -n shop -o yaml", 0, o.run)
	o.AddFlags(cmd)
	flags := cmd.Flags()
	flags.DurationVar(&o.wait, "wait", 0, "Wait until there is no problem, and print the status then, or when this time is over")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "Show only the exports and imports of this namespace")
	return cmd
}

func (o *options) run(ctx context.Context, env *command.Env, contexts []string) error {
	sites, err := agent.Sites(ctx, env, contexts)
	if err != nil {
		return err
	}
	for end := time.Now().Add(o.wait); ; agent.Read(ctx, env, sites) {
		report, _ := Read(ctx, sites, o.namespace, time.Now())
		if report.Healthy || !time.Now().Before(end) || ctx.Err() != nil {
			return o.Conclude(env.Out, "ClusterSetStatus", &report, report.Healthy, func() { report.print(env, time.Now()) })
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
}

// print shows the report to a person.
func (r Report) print(env *command.Env, now time.Time) {
	age := func(since *metav1.Time) string {
		if since == nil {
			return ""
		}
		return duration.HumanDuration(now.Sub(since.Time))
	}
	ends := func(at *metav1.Time) string {
		switch {
		case at == nil:
			return ""
		case at.After(now):
			return "ends in " + duration.HumanDuration(at.Sub(now))
		}
		return "expired"
	}
	if r.Healthy {
		env.Printf("Everything is healthy.\n\n")
	} else {
		env.Printf("Problems:\n")
		for _, problem := range r.Problems {
			env.Printf("  %s\n%s", problem, problem.Advice("    "))
		}
		env.Printf("\n")
	}

	clusters := command.NewTable(env.Out, "CONTEXT", "CLUSTER", "CLUSTERSET", "COMITY", "EXCHANGE", "AGENT", "SINCE", "CERTIFICATE")
	peers := 0
	for _, c := range r.Clusters {
		clusters.Row(c.Context, c.ID, c.ClusterSet, c.Version, c.Exchange, c.State, age(c.Since), ends(c.CertificateExpires))
		peers += len(c.Peers)
	}
	clusters.Flush()

	if peers == 0 {
		env.Printf("\nNo peers. Join clusters with kubectl comity join.\n")
	} else {
		table := command.NewTable(env.Out, "\nCLUSTER", "PEER", "STATE", "SINCE", "TOKEN")
		for _, c := range r.Clusters {
			for _, peer := range c.Peers {
				table.Row(c.Name(), peer.ID, peer.State, age(peer.Since), ends(peer.TokenExpires))
			}
		}
		table.Flush()
	}

	r.printServices(env)
}

// printServices shows the exports and imports.
func (r Report) printServices(env *command.Env) {
	if len(r.Services) == 0 {
		env.Printf("\nNo exports and no imports.\n")
		return
	}
	table := command.NewTable(env.Out, "\nNAMESPACE", "NAME", "KIND", "CLUSTER", "VALID", "READY", "CONFLICT", "ADMITTED", "AVAILABLE")
	for _, s := range r.Services {
		states := model.Map(columns, func(column string) any { return cell(meta.FindStatusCondition(s.Conditions, column)) })
		table.Row(append([]any{s.Namespace, s.Name, s.Kind, cmp.Or(s.Cluster, s.Context)}, states...)...)
	}
	table.Flush()
}

// columns are the conditions that the table has a column for, in its order.
var columns = []string{"Valid", "Ready", "Conflict", "Admitted", "Available"}

// cell is the status, and the reason where it says more than the status does.
func cell(c *metav1.Condition) string {
	switch {
	case c == nil:
		return ""
	case bad(*c) || c.Reason == "Pending":
		return string(c.Status) + " (" + c.Reason + ")"
	}
	return string(c.Status)
}

// Report is what -o prints, under kind ClusterSetStatus.
type Report struct {
	// Healthy is true if there is no problem.
	Healthy  bool      `json:"healthy"`
	Clusters []Cluster `json:"clusters"`
	Services []Service `json:"services"`
	// Problems are causes, and not what follows from them.
	Problems []finding.Finding `json:"problems"`
}

// State is that of an agent, or of a peer as an agent has it.
type State string

// States of an agent.
const (
	// Running: a replica leads and all replicas are available.
	Running State = "Running"
	// Degraded: a replica leads, and it or another one is not ready.
	Degraded State = "Degraded"
	// NotRunning: Comity is installed and no replica leads.
	NotRunning State = "NotRunning"
	// NotInstalled: there is no agent.
	NotInstalled State = "NotInstalled"
	// Hub: there is no agent, and members publish in the API server.
	Hub State = "Hub"
	// Unreachable: the API server does not answer the administrator.
	Unreachable State = "Unreachable"
	// Failed: the agent cannot be read for another reason.
	Failed State = "Failed"
)

// States of a peer, beside the other reasons of its condition Connected.
const (
	Connected State = "Connected"
	Lost      State = "Lost"
	// Drained: it is connected, and its endpoints are the last resort.
	Drained State = "Drained"
	// NotUsed: the agent does not accept the Peer, its Secret or the cluster that answers.
	NotUsed State = "NotUsed"
	// Leaving: the Peer states that the cluster is removed.
	Leaving State = "Leaving"
	// Unknown: no agent runs, or it has not set the conditions of the Peer yet.
	Unknown State = "Unknown"
)

// Agent says how the agent of a site is. Its reason is one of the States of an agent.
func Agent(site *agent.Site) finding.Finding {
	state := Failed
	f := finding.Finding{
		Severity: finding.Error, Cluster: site.Context, Since: timeOf(site.Agent.Renewed),
		Fix: site.Kubectl("describe pods -l " + agent.NameLabel), Docs: finding.Docs("troubleshooting.md#connection"),
	}
	if site.Err != nil {
		f.Message = site.Err.Error()
	}
	switch {
	case site.Err == nil:
		state, f.Severity, f.Since = Running, finding.OK, nil
		f.Message = fmt.Sprintf("Comity %s, Pod %s leads", site.Agent.Version, site.Agent.Pod.Name)
		for _, c := range site.Agent.Pod.Status.Conditions {
			if c.Type == corev1.PodReady {
				f.Since = timeOf(c.LastTransitionTime.Time)
			}
		}
	case site.Target == nil:
		state, f.Fix = Unreachable, "kubectl --context "+site.Context+" version"
	case errors.Is(site.Err, agent.ErrNotInstalled):
		state, f.Since, f.Docs = NotInstalled, nil, finding.Docs("install.md#2-install-comity")
		f.Fix = site.Helm("--create-namespace --set clusterID=" + site.Context + " --set clusterset=CLUSTERSET --wait")
	case errors.Is(site.Err, agent.ErrNotRunning):
		state = NotRunning
	}
	for _, d := range site.Agent.Deployments {
		object, available, want := "Deployment "+d.Namespace+"/"+d.Name, d.Status.AvailableReplicas, ptr.Deref(d.Spec.Replicas, 1)
		if state == Running && available < want {
			state, f.Severity, f.Since, f.Object = Degraded, finding.Warning, nil, object
			f.Message = fmt.Sprintf("%d of %d replicas of %s are available", available, want, object)
		} else if state == NotRunning {
			f.Object = object
			if want == 0 {
				f.Fix = site.Kubectl("scale deployment " + d.Name + " --replicas=2")
			}
		}
	}
	if f.Reason = string(state); f.Severity == finding.OK {
		f.Fix, f.Docs = "", ""
	}
	return f
}

// Cluster is one cluster and its agent.
type Cluster struct {
	Context    string       `json:"context"`
	ID         string       `json:"id,omitempty"`
	ClusterSet string       `json:"clusterset,omitempty"`
	Version    string       `json:"version,omitempty"`
	Exchange   string       `json:"exchange,omitempty"`
	Namespace  string       `json:"namespace,omitempty"`
	State      State        `json:"state"`
	Since      *metav1.Time `json:"since,omitempty"`
	Message    string       `json:"message,omitempty"`
	// CertificateExpires is when the one that the webhook serves does.
	CertificateExpires *metav1.Time `json:"certificateExpires,omitempty"`
	Peers              []Peer       `json:"peers,omitempty"`
}

// Name is the id of the cluster, or else the context.
func (c Cluster) Name() string { return cmp.Or(c.ID, c.Context) }

// Peer is another cluster as the agent has it.
type Peer struct {
	ID      string       `json:"id"`
	State   State        `json:"state"`
	Since   *metav1.Time `json:"since,omitempty"`
	Message string       `json:"message,omitempty"`
	Version string       `json:"version,omitempty"`
	// TokenExpires is when the credential for the peer ends unless it is renewed.
	TokenExpires *metav1.Time `json:"tokenExpires,omitempty"`
	// Exports counts what the peer exports to the cluster.
	Exports v1alpha1.PeerExports `json:"exports"`
}

// Service is an export or an import with its conditions.
type Service struct {
	Context    string             `json:"context"`
	Cluster    string             `json:"cluster"`
	Kind       string             `json:"kind"`
	Namespace  string             `json:"namespace"`
	Name       string             `json:"name"`
	Conditions []metav1.Condition `json:"conditions"`
}

func timeOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}
