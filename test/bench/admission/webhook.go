// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/engine/child"
	"github.com/comity-mcs/comity/policies/source"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/test/clusters/binaries"
	"github.com/comity-mcs/comity/webhook"
	"github.com/comity-mcs/comity/webhook/facts"
)

// baselines are the policies that Comity installs.
func baselines() ([]source.Policy, error) {
	root, err := binaries.ProjectRoot()
	if err != nil {
		return nil, err
	}
	return source.Read(filepath.Join(root, "charts", "comity", "files", "policies"))
}

// Baseline are the policies that Comity ships and enforces by default.
func Baseline() ([]engine.Policy, error) {
	found, err := baselines()
	if err != nil {
		return nil, err
	}
	var list []engine.Policy
	for _, b := range found {
		policy := engine.FromObject(b.Object, time.Now())
		list = append(list, engine.Policy{Name: policy.Name, ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: policy.Rego, Parameters: policy.Parameters}})
	}
	return list, nil
}

// Engine is Comity's, with these policies. A program that uses it calls Evaluate first.
func Engine(opts engine.Options, list ...engine.Policy) (*child.Client, error) {
	opts.Registerer = prometheus.NewRegistry()
	e := child.New(opts)
	for _, result := range e.Load(list) {
		if result.Err != nil {
			return nil, fmt.Errorf("policy %s: %w", result.Name, result.Err)
		}
	}
	return e, nil
}

// Reviewer reads the facts of the world as the agent does.
func (w *World) Reviewer(evaluator facts.Evaluator) facts.Reviewer {
	return facts.Reviewer{
		Reader:    facts.Reader{Client: w, Cluster: self, Peers: w, PeerCache: facts.NewPeerCache()},
		Evaluator: evaluator,
	}
}

// Handler is the webhook of ServiceExports, as Comity serves it.
func Handler(reviewer webhook.Reviewer) (http.Handler, error) {
	handlers := webhook.Handlers(webhook.Options{Reviewer: reviewer, Registerer: prometheus.NewRegistry()})
	return handlers[webhook.PathValidateServiceExport], nil
}

// Client sends requests to a handler in this process. It allocates nothing itself once
// it has sent one.
type Client struct {
	handler http.Handler
	request *http.Request
	body    *bytes.Reader
	closer  io.ReadCloser
	header  http.Header
	status  int
	answer  bytes.Buffer
}

// NewClient is a client of the handler.
func NewClient(ctx context.Context, handler http.Handler) (*Client, error) {
	c := &Client{handler: handler, body: bytes.NewReader(nil), header: http.Header{}}
	c.closer = io.NopCloser(c.body)
	var err error
	c.request, err = http.NewRequestWithContext(ctx, http.MethodPost, webhook.PathValidateServiceExport+"?timeout=3s", http.NoBody)
	if err != nil {
		return nil, err
	}
	c.request.Header.Set("Content-Type", "application/json")
	return c, nil
}

// Send gives the answer to an AdmissionReview, which is valid until the next one.
func (c *Client) Send(review []byte) []byte {
	c.body.Reset(review)
	c.request.Body, c.request.ContentLength = c.closer, int64(len(review))
	c.answer.Reset()
	c.handler.ServeHTTP(c, c.request)
	return c.answer.Bytes()
}

var allowed = []byte(`"allowed":true`)

// Allowed sends a request that is to be allowed; the error has the answer.
func (c *Client) Allowed(review []byte) error {
	if answer := c.Send(review); !bytes.Contains(answer, allowed) {
		return fmt.Errorf("the request was not allowed: %d %s", c.status, answer)
	}
	return nil
}

// Header implements http.ResponseWriter.
func (c *Client) Header() http.Header { return c.header }

// WriteHeader implements http.ResponseWriter.
func (c *Client) WriteHeader(status int) { c.status = status }

// SetReadDeadline is what a connection has.
func (c *Client) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is what a connection has.
func (c *Client) SetWriteDeadline(time.Time) error { return nil }

// Write implements http.ResponseWriter.
func (c *Client) Write(p []byte) (int, error) { return c.answer.Write(p) }
