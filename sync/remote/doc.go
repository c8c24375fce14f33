// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package remote is a connection to another API server, of a peer or a hub.
//
// It takes a client configuration that package kubeconfig has accepted; it gives
// what the peer publishes, whether all of it was read, why not, and a notification
// of each change. It passes on no record that package exchange has not validated
// and no text of the peer's server. It writes nothing but requests for tokens, and a new token into its Secret.
//
// It knows one server and one set of credentials, and no Peer: which connection is used, what
// is accepted and when a member counts as lost is decided in package members.
package remote
