// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package status is `kubectl comity status`: the clusters, the connections
// to their peers, and every export and import with its conditions.
//
// It reads, with the administrator's own rights, the agent's Lease and Deployment, the
// Peers, the webhook's certificate, ServiceExports and ServiceImports, and the
// ExportRecords that are lost. It gives a Report, in which everything that waits is a
// problem with the command that ends it. It writes nothing.
package status
