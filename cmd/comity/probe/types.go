// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package probe checks from inside a cluster what other clusters offer: whether
// their API servers answer and their Pods can be reached.
//
// It takes a Request and gives a Response with one Result for each target, in
// the same order. `kubectl comity` runs it in the agent's Pod as `comity probe`,
// with the Request as JSON on standard input and the Response as JSON on
// standard output. It sends no credential and writes nothing.
package probe

// Request lists what to check.
type Request struct {
	Servers []Server `json:"servers,omitempty"`
	// Addresses are host:port pairs to which a TCP connection is opened.
	Addresses []string `json:"addresses,omitempty"`
	// URLs are plain http and must answer 200. Unlike a connection alone, that
	// shows that no proxy on the way accepted it in the place of the target.
	URLs []string `json:"urls,omitempty"`
	// TimeoutSeconds bounds each target; 5 if zero.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`
}

// Server is an API server that another cluster's agent would connect to.
type Server struct {
	// URL is https://host:port.
	URL string `json:"url"`
	// CA is the PEM bundle that verifies URL.
	CA []byte `json:"ca"`
}

// Response is the answer to a Request.
type Response struct {
	// Version is that of the agent that ran the checks.
	Version   string   `json:"version"`
	Servers   []Result `json:"servers,omitempty"`
	Addresses []Result `json:"addresses,omitempty"`
	URLs      []Result `json:"urls,omitempty"`
}

// Result is the outcome for one target.
type Result struct {
	// Target is the URL or address that was checked.
	Target string `json:"target"`
	// Error says why the target cannot be used; empty if it can. Any HTTP answer
	// of an API server whose certificate the CA verifies counts as usable.
	Error string `json:"error,omitempty"`
	// Milliseconds is how long the check took.
	Milliseconds float64 `json:"milliseconds"`
}
