// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package limited

// limitProcess sets no limit here: the agent runs on Linux, and the process checks its own.
func limitProcess(Limits) {}
