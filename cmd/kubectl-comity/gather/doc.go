// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package gather is `kubectl comity gather`: one archive for a bug report.
//
// It takes contexts and the tree of commands, and writes objects, logs and the output of
// commands to a file. It writes to no cluster. Of Secrets it keeps names and keys alone;
// redact says what else is left out.
package gather
