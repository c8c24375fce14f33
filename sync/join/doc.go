// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package join makes two clusters peers of each other, and undoes it.
//
// It takes an administrator's access to both, and gives each of them the
// exchange namespaces, the Roles, the account of the other side and the Secret
// with that side's credential; Objects lists these objects without access to a cluster.
// It is used by the kubectl plugin, the demo and tests, never by the agent, which
// has no right to create namespaces or roles. It grants no verb or resource by
// wildcard, keeps no state of its own and can be repeated.
package join
