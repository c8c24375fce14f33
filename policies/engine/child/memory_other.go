// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package child

import "time"

// limitMemory bounds nothing here: the agent runs on Linux.
func limitMemory(uint64) error { return nil }

var start = time.Now()

// cpuTime is the time since the process began: the closest that there is here.
func cpuTime() time.Duration { return time.Since(start) }
