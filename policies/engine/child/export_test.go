// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"context"
	"fmt"
)

// MainPID is the process that answers requests.
func (c *Client) MainPID() int { return c.main.live.Load().cmd.Process.Pid }

// OccupySpare keeps requests from being evaluated apart.
func (c *Client) OccupySpare(ctx context.Context) (unlock func()) {
	unlock, err := c.spare.lock(ctx)
	if err != nil {
		panic(err)
	}
	return unlock
}

// EndMain ends the process that answers requests, as one does in which the evaluation of a
// subject does not stop.
func (c *Client) EndMain(subject string) {
	p := c.main.live.Load()
	_, _ = fmt.Fprintf(&p.stderr, "%c%s\n", named, subject)
	p.end()
}
