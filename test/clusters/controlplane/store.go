// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Store writes into the cluster's etcd past the API server, which then serves
// what it would never have accepted: a peer's API server is the peer's.
type Store struct {
	url  string
	http *http.Client
}

// concurrent is how many requests to a store are sent at once.
const concurrent = 32

// Store opens the cluster's etcd.
func (c *Cluster) Store() (*Store, error) {
	certificate, err := tls.LoadX509KeyPair(c.pki.certFile("etcd"), c.pki.keyFile("etcd"))
	if err != nil {
		return nil, fmt.Errorf("open etcd of cluster %s: %w", c.id, err)
	}
	ca, err := os.ReadFile(c.pki.certFile("etcd-ca"))
	if err != nil {
		return nil, fmt.Errorf("open etcd of cluster %s: %w", c.id, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: roots, MinVersion: tls.VersionTLS12},
		MaxIdleConnsPerHost: concurrent, // else most requests would open a connection
	}
	return &Store{url: "https://" + address(c.ports.etcd), http: &http.Client{Transport: transport, Timeout: 10 * time.Second}}, nil
}

// Put stores an object, as JSON, under a path such as services/specs/default/web.
func (s *Store) Put(ctx context.Context, path string, object any) error {
	value, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("put %s: %w", path, err)
	}
	return s.call(ctx, "put", path, map[string][]byte{"key": registry(path), "value": value})
}

// Delete removes the object at path; one that is not there is no error.
func (s *Store) Delete(ctx context.Context, path string) error {
	return s.call(ctx, "deleterange", path, map[string][]byte{"key": registry(path)})
}

// registry is the key under which the API server keeps path.
func registry(path string) []byte { return []byte("/registry/" + path) }

// call uses etcd's JSON interface, in which keys and values are Base64, as
// package json writes bytes.
func (s *Store) call(ctx context.Context, method, path string, request map[string][]byte) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v3/kv/"+method, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	response, err := s.http.Do(r)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	said, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: etcd answers %s: %s", method, path, response.Status, said)
	}
	return nil
}
