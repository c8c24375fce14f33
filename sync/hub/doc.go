// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package hub makes an API server that all members share the exchange of this one.
//
// It takes the file of a kubeconfig and the peers; it gives what the controllers
// need of an exchange: a client, a cache of this member's own namespaces in the hub,
// and why one of them cannot be used. It needs no right beyond those namespaces,
// each of which is asked for by its name. A hub that does not answer changes
// nothing: what was known stays, and everything waits. A new token is taken over
// from the file, and asked for in time; joining (sync/join) makes all the rest.
package hub
