// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package coredns is `kubectl comity coredns`: it lets a cluster's CoreDNS serve
// clusterset.local, and reverts that.
//
// It changes the Corefile in ConfigMap kube-system/coredns (package corefile says
// how) and gives CoreDNS's account the right to read ServiceImports by a ClusterRole
// and a binding of its own. It checks all clusters before it writes to the first.
// It never writes to a CoreDNS that something else owns, such as a cloud provider,
// nor to the configuration of NodeLocal DNSCache: it says what to do instead.
package coredns
