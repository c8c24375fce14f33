// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package spec tests the parts of KEP-1645 that need a whole control plane:
// two IP families, thousands of endpoints, names in DNS, and the modes in which
// Comity works beside or after another implementation.
//
// Clusters a and b have both families, the EndpointSlice controller and CoreDNS;
// c has IPv4 alone and nothing but an API server. The agent is the real one.
package spec
