// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package probe checks from inside a cluster what other clusters offer: whether
// their API servers answer and their Pods can be reached.
//
// It takes a Request and gives one Result for each target, in the same order.
// `kubectl comity` runs it in a Pod of Comity's image as `comity probe`, with the Request
// as JSON on standard input and the Results as JSON on standard output, and `comity
// serve` as the target of kubectl comity verify. Neither needs the Kubernetes API, sends
// a credential or writes anything.
package probe

// Request lists what to check.
type Request struct {
	Targets []Target `json:"targets"`
	// TimeoutSeconds bounds each target; 5 if zero.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`
}

// Target is one of four, by its form:
//
//   - an API server that another cluster's agent would connect to: https://host:port with CA;
//   - a plain http URL, which must answer 200. Unlike a connection alone, that shows that no
//     proxy on the way accepted it in the place of the target;
//   - host:port, to which a TCP connection is made;
//   - a name, which is resolved.
type Target struct {
	Target string `json:"target"`
	// CA is the PEM bundle that verifies an API server.
	CA []byte `json:"ca,omitempty"`
	// Family is the only one over which a URL is fetched, IPv4 or IPv6; any if empty.
	Family string `json:"family,omitempty"`
}

// Result is the outcome for one target.
type Result struct {
	// Target is that of the request.
	Target string `json:"target"`
	// Error says why the target cannot be used; empty if it can. Any HTTP answer
	// of an API server whose certificate the CA verifies counts as usable.
	Error string `json:"error,omitempty"`
	// Milliseconds is how long the check took, name resolution included.
	Milliseconds float64 `json:"milliseconds"`
	// Status and Body are those of the answer of a URL, and Address is the host:port that
	// was connected to.
	Status  int    `json:"status,omitempty"`
	Body    string `json:"body,omitempty"`
	Address string `json:"address,omitempty"`
	// Addresses are what a name resolves to.
	Addresses []string `json:"addresses,omitempty"`
}
