// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package spec tests the parts of KEP-1645 that need a whole control plane:
// two IP families, slices of many endpoints, names in DNS, and the modes in which
// Comity works beside or after another implementation.
//
// Cluster a has IPv4 alone, b has both families; both have the EndpointSlice
// controller and CoreDNS. The agent is the real one.
package spec
