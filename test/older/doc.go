// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package older tests a clusterset in which one member runs an earlier version.
//
// It takes that version's agent from the environment variable COMITY_OLDER, which
// `make test-older` builds from a revision of this repository; it runs both versions
// on real API servers. It is no part of `make test`, because it needs the history of
// the repository.
package older
