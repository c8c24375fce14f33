// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/budget"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
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

// credentials are a token, and a transport that verifies the server and sends everything else
// over connections that dialer opens.
type credentials struct {
	token  string
	base   *http.Transport
	dialer *connrotation.Dialer
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
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext)
	t.current.Store(&credentials{config.BearerToken, utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig:        verifying,
		DialContext:            dialer.DialContext,
		MaxResponseHeaderBytes: headerBytes,
	}), dialer})
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

// renewalOf identifies one renewal of a Lease. Two are compared for equality only,
// because the clocks of two clusters may differ.
func renewalOf(lease *coordinationv1.Lease) string {
	if lease.Spec.RenewTime == nil {
		return string(lease.UID)
	}
	return string(lease.UID) + "@" + strconv.FormatInt(lease.Spec.RenewTime.UnixNano(), 10)
}

func (c *Connection) leaseChanged(lease *coordinationv1.Lease) {
	if lease.Name != string(c.opts.ID) {
		return
	}
	c.mu.Lock()
	_, c.catchingUp = lease.Annotations[model.AnnotationCatchingUp]
	c.mu.Unlock()
	c.refresh()
	c.opts.Hooks.LeaseRead(c, renewalOf(lease))
}

// ReadLease reads the peer's Lease once, over a connection of its own. The failure says
// why there is no renewal.
func ReadLease(ctx context.Context, id, self model.ClusterID, config *rest.Config) (renewal string, failure Failure) {
	f := &feed{kind: "Leases", namespace: model.ExchangeNamespace(id)}
	lease, err := once(self, config, coordinationclient.NewForConfigAndClient, func(c *coordinationclient.CoordinationV1Client) (*coordinationv1.Lease, error) {
		return c.Leases(f.namespace).Get(ctx, string(id), metav1.GetOptions{})
	})
	switch {
	case apierrors.IsNotFound(err):
		return "", Failure{ReasonHeartbeatMissing, fmt.Sprintf("Lease %s/%s: does not exist in the peer; remedy: check that Comity runs in cluster %s", f.namespace, id, id)}
	case err != nil:
		return "", describe(id, f, err)
	}
	return renewalOf(lease), Failure{}
}

// RenewSecret requests a new token for the ServiceAccount that the token in the kubeconfig
// of secret names, and has local write it there. It reports false if the token belongs to no
// ServiceAccount or is not old enough yet. A token is renewed when two fifths of its
// lifetime are left, so a request that fails is repeated in time.
func RenewSecret(ctx context.Context, self model.ClusterID, secret *corev1.Secret, local client.Writer, now time.Time) (bool, error) {
	of := fmt.Sprintf("secret %s/%s, key %s", secret.Namespace, secret.Name, kubeconfig.SecretKey)
	config, err := kubeconfig.Sanitize(secret.Data[kubeconfig.SecretKey])
	if err != nil {
		return false, fmt.Errorf("%s: %w", of, err)
	}
	claims, ok := kubeconfig.ReadToken(config.BearerToken)
	if !ok || !claims.Due(now) {
		return false, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(claims.Expires - claims.Issued), Audiences: claims.Audience}}
	answer, err := once(self, config, corev1client.NewForConfigAndClient, func(c *corev1client.CoreV1Client) (*authenticationv1.TokenRequest, error) {
		return c.ServiceAccounts(claims.Namespace).CreateToken(ctx, claims.Name, request, metav1.CreateOptions{})
	})
	if err != nil {
		return false, fmt.Errorf("TokenRequest for ServiceAccount %s/%s: %s", claims.Namespace, claims.Name, model.OneLine(err.Error(), 200))
	}
	renewed := secret.DeepCopy()
	if renewed.Data[kubeconfig.SecretKey], err = kubeconfig.WithToken(secret.Data[kubeconfig.SecretKey], answer.Status.Token); err != nil {
		return false, fmt.Errorf("%s: %w", of, err)
	}
	// With the resource version, so that a Secret that join wrote meanwhile is not overwritten.
	if err := local.Patch(ctx, renewed, client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("write %s: %w", of, err)
	}
	return true, nil
}

// once makes one request over a connection of its own.
func once[Client, Answer any](
	self model.ClusterID, config *rest.Config, newClient func(*rest.Config, *http.Client) (Client, error), request func(Client) (Answer, error),
) (answer Answer, err error) {
	fresh, err := freshClient(self, config)
	if err != nil {
		return answer, err
	}
	defer fresh.CloseIdleConnections()
	c, err := newClient(config, fresh)
	if err != nil {
		return answer, err
	}
	return request(c)
}
