// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package simulator lets clusters live in memory, with users and faults of all
// kinds, and asks after every single write whether it may be made.
//
// It takes a Source of choices, most often a seed; it gives the invariant that
// does not hold, with what led to it. It opens no connection, reads no clock and
// starts no goroutine, so that one seed is always one run. It holds Comity to
// FAULTS: I1 no foreign object is touched, I2 nothing is deleted unread, I3 what
// converged is not written, I4 no write across clusters; and to an oracle.
//
// What runs is the decision code (exchange, merge, plan, status/compute) and
// apply with its preconditions, under a thin agent. The reconcilers of
// sync/controllers are not run: they live in controller-runtime's goroutines, queues and
// timers, so that no run could be repeated, and a thousand seeds would take an
// hour. Which event wakes which key is therefore not tested here; the agent may
// work on any key at any time, of which every order of events is a special case.
package simulator
