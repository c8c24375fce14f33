// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// The pause after each creation is as long as that took. If endpoints of another cluster
// were written to an import within busyFor before, it is busyPause times as long, but
// longer by maxBusyPause at most: a change of endpoints is written within some 50 ms, so
// that most changes meet no creation, and a cluster that changes its endpoints every second
// still lets others create three imports a second.
const (
	busyPause    = 10
	maxBusyPause = 250 * time.Millisecond
	busyFor      = time.Second
)

// creations lets one import at a time be created of each of the other clusters, and the
// next one after a pause. A creation is some five writes, which allocate IP addresses: a
// cluster that joins with thousands of exports, or makes them without end, would
// otherwise take the workers and the API server from changes of what exists.
type creations struct {
	turns turns

	mu sync.Mutex
	// written is when slices of each cluster were written last to an import that exists.
	written map[model.ClusterID]time.Time
}

// begin reports whether an import may be written now. Only one of which nothing exists
// may have to wait: for a turn of any of its clusters. One that this cluster exports
// itself never waits. end is to be called with what was written.
func (c *creations) begin(in *plan.ImportInput) (end func([]plan.Action), now bool) {
	if exists(in) {
		return c.wrote, true
	}
	if in.Desired == nil {
		return func([]plan.Action) {}, true
	}
	var sources []model.ClusterID
	for _, constituent := range in.Desired.Constituents {
		if constituent.Cluster == in.Self {
			return func([]plan.Action) {}, true
		}
		sources = append(sources, constituent.Cluster)
	}
	for waiting := false; !waiting; {
		for _, source := range sources {
			if c.turns.take(source, in.Key) {
				begun := time.Now()
				return func([]plan.Action) { c.created(source, time.Since(begun)) }, true
			}
		}
		for _, source := range sources {
			waiting = c.turns.wait(source, in.Key) || waiting
		}
	}
	return nil, false
}

// exists reports whether something of an import exists. A Service whose name another
// import has taken is not of it.
func exists(in *plan.ImportInput) bool {
	return in.Current.Import != nil || slices.ContainsFunc(in.Current.Services, func(s *corev1.Service) bool {
		return s.Labels[model.LabelServiceName] == in.Key.Name
	})
}

// wrote notes the writes to an import that exists.
func (c *creations) wrote(actions []plan.Action) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.written == nil {
		c.written = map[model.ClusterID]time.Time{}
	}
	for _, a := range actions {
		if a.Source != "" {
			c.written[a.Source] = time.Now()
		}
	}
}

// created ends the turn of a cluster, an import of which took so long to create.
func (c *creations) created(source model.ClusterID, took time.Duration) {
	if c.busy(source) {
		took = min(busyPause*took, took+maxBusyPause)
	}
	time.AfterFunc(took, func() { c.turns.end(source) })
}

// busy reports whether slices of another cluster were written lately.
func (c *creations) busy(source model.ClusterID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for of, at := range c.written {
		if of != source && time.Since(at) < busyFor {
			return true
		}
	}
	return false
}
