// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package join makes two clusters peers of each other, and undoes it.
//
// It takes an administrator's access to both, and gives each of them the
// exchange namespaces, the Roles, the account of the other side, the Secret with that
// side's credential and the Peer; Objects lists all but the last two without access to a
// cluster. To undo it, it states in the Peer that the other side is removed, and waits
// until the agent has removed what it imported.
// It is used by the kubectl plugin, the demo and tests, never by the agent, which
// has no right to create namespaces or roles. It grants no verb or resource by
// wildcard, keeps no state of its own and can be repeated.
package join
