// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package plan compares what a cluster has with what it should have and says
// which writes are outstanding, in the order in which they are to be made.
//
// It takes the resolved import, the constituents' slices, the objects that
// exist, what this cluster is like and which clusters are unread or lost; it
// gives sorted actions. It never touches an object that is not provably Comity's
// (or, where that is asked for, the Sveltos pipeline's), never deletes what came
// from a cluster that was not read, and reads neither clock nor cluster. It follows KEP-1645, "Importing Services" and "Tracking Endpoints".
package plan
