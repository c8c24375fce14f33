// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package confirm has the commands by which an administrator ends what waits: exports
// that are missing, takeovers of imports, and exports that a restore lost.
//
// It reads lists of imports, conditions and ExportRecords of one cluster, shows what a
// confirmation is about, and writes the field or annotation that the agent reads. What
// waits is found here for status, too. It decides nothing and removes nothing itself.
package confirm
