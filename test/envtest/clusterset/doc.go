// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package clusterset starts control planes with the real agent beside each, all
// joined, for suites that test a clusterset from outside.
//
// It takes options of clusters and flags of agents; it gives members whose
// objects, endpoints, conditions and writes can be awaited. What it starts ends
// with the suite. It fails the running spec itself, and asserts nothing of its own.
package clusterset
