// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
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
	// maxBody is how much of an answer is kept.
	maxBody = 4096
)

// Run checks every target of the request.
func Run(ctx context.Context, request Request) Response {
	timeout := time.Duration(request.TimeoutSeconds) * time.Second
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	response := Response{
		Servers: make([]Result, len(request.Servers)), URLs: make([]Result, len(request.URLs)),
		Names: make([]Result, len(request.Names)), Addresses: make([]Result, len(request.Addresses)),
	}
	var group errgroup.Group
	group.SetLimit(parallel)
	measure := func(result *Result, check func(context.Context) error) {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			start := time.Now()
			if err := check(ctx); err != nil {
				result.Error = explain(err)
			}
			result.Milliseconds = float64(time.Since(start).Round(10*time.Microsecond)) / float64(time.Millisecond)
			return nil // errors are results
		})
	}
	for i, server := range request.Servers {
		response.Servers[i].Target = server.URL
		measure(&response.Servers[i], func(ctx context.Context) error { return checkServer(ctx, server) })
	}
	for i, target := range request.URLs {
		result := &response.URLs[i]
		result.Target = target
		measure(result, func(ctx context.Context) error { return checkURL(ctx, request.Family, result) })
	}
	for i, name := range request.Names {
		result := &response.Names[i]
		result.Target = name
		measure(result, func(ctx context.Context) (err error) {
			result.Addresses, err = net.DefaultResolver.LookupHost(ctx, name)
			return err
		})
	}
	for i, address := range request.Addresses {
		response.Addresses[i].Target = address
		measure(&response.Addresses[i], func(ctx context.Context) error {
			connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err == nil {
				err = connection.Close()
			}
			return err
		})
	}
	_ = group.Wait()
	return response
}

// explain says why a connection failed, in the words of Go but for two of them: they are
// mended in different places, and those of Go do not say where.
func explain(err error) string {
	var (
		dns     *net.DNSError
		network net.Error
		request *url.Error
	)
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Sprintf("cannot resolve %s: no such host", dns.Name)
	case errors.As(err, &dns):
		return fmt.Sprintf("cannot resolve %s: the DNS server does not answer (%s)", dns.Name, dns.Err)
	case errors.As(err, &network) && network.Timeout():
		return "timed out: no answer; a firewall may drop the packets, or no route leads back"
	case errors.As(err, &request):
		return request.Err.Error() // without the URL, which is the target of the result
	}
	return err.Error()
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
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	return get(ctx, u.JoinPath("version").String(), transport, &Result{})
}

// checkURL demands 200 of a plain http URL.
func checkURL(ctx context.Context, family string, result *Result) error {
	u, err := url.Parse(result.Target)
	if err != nil || u.Scheme != "http" || u.Host == "" {
		return fmt.Errorf("%q is not a URL; expected http://host:port/path", result.Target)
	}
	network, known := map[string]string{"": "tcp", "IPv4": "tcp4", "IPv6": "tcp6"}[family]
	if !known {
		return fmt.Errorf("the family is %q; expected none, IPv4 or IPv6", family)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	if err := get(ctx, result.Target, transport, result); err != nil {
		return err
	}
	if result.Status != http.StatusOK {
		return fmt.Errorf("answers %d, expected 200; something else than the target may have answered", result.Status)
	}
	return nil
}

// get makes one request over a connection of its own, so that kube-proxy chooses an
// endpoint each time. No proxy is used: the agent's own connections to peers use none either.
func get(ctx context.Context, target string, transport *http.Transport, result *Result) error {
	transport.DisableKeepAlives = true
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { result.Address = info.Conn.RemoteAddr().String() },
	})
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	result.Status, result.Body = response.StatusCode, string(body)
	return errors.Join(err, response.Body.Close())
}
