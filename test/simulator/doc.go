// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package simulator runs clusters in memory, with users and faults of all kinds,
// and checks every single write.
//
// It takes a Source of choices, most often a seed; it gives the invariant that
// does not hold, with the events that led to it. It opens no connection, reads no
// clock and starts no goroutine, so that one seed is always one run. It checks the
// invariants I1 no foreign object is touched, I2 nothing is deleted unread, I3 what
// converged is not written, I4 no write across clusters, I5 no endpoint leaves an
// importer unless its exporter, or the importer's administrator, said so, I6 nothing is
// newly imported that import policies do not allow, I7 no export decides over those of
// which an import consists unless an administrator confirmed it, I8 no member that publishes more
// than the limits costs anything that was read, or goes unnamed; and compares with an
// oracle.
//
// The code under test is that of the product: decide, merge, plan, apply, exchange,
// and status/compute. Package agent is only wiring. The
// controllers of Comity are not run: controller-runtime's goroutines, queues and
// timers would make no run repeatable, and a thousand seeds would take an hour.
// So it is not tested here which event enqueues which key; an agent may work on any
// key at any time, of which every order of events is a special case.
package simulator
