// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package plan compares the objects that exist with the desired ones and returns
// the writes that are outstanding, in the order in which they are to be made.
//
// It takes what package decide decided, a resolved import or an export record, with the
// slices of each cluster, the objects that exist, the IP families and zones of this cluster,
// and which clusters are kept or lost. It decides names, fields and order, and nothing about
// who takes part. It never writes an object that is not
// managed by Comity (or, if that is enabled, by the Sveltos pipeline), and never
// deletes one that came from a cluster that is kept. It is pure. It follows
// KEP-1645, "Importing Services" and "Tracking Endpoints".
package plan
