// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package endpointprobe checks by TCP whether the endpoints of a cluster are reachable from here.
//
// It takes addresses by key and cluster; it gives the clusters of a key of which none
// accepts a connection, the second signal beside the Lease that a cluster is lost. A result
// changes only after several rounds that agree. It sends no byte, opens each address once
// in a round, and a bounded number at once.
package endpointprobe
