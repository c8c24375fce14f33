// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package limited

import "time"

var start = time.Now()

// cpuTime is the time since the process began: the closest that there is here.
func cpuTime() time.Duration { return time.Since(start) }
