// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package remote reads one peer with one set of credentials.
//
// It takes a client configuration that package kubeconfig has passed; it gives
// what the peer publishes, whether that was read completely, what keeps it from
// being read, and each change. It believes nothing that package exchange has not
// validated, passes on no text that a peer's server wrote, and writes nothing.
package remote
