// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package peer proves, on a real API server behind a network that can be broken,
// that a peer which fails is reported with the reason, and that its exports are
// never taken for withdrawn. Each spec names the fault that it injects.
package peer
