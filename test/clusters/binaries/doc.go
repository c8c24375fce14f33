// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package binaries provides the programs that real clusters are made of: the
// control plane of Kubernetes, etcd, CoreDNS, kwok and kind, and Helm, at pinned versions.
//
// It takes names and gives paths. Each program comes from KUBEBUILDER_ASSETS,
// else from a cache keyed by name and version, else from the public downloads
// (only with a published SHA-256 that matches), else from the Go module proxy
// with the version lists of test/tools. It never replaces a cached program and
// never installs anything outside the cache.
package binaries
