// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/budget"
)

const (
	// dialTimeout bounds how long a connection takes to open.
	dialTimeout = 10 * time.Second
	// requestTimeout bounds every request but a watch, its body included. A watch ends by
	// the HTTP/2 health check, or because the Lease of the peer is not read any more.
	requestTimeout = 60 * time.Second
	// freshTimeout bounds a request over a connection of its own, opening that included.
	freshTimeout = 5 * time.Second
	// headerBytes bounds the headers of a response. Those of an API server have less than
	// a few kilobytes.
	headerBytes = 64 << 10
)

// Transport sends requests to one API server with the credentials that it was given
// last. Clients, caches and open watches outlive their credentials: the next request uses
// the new ones. Every request of the agent to another API server passes a Transport: it
// bounds the time, the headers and the decompressed body of a response, and passes on no
// header by which a server would direct the client. All methods may be called from any goroutine.
type Transport struct {
	self    model.ClusterID
	timeout time.Duration
	// responseBytes is the maximal size of a response that is no watch of a feed.
	responseBytes int64
	// flow is how fast responses are read, unless the meter of a request says otherwise.
	flow    *flow
	current atomic.Pointer[credentials]
}

// credentials are a token, and a transport that verifies the server and sends everything else.
type credentials struct {
	token string
	base  *http.Transport
}

// NewTransport returns a Transport of cluster self that has no credentials yet. Zero fields
// of limits have the defaults.
func NewTransport(self model.ClusterID, limits budget.Limits) *Transport {
	limits.SetDefaults()
	return &Transport{
		self: self, timeout: requestTimeout, responseBytes: limits.ResponseBytes,
		flow: newFlow(limits.BytesPerSecond, limits.BurstBytes, ""),
	}
}

// freshClient is a client for one request with a small response, over a connection of its
// own: an open connection may be one whose packets are lost.
func freshClient(self model.ClusterID, config *rest.Config) (*http.Client, error) {
	transport := NewTransport(self, budget.Limits{ResponseBytes: smallBytes})
	transport.timeout = freshTimeout
	return &http.Client{Transport: transport}, transport.Use(config)
}

// Use has every further request sent with the credentials of config. Its error
// never holds a credential.
func (t *Transport) Use(config *rest.Config) error {
	verifying, err := rest.TLSConfigFor(config)
	if err != nil {
		return errors.New("the credentials cannot be used")
	}
	t.current.Store(&credentials{config.BearerToken, utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig:        verifying,
		DialContext:            (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		MaxResponseHeaderBytes: headerBytes,
	})})
	return nil
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	use := t.current.Load()
	ctx, cancel := request.Context(), context.CancelFunc(func() {})
	if request.URL.Query().Get("watch") == "" {
		ctx, cancel = context.WithTimeout(ctx, t.timeout)
	}
	request = request.Clone(ctx)
	request.Header.Set("User-Agent", "comity/"+string(t.self))
	if use.token != "" {
		request.Header.Set("Authorization", "Bearer "+use.token)
	}
	response, err := use.base.RoundTrip(request)
	if err != nil {
		cancel()
		return nil, err
	}
	// Of the headers, a client needs this one. Location would have this pod send its token to
	// any server, Retry-After would have it wait as long as the server likes, and Warning would
	// have it log what the server likes.
	response.Header = http.Header{"Content-Type": response.Header["Content-Type"]}
	m, is := ctx.Value(meterKey{}).(*meter)
	if !is {
		m = &meter{limit: t.responseBytes, what: "one response", flow: t.flow}
	}
	response.Body = &meteredBody{ReadCloser: response.Body, ctx: ctx, cancel: cancel, meter: m}
	return response, nil
}

// CloseIdleConnections is what http.Client calls.
func (t *Transport) CloseIdleConnections() { t.current.Load().base.CloseIdleConnections() }
