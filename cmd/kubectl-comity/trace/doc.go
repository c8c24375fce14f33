// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package trace is `kubectl comity trace`: the way of one Service from each cluster that
// exports it to each one that imports it, step by step.
//
// It reads, with the administrator's own rights, what each cluster has of the Service,
// and derives the steps from that alone: Service, ServiceExport, policies, ExportRecord,
// Peer, source, ServiceImport, derived Service, EndpointSlices and CoreDNS. The last
// steps, the answer of the DNS and a connection to each endpoint, are tried from the Pod of
// the agent, unless a step before them is broken. It gives a Report, whose cause is the
// first broken step. It changes nothing.
package trace
