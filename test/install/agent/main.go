// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Command agent is comity with short waits, for suites that would wait for them.
//
// It has the flags, the subcommands and the behaviour of comity. Its times are chosen so
// that a machine on which API servers and compilers compete for two cores keeps them too.
// The clock by which it decides imports is ahead by the duration in COMITY_AHEAD, if that
// is set.
package main

import (
	"fmt"
	"os"
	"time"

	"k8s.io/utils/clock"

	"github.com/comity-mcs/comity/cmd/comity/app"
)

// shifted is the real clock, set ahead.
type shifted struct {
	clock.RealClock
	ahead time.Duration
}

// Now implements clock.PassiveClock.
func (s shifted) Now() time.Time { return s.RealClock.Now().Add(s.ahead) }

// Since implements clock.PassiveClock.
func (s shifted) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

func main() {
	o := app.DefaultOptions()
	if text := os.Getenv("COMITY_AHEAD"); text != "" {
		ahead, err := time.ParseDuration(text)
		if err != nil {
			fmt.Fprintln(os.Stderr, "COMITY_AHEAD:", err)
			os.Exit(2)
		}
		o.Clock = shifted{ahead: ahead}
	}
	o.Timing = app.Timing{
		LeaseDuration: 8 * time.Second, RenewDeadline: 6 * time.Second, RetryPeriod: 500 * time.Millisecond,
		PeersRead: 3 * time.Second, AwaitDefinitions: 200 * time.Millisecond, WatchDefinitions: 500 * time.Millisecond, AgentInfo: time.Second,
		Status: 500 * time.Millisecond, Probe: time.Second, Retry: time.Second, Hub: 500 * time.Millisecond,
	}
	os.Exit(app.Main(o, os.Args[1:]))
}
