// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package facts gathers what a policy may know of an export, and asks it.
//
// It takes a Request (who wants what, or nobody: an audit), reads the Service
// and Namespace through a client and the other members through Peers, and gives
// a decision.Input; Judge hands that to the policies and gives their Verdict.
// It never writes, and never guesses: what could not be read makes the verdict
// NotEvaluated. The input is described in policies/INPUT.md.
package facts
