// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package status proves, on a real API server, what the status controller
// writes, what it leaves alone, and that it is quiet when nothing changed.
package status
