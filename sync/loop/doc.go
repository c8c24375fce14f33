// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package loop joins the parts of sync: queues and reconcilers that read the
// local cluster and the peers, ask merge and plan what to do, and let apply do it.
//
// It takes events; it gives records in this cluster's exchange namespaces,
// imported objects in its user namespaces, and an Observation per namespace/name
// for the status controller. It decides nothing that plan could, and runs on the
// leader only. It follows KEP-1645.
package loop
