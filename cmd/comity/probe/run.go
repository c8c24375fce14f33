// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// defaultTimeout bounds a target if the request does not.
	defaultTimeout = 5 * time.Second
	// parallel is how many targets are checked at once, so that a dozen clusters
	// behind a firewall that drops packets do not add up.
	parallel = 16
)

// Run checks every target of the request.
func Run(ctx context.Context, request Request) Response {
	timeout := time.Duration(request.TimeoutSeconds) * time.Second
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	response := Response{
		Servers: make([]Result, len(request.Servers)), Addresses: make([]Result, len(request.Addresses)), URLs: make([]Result, len(request.URLs)),
	}
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, server := range request.Servers {
		group.Go(func() error {
			response.Servers[i] = measure(ctx, timeout, server.URL, func(ctx context.Context) error { return checkServer(ctx, server) })
			return nil
		})
	}
	for i, address := range request.Addresses {
		group.Go(func() error {
			response.Addresses[i] = measure(ctx, timeout, address, func(ctx context.Context) error { return checkAddress(ctx, address) })
			return nil
		})
	}
	for i, target := range request.URLs {
		group.Go(func() error {
			response.URLs[i] = measure(ctx, timeout, target, func(ctx context.Context) error { return checkURL(ctx, target) })
			return nil
		})
	}
	_ = group.Wait() // errors are results
	return response
}

func measure(ctx context.Context, timeout time.Duration, target string, check func(context.Context) error) Result {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	start := time.Now()
	result := Result{Target: target}
	if err := check(ctx); err != nil {
		result.Error = Explain(err)
	}
	result.Milliseconds = Milliseconds(time.Since(start))
	return result
}

// Milliseconds is a duration as the JSON of the binary states it, to the
// hundredth.
func Milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

// checkServer asks for the version, which an API server answers to everybody or
// refuses; either proves that it can be reached and that the CA verifies it.
func checkServer(ctx context.Context, server Server) error {
	u, err := url.Parse(server.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is not a server URL; expected https://host:port", server.URL)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(server.CA) {
		return errors.New("the CA holds no PEM certificate")
	}
	// No proxy: the agent's own connections to peers use none either.
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("version").String(), nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// checkAddress opens a TCP connection and closes it.
func checkAddress(ctx context.Context, address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("%q is not an address; expected host:port", address)
	}
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}

// checkURL demands 200 of a plain http URL.
func checkURL(ctx context.Context, target string) error {
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "http" || u.Host == "" {
		return fmt.Errorf("%q is not a URL; expected http://host:port/path", target)
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("answers %s, expected 200; something else than the target may have answered", response.Status)
	}
	return errors.Join(err, response.Body.Close())
}
