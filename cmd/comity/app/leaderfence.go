// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Times of leader election. A leader renews its Lease every retryPeriod and may
// go on for renewDeadline without; the next one leads after leaseDuration at the
// earliest, so that never two write at once, whatever froze the first.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// errFenced is the error of a write that was not sent.
var errFenced = errors.New("not written: this replica has not renewed its leadership in time, and another one may lead")

// leaderFence keeps a replica that led from writing once it may lead no longer. A
// process that was frozen finds its work queued and its view of the peers old,
// and would do it before it notices that its Lease went to another.
type leaderFence struct {
	now func() time.Time
	// renewed is when the last successful renewal was sent; nil before this
	// replica leads. What all replicas write needs no leadership.
	renewed atomic.Pointer[time.Time]
}

// newLeaderFence returns the fence of a replica that does not lead yet.
func newLeaderFence() *leaderFence { return &leaderFence{now: time.Now} }

// election notes successful renewals. It is for the client of leader election.
func (f *leaderFence) election(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		sent := f.now()
		response, err := next.RoundTrip(r)
		if err == nil && mutates(r) && response.StatusCode < 300 && strings.Contains(r.URL.Path, "/leases") {
			f.renewed.Store(&sent)
		}
		return response, err
	})
}

// guard refuses writes of a replica that led and may do so no longer.
func (f *leaderFence) guard(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if renewed := f.renewed.Load(); mutates(r) && renewed != nil && f.now().Sub(*renewed) > renewDeadline {
			if r.Body != nil {
				_ = r.Body.Close() // a RoundTripper closes what it is given; nothing was read of it
			}
			return nil, errFenced
		}
		return next.RoundTrip(r)
	})
}

func mutates(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
