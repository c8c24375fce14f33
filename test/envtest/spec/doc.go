// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package spec follows KEP-1645 where it takes a whole control plane to tell:
// two IP families, thousands of endpoints, names in DNS, and the modes in which
// Comity works beside or after another implementation.
//
// Clusters a and b have both families, the EndpointSlice controller and CoreDNS;
// c has IPv4 alone and nothing but an API server. The agent is the real one.
package spec
