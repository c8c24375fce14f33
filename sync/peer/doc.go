// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package peer reads what the other members of the clusterset publish.
//
// It takes the peer Secrets in Comity's namespace; it gives the members, their
// exports, slices and namespaces, and says what changed. Credentials are checked
// before use and never logged, and nothing that a peer says is believed before
// package exchange has validated it. It writes to no cluster, save that it may
// renew the token in one of its own Secrets. KEP-2149 names the Secrets' labels.
package peer
