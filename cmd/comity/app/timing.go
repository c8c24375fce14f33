// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import "time"

// Timing is how long the agent waits, and how often it checks what no event notifies it
// of. It has no flags, because no cluster needs other values. Tests shorten it.
type Timing struct {
	// A leader renews its Lease every RetryPeriod, and stops writing if it could not
	// renew it for RenewDeadline. Another replica leads after LeaseDuration at the
	// earliest, so two replicas never write at the same time.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// PeersRead is how long readiness waits for the peers: one that cannot be reached
	// must not keep this cluster from evaluating exports.
	PeersRead time.Duration
	// AwaitDefinitions is how often a starting agent checks for missing definitions, and
	// WatchDefinitions how often a running one checks that all are still served. The API
	// server serves a new one within a second; two seconds bound the load.
	AwaitDefinitions, WatchDefinitions time.Duration
	// AgentInfo is how often the leader reads its Lease. It is patched only if an
	// annotation is missing or differs, for example after the Lease was deleted and
	// leader election created it again.
	AgentInfo time.Duration
	// Status is the least time between two writes of one status.
	Status time.Duration
	// Probe is the pause between two probes of the endpoints of lost clusters.
	Probe time.Duration
	// Retry is how soon is tried again what nothing announces: members that do not
	// answer at start, exchange namespaces that are missing, and corrections that
	// something else undoes.
	Retry time.Duration
	// Hub is how often the kubeconfig file and the namespaces of a hub are read.
	Hub time.Duration
}

// DefaultTiming is that of the Deployment.
func DefaultTiming() Timing {
	return Timing{
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		PeersRead: 30 * time.Second, AwaitDefinitions: 2 * time.Second, WatchDefinitions: 5 * time.Second, AgentInfo: 10 * time.Second,
		Status: 5 * time.Second, Probe: 10 * time.Second, Retry: 10 * time.Second, Hub: 5 * time.Second,
	}
}
