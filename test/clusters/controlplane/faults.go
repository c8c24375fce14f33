// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"strings"

	"github.com/comity-mcs/comity/test/clusters/process"
)

// Kill ends a component at once, as a crash would.
func (c *Cluster) Kill(component string) error {
	return c.with(component, (*process.Process).Kill)
}

// Stop ends a component in order.
func (c *Cluster) Stop(component string) error {
	return c.with(component, (*process.Process).Stop)
}

// Pause freezes a component: what is connected to it stays so and gets no answer, as with a broken network.
func (c *Cluster) Pause(component string) error {
	return c.with(component, (*process.Process).Pause)
}

// Resume lets a paused component run on.
func (c *Cluster) Resume(component string) error {
	return c.with(component, (*process.Process).Resume)
}

// Start starts a component that was killed or stopped, on the same port and
// data, and waits until it is ready.
func (c *Cluster) Start(ctx context.Context, component string) error {
	return c.with(component, func(p *process.Process) error {
		if err := p.Start(); err != nil {
			return err
		}
		return p.Await(ctx, startTimeout, c.ready[component])
	})
}

// PID is the process id of a component that runs; 0 otherwise.
func (c *Cluster) PID(component string) int {
	p := c.component(component)
	if p == nil || !p.Running() {
		return 0
	}
	return p.PID()
}

func (c *Cluster) component(name string) *process.Process {
	for _, p := range c.components {
		if p.Name() == name {
			return p
		}
	}
	return nil
}

func (c *Cluster) with(component string, do func(*process.Process) error) error {
	if p := c.component(component); p != nil {
		return do(p)
	}
	names := make([]string, 0, len(c.components))
	for _, p := range c.components {
		names = append(names, p.Name())
	}
	return fmt.Errorf("cluster %s has no component %q: it has %s", c.id, component, strings.Join(names, ", "))
}
