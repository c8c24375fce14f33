// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package report tells the other members what came of their exports here, and
// reads what they say of ours.
//
// It takes the peers and the loop's observations; it gives the Lease by which
// this cluster is heard of, an ImportRecord per import and source cluster, and
// the Destinations of each local export. It writes on the leader only, into this
// cluster's own exchange namespaces only, and says nothing to one cluster about
// another. A Lease held by another cluster is never fought over.
package report
