// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/term"
)

// heartbeat is how often a long step says that it still runs, where no terminal shows a spinner.
const heartbeat = time.Minute

// say prints one line with the time since the start.
func (p *Provider) say(format string, args ...any) {
	_, _ = fmt.Fprintf(p.Out, "%s %s\n", p.elapsed(), fmt.Sprintf(format, args...))
}

func (p *Provider) elapsed() string {
	return fmt.Sprintf("[%4ds]", int(time.Since(p.start).Seconds()))
}

// step announces what, runs it, and says how long it took. It ends with run.
func (p *Provider) step(what string, run func() error) error {
	p.say("%s ...", what)
	began := time.Now()
	result := make(chan error, 1)
	go func() { result <- run() }()

	file, ok := p.Out.(*os.File)
	terminal := ok && term.IsTerminal(int(file.Fd()))
	every := heartbeat
	if terminal {
		every = 150 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case err := <-result:
			if terminal {
				_, _ = fmt.Fprint(p.Out, "\r\033[K")
			}
			if err == nil {
				p.say("%s: done in %.1fs", what, time.Since(began).Seconds())
			}
			return err
		case <-tick.C:
			if terminal {
				_, _ = fmt.Fprintf(p.Out, "\r%s %c %s", p.elapsed(), `|/-\`[n%4], what)
			} else {
				p.say("%s: still running", what)
			}
		}
	}
}
