// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package child

// MainPID is the process that answers requests.
func (c *Client) MainPID() int { return c.main.live.Load().cmd.Process.Pid }
