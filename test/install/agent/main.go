// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Command agent is comity with short waits, for suites that would wait for them.
//
// It has the flags, the subcommands and the behaviour of comity. Its times are chosen so
// that a machine on which API servers and compilers compete for two cores keeps them too.
package main

import (
	"os"
	"time"

	"github.com/comity-mcs/comity/cmd/comity/app"
)

func main() {
	o := app.DefaultOptions()
	o.Timing = app.Timing{
		LeaseDuration: 8 * time.Second, RenewDeadline: 6 * time.Second, RetryPeriod: 500 * time.Millisecond,
		PeersRead: 3 * time.Second, Definitions: 200 * time.Millisecond, AgentInfo: time.Second,
		Status: 500 * time.Millisecond, Probe: time.Second, Retry: time.Second, Hub: 500 * time.Millisecond,
	}
	os.Exit(app.Main(o, os.Args[1:]))
}
