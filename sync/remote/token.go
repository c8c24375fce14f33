// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// tokenTimeout bounds the request that tries a token.
	tokenTimeout = 10 * time.Second
	// tokenRetry is how soon a token that was refused is tried again.
	tokenRetry = 10 * time.Second
)

// Renew uses the token of config from now on, for every further request; open
// watches stay open. The token is tried first: as long as the peer refuses it, the
// present one stays in use, and State says why. Renew reports false, and does
// nothing, if config differs in more than the token, or if not everything was
// listed yet: then a new Connection is quicker.
func (c *Connection) Renew(config *rest.Config) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.listed || !c.transport.DiffersInToken(config) {
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
