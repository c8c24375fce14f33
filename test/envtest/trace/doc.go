// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package trace plants faults in two real API servers with an agent each, and proves
// that `kubectl comity trace` names each of them as the first cause, and that the
// command which it prints fixes it.
package trace
