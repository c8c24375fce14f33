// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package networkpolicy is `kubectl comity networkpolicy`: the NetworkPolicy by which
// exported Pods admit the clusters that import them, by the addresses of their Pods.
//
// No selector of a NetworkPolicy matches a Pod of another cluster. Check finds the
// exports that NetworkPolicies keep from importing clusters. The package reads Services,
// Pods, ServiceExports, Peers and NetworkPolicies, and writes nothing.
package networkpolicy
