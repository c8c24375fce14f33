// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package sync proves, on three real API servers with one agent each, what the
// sync loop writes, what it never writes, and what it survives.
package sync
