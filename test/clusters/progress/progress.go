// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package progress shows people that something takes time.
//
// It takes a writer and a function and gives back what the function returns. On
// a terminal a spinner turns meanwhile and leaves nothing behind; anywhere else
// a line says once a minute that the work goes on. It never writes anything for
// work that is done at once and is not on a terminal.
package progress

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

const (
	// heartbeat is how often a line says that work goes on where no spinner can.
	heartbeat = time.Minute
	// turn is how fast the spinner turns.
	turn = 150 * time.Millisecond
)

// Clock stamps lines with the time since its start.
type Clock struct {
	// Out receives the lines.
	Out io.Writer
	// Start is what the time is counted from.
	Start time.Time
}

// Elapsed is the time since the start, as it stands before a line.
func (c Clock) Elapsed() string { return fmt.Sprintf("[%4ds]", int(time.Since(c.Start).Seconds())) }

// Say prints one line with the time since the start.
func (c Clock) Say(format string, args ...any) {
	_, _ = fmt.Fprintf(c.Out, "%s %s\n", c.Elapsed(), fmt.Sprintf(format, args...))
}

// Step announces what, runs it, and says how long it took. It ends with run.
func (c Clock) Step(what string, run func() error) error {
	c.Say("%s ...", what)
	began := time.Now()
	err := c.During(what, run)
	if err == nil {
		c.Say("%s: done in %.1fs", what, time.Since(began).Seconds())
	}
	return err
}

// During runs run and shows meanwhile that what is going on.
func (c Clock) During(what string, run func() error) error {
	result := make(chan error, 1)
	go func() { result <- run() }()
	terminal, every := isTerminal(c.Out), heartbeat
	if terminal {
		every = turn
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case err := <-result:
			if terminal {
				_, _ = fmt.Fprint(c.Out, "\r\033[K")
			}
			return err
		case <-tick.C:
			if terminal {
				_, _ = fmt.Fprintf(c.Out, "\r%s %c %s", c.Elapsed(), `|/-\`[n%4], what)
			} else {
				c.Say("%s: still running", what)
			}
		}
	}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}
