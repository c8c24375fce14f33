// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package diagnose proves, on two real API servers that are joined, that the plugin's
// commands diagnose and networkpolicy name faults that are planted, and nothing where all
// is well. No agent runs: the specs write what it would.
package diagnose
