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

// errFenced is the error of a write that leaderFence refused.
var errFenced = errors.New("not written: this replica has not renewed its Lease in time, and another replica may lead")

// leaderFence refuses writes of a replica that may no longer be the leader. A
// process that was suspended has queued work and outdated caches. Without the
// fence it would write before it notices that another replica holds the Lease.
type leaderFence struct {
	now func() time.Time
	// deadline is that of Timing.RenewDeadline.
	deadline time.Duration
	// renewed is when the last successful renewal was sent; nil before this
	// replica leads. A replica that never led may write, as all replicas do.
	renewed atomic.Pointer[time.Time]
}

// election wraps the transport of leader election and records renewals.
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

// guard wraps the transport of all other clients and refuses writes if the last
// renewal is older than the deadline.
func (f *leaderFence) guard(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if renewed := f.renewed.Load(); mutates(r) && renewed != nil && f.now().Sub(*renewed) > f.deadline {
			if r.Body != nil {
				_ = r.Body.Close() // a RoundTripper must close the body, also on an error
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
