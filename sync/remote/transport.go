// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"net"
	"net/http"
	"reflect"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/budget"
)

const (
	// dialTimeout bounds how long a connection takes to open.
	dialTimeout = 10 * time.Second
	// requestTimeout bounds every request but a watch. A watch ends by the HTTP/2
	// health check, or because the Lease of the peer is not read any more.
	requestTimeout = 60 * time.Second
)

// Transport sends requests to one API server with the credentials that it was
// given last. Clients, caches and open watches outlive their credentials: the
// next request uses the new ones. All methods may be called from any goroutine.
type Transport struct {
	self    model.ClusterID
	timeout time.Duration
	// responseBytes is the maximal size of a response that is no watch of a feed.
	responseBytes int64
	// flow is how fast all responses are read, but those with Leases; leases is how fast
	// these are.
	flow, leases *flow
	current      atomic.Pointer[credentials]
}

// credentials are a configuration and a transport that verifies its server and
// sends everything but its token.
type credentials struct {
	config *rest.Config
	base   http.RoundTripper
}

// NewTransport returns a Transport of cluster self that has no credentials yet.
func NewTransport(self model.ClusterID) *Transport {
	t := &Transport{self: self, timeout: requestTimeout}
	t.limit(budget.Limits{})
	return t
}

// limit sets what is read of a response, before the first request.
func (t *Transport) limit(limits budget.Limits) {
	limits.SetDefaults()
	t.responseBytes = limits.ResponseBytes
	t.flow = newFlow(limits.BytesPerSecond, limits.BurstBytes, "")
	t.leases = newFlow(smallBytes, readSize, " of Leases")
}

// Use has every further request sent with the credentials of config. Its error
// never holds a credential.
func (t *Transport) Use(config *rest.Config) error {
	without := withoutToken(config)
	if now := t.current.Load(); now != nil && reflect.DeepEqual(withoutToken(now.config), without) {
		t.current.Store(&credentials{config, now.base}) // with the TCP connections that are open
		return nil
	}
	without.UserAgent = "comity/" + string(t.self)
	without.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	base, err := rest.TransportFor(without)
	if err != nil {
		return errors.New("the credentials cannot be used")
	}
	t.current.Store(&credentials{config, base})
	return nil
}

func withoutToken(config *rest.Config) *rest.Config {
	out := rest.CopyConfig(config)
	out.BearerToken = ""
	return out
}

// Config is what was given to Use last; nil before.
func (t *Transport) Config() *rest.Config {
	if now := t.current.Load(); now != nil {
		return now.config
	}
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
	if use.config.BearerToken != "" {
		request.Header.Set("Authorization", "Bearer "+use.config.BearerToken)
	}
	response, err := use.base.RoundTrip(request)
	if err != nil {
		cancel()
		return nil, err
	}
	m, is := request.Context().Value(meterKey{}).(*meter)
	if !is {
		m = &meter{limit: t.responseBytes, what: "one response"}
	}
	speed := t.flow
	if request.Context().Value(leaseKey{}) != nil {
		speed = t.leases
	}
	response.Body = &meteredBody{ReadCloser: response.Body, ctx: ctx, cancel: cancel, flow: speed, meter: m}
	return response, nil
}

// WrappedRoundTripper lets idle connections be closed through a Transport.
func (t *Transport) WrappedRoundTripper() http.RoundTripper { return t.current.Load().base }

// NewClient returns a client that follows no redirect. An API server does not
// redirect; one that does would have this pod send its token to any server.
func NewClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
