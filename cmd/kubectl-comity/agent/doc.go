// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package agent finds the Comity agent that is installed in a cluster, runs the
// agent's own subcommands in its Pod, and compares versions.
//
// It takes a command.Target and gives an Agent: what the agent publishes on
// its leader Lease (sync/model.AgentInfo), and where it runs. It writes nothing,
// and reads only Leases, Pods and Deployments.
package agent
