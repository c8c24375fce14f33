// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugin tests kubectl comity on a real API server: what its commands
// read, write and refuse, and the messages and exit codes with which they do.
// No Pod runs here; what needs one is tested end to end.
package plugin
