// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
