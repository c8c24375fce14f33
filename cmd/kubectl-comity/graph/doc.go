// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package graph is `kubectl comity graph`: who exports what to whom.
//
// It reads imports, the records of exports and Peers of the given clusters, of whatever
// number, and gives a table, or a graph in the languages of Graphviz and Mermaid, with
// conflicts, holds and lost clusters marked. It writes to no cluster.
package graph
