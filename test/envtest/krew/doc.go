// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package krew tests that the archive and the manifest of the kubectl plugin are
// what krew needs: it installs the plugin by the same steps, and runs it through
// kubectl. It needs kubectl, and no cluster.
package krew
