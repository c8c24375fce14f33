// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package join has the commands that make clusters peers and undo it: join,
// leave and rotate.
//
// It takes contexts and flags, reads from the installed agents the identity of the
// clusters, runs all checks from outside and from inside the clusters, and
// leaves the writing to sync/join. It never prints a credential, and writes
// nothing before every check has passed.
package join
