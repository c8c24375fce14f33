// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package status is `kubectl comity status`: the clusters, the connections
// to their peers, and every export and import with its conditions.
//
// It reads, with the administrator's own rights, the agent's Lease, Deployment
// and metrics, the peer Secrets (of their tokens only when they expire) and the
// events on them, the webhook's certificate, and ServiceExports and
// ServiceImports. It gives a Report. It writes nothing.
package status
