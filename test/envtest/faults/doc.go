// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package faults breaks real clusters under the real agent: API servers that
// freeze or die, an etcd from the past, objects of others, users who interfere.
// Each spec names the fault that it injects, and holds the agent to four
// invariants: it changes only its own objects (I1), deletes nothing of a source
// that it did not read (I2), writes nothing once everything converged (I3), and
// writes to no other cluster (I4).
//
// It plants faults in the same clusters for `kubectl comity trace`, too, which has to
// name each of them as the first cause, and to print the command that fixes it.
package faults
