// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package agent proves the program as a whole: the comity binary as a process
// beside real API servers, with exactly the rights of its service account.
//
// It takes etcd, kube-apiserver and kubectl from test/clusters and builds the
// binary once. It shows what a user reads after bad input, that a killed agent
// leaves no wrong object, and that a restarted one writes nothing. It never skips.
package agent
