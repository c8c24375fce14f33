// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

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
	// Degraded: a replica leads and another one is not available.
	Degraded State = "Degraded"
	// NotReady: a replica leads and is not ready.
	NotReady State = "NotReady"
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

// Agent says how the agent of a site is. Its reason is a State, but Hub.
func Agent(site *agent.Site) finding.Finding {
	f := finding.Finding{Severity: finding.Error, Cluster: site.Context, Reason: string(Failed), Since: timeOf(site.Agent.Renewed),
		Fix: site.Kubectl("describe pods -l " + agent.NameLabel), Docs: finding.Docs("troubleshooting.md#connection")}
	if site.Err == nil {
		return running(site, f)
	}
	f.Message = site.Err.Error()
	switch {
	case site.Target == nil:
		f.Reason, f.Fix = string(Unreachable), "kubectl --context "+site.Context+" version"
	case errors.Is(site.Err, agent.ErrNotInstalled):
		f.Reason, f.Since, f.Docs = string(NotInstalled), nil, finding.Docs("install.md#2-install-comity")
		f.Fix = site.Helm("--create-namespace --set clusterID=" + site.Context + " --set clusterset=CLUSTERSET --wait")
	case errors.Is(site.Err, agent.ErrNotRunning):
		f.Reason = string(NotRunning)
		for _, d := range site.Agent.Deployments {
			if f.Object = "Deployment " + d.Namespace + "/" + d.Name; ptr.Deref(d.Spec.Replicas, 1) == 0 {
				f.Fix = site.Kubectl("scale deployment " + d.Name + " --replicas=2")
			}
		}
	}
	return f
}

// running is f for an agent that leads: whether the leader is ready, and the other replicas are
// available.
func running(site *agent.Site, f finding.Finding) finding.Finding {
	f.Reason, f.Since = string(Running), nil
	for _, c := range site.Agent.Pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			f.Since = timeOf(c.LastTransitionTime.Time)
			if c.Status != corev1.ConditionTrue {
				f.Reason, f.Message = string(NotReady), "the leader is not ready: "+c.Message
				return f
			}
		}
	}
	for _, d := range site.Agent.Deployments {
		if available, want := d.Status.AvailableReplicas, ptr.Deref(d.Spec.Replicas, 1); available < want {
			f.Severity, f.Reason, f.Object, f.Since = finding.Warning, string(Degraded), "Deployment "+d.Namespace+"/"+d.Name, nil
			f.Message = fmt.Sprintf("%d of %d replicas of %s are available", available, want, f.Object)
			return f
		}
	}
	f.Severity, f.Fix, f.Docs = finding.OK, "", ""
	f.Message = fmt.Sprintf("Comity %s, Pod %s leads", site.Agent.Version, site.Agent.Pod.Name)
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
	// Certificate is the webhook's.
	Certificate *Certificate `json:"certificate,omitempty"`
	Peers       []Peer       `json:"peers,omitempty"`
}

// ClusterOf is a site with its agent, unless none is installed.
func ClusterOf(site *agent.Site) Cluster {
	f := Agent(site)
	c := Cluster{Context: site.Context, State: State(f.Reason), Since: f.Since, Message: f.Message}
	if a := site.Agent; c.State != NotInstalled {
		c.ID, c.ClusterSet, c.Version, c.Exchange, c.Namespace = string(a.ID), a.Set, a.Version, string(a.Mode), a.Namespace
	}
	return c
}

// Name is the id of the cluster, or else the context.
func (c Cluster) Name() string { return cmp.Or(c.ID, c.Context) }

// Certificate is the one that the webhook serves.
type Certificate struct {
	// Name is that of the Secret.
	Name    string       `json:"name"`
	Expires *metav1.Time `json:"expires,omitempty"`
}

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
