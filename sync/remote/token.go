// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

const (
	// tokenTimeout bounds the request that tries a token.
	tokenTimeout = 10 * time.Second
	// tokenRetry is how soon a token that was refused is tried again.
	tokenRetry = 10 * time.Second
	// RenewTimeout bounds one request for a new token. A token is renewed when two
	// fifths of its lifetime are left, so a request that fails is repeated in time.
	RenewTimeout = 10 * time.Second
)

// Renew uses the token of config from now on, for every further request; open
// watches stay open. The token is tried first: as long as the peer refuses it, the
// present one stays in use, and State says why. Renew reports false, and does
// nothing, if config differs in more than the token, if not everything was listed
// yet, or if something cannot be read now: then a new Connection is quicker, since
// an informer waits for up to a minute before it tries again.
func (c *Connection) Renew(config *rest.Config) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.listed || len(c.failing) > 0 || !c.transport.DiffersInToken(config) {
		return false
	}
	select {
	case <-c.tokens:
	default:
	}
	c.tokens <- config
	c.renewing = true
	return true
}

// Renewing reports whether a token that was given to Renew is not in use yet.
func (c *Connection) Renewing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.renewing
}

// useTokens tries what Renew gives until ctx ends.
func (c *Connection) useTokens(ctx context.Context) {
	var config *rest.Config
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case config = <-c.tokens:
		case <-retry:
		}
		retry = nil
		if !c.useToken(ctx, config) {
			retry = time.After(tokenRetry)
		}
	}
}

// useToken reports whether the token of config is in use.
func (c *Connection) useToken(ctx context.Context, config *rest.Config) bool {
	err := c.tryToken(ctx, config)
	if err == nil {
		err = c.transport.Use(config)
	}
	if ctx.Err() != nil {
		return false
	}
	c.mu.Lock()
	c.refused = Failure{}
	if err != nil {
		c.refused = describe(c.opts.ID, c.feeds.members, err)
	}
	c.renewing = err != nil || len(c.tokens) > 0
	c.mu.Unlock()
	c.refresh()
	return err == nil
}

// tryToken reads with the token of config what every peer lets us read.
func (c *Connection) tryToken(ctx context.Context, config *rest.Config) error {
	if config.BearerToken == c.transport.Config().BearerToken {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	ctx, err := c.transport.onTrial(ctx, config)
	if err != nil {
		return err
	}
	_, err = c.readMember(ctx)
	return err
}

// RenewSecret requests a new token for the ServiceAccount that the token of
// config names, and returns secret with the new token in its kubeconfig. It returns
// nil if the token belongs to no ServiceAccount or is not old enough yet. It waits
// RenewTimeout at most and stores nothing.
func RenewSecret(ctx context.Context, config *rest.Config, httpClient *http.Client, secret *corev1.Secret, now time.Time) (*corev1.Secret, error) {
	claims, ok := kubeconfig.ReadToken(config.BearerToken)
	if !ok || !claims.Due(now) {
		return nil, nil
	}
	clients, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("client for renewal: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, RenewTimeout)
	defer cancel()
	seconds := claims.Expires - claims.Issued
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, Audiences: claims.Audience}}
	answer, err := clients.CoreV1().ServiceAccounts(claims.Namespace).CreateToken(ctx, claims.Name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("TokenRequest for ServiceAccount %s/%s: %s", claims.Namespace, claims.Name, model.OneLine(err.Error(), 200))
	}
	renewed := secret.DeepCopy()
	if renewed.Data[kubeconfig.SecretKey], err = kubeconfig.WithToken(secret.Data[kubeconfig.SecretKey], answer.Status.Token); err != nil {
		return nil, fmt.Errorf("secret %s/%s, key %s: %w", secret.Namespace, secret.Name, kubeconfig.SecretKey, err)
	}
	return renewed, nil
}
