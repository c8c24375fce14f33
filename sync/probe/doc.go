// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package probe tells whether the endpoints of a cluster answer from here, as
// the second signal beside its heartbeat that the cluster is lost.
//
// It takes TCP addresses by import and cluster; it gives the clusters of an
// import of which none answers. A verdict changes after several rounds that
// agree, never after one. It sends no byte over a connection, opens each
// address once in a round, a bounded number at once, and decides nothing about endpoints.
package probe
