// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package hub lets all members publish in the API server of a hub, instead of each in its own.
//
// It takes the file of a kubeconfig and the peers; it gives a client, a cache of this
// member's own namespaces in the hub, and why one of them cannot be used. It needs no
// permission beyond those namespaces, and reads each by its name. While the hub does not
// respond, what was read stays. It uses a new token from the file, and renews it.
package hub
