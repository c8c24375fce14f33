// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package memory is what the loop remembers from one reconciliation to the next.
//
// It takes what the reconcilers found, wrote and attempted; it gives the
// observations to their readers, the derived names that are free, whether
// everything was published once, and which objects somebody else keeps changing.
// Nothing in it is needed to be right after a restart: it reads no cluster and
// writes to none. All of it may be used from any goroutine.
package memory
