// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package app turns options into a running agent: it reads flags, waits for the
// CustomResourceDefinitions, finds out which cluster this is, and joins the
// packages of Comity in one controller-runtime manager.
//
// It is the only package that may import all others. Run returns when its
// context ends or when something failed that a restart may mend; it never exits
// the process and keeps no global state, so a test may run many at a time.
package app
