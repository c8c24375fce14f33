// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

// NewCommand is `comity probe`.
func NewCommand() *cobra.Command {
	var server, caFile string
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Check which API servers and URLs can be reached from here; used by kubectl comity join, verify and trace",
		Long: `Read a request as JSON from standard input and print the response as JSON:

  in:  {"targets": [{"target": "https://10.0.0.1:6443", "ca": "<base64 of PEM>"}, {"target": "http://10.244.1.5:8081/healthz"}], "timeoutSeconds": 5}
  out: [{"target": "https://10.0.0.1:6443", "error": "...", "milliseconds": 1.2}, ...]

A target with "ca" is an API server. Of the others, a URL is fetched, to host:port a TCP
connection is made, and a name is resolved.

The exit code is 0 if the checks were made, whatever they found.

With --server and --ca-file, only that server is checked, and the exit code is 1 if it cannot be used.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if server != "" {
				ca, err := os.ReadFile(caFile)
				if err != nil {
					return fmt.Errorf("--ca-file: %w", err)
				}
				result := Run(cmd.Context(), Request{Targets: []Target{{Target: server, CA: ca}}})[0]
				if result.Error != "" {
					return fmt.Errorf("%s cannot be used: %s", result.Target, result.Error)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s answered after %.0f ms\n", result.Target, result.Milliseconds)
				return err
			}
			var request Request
			if err := json.NewDecoder(cmd.InOrStdin()).Decode(&request); err != nil {
				return fmt.Errorf("standard input is not a request: %w; expected JSON, see comity probe --help", err)
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(Run(cmd.Context(), request))
		},
	}
	cmd.Flags().StringVar(&server, "server", "", "https://host:port to check, instead of the request on standard input")
	cmd.Flags().StringVar(&caFile, "ca-file", "", "file with the PEM certificates that verify --server")
	cmd.MarkFlagsRequiredTogether("server", "ca-file")
	return cmd
}

// NewServeCommand is `comity serve`.
func NewServeCommand() *cobra.Command {
	var port uint16
	var text string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer every HTTP request with a fixed text; used by kubectl comity verify",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// An empty host listens on every address of both families.
			listener, err := new(net.ListenConfig).Listen(cmd.Context(), "tcp", ":"+strconv.Itoa(int(port)))
			if err != nil {
				return fmt.Errorf("--port %d: %w", port, err)
			}
			return Serve(cmd.Context(), listener, target(text))
		},
	}
	cmd.Flags().Uint16Var(&port, "port", 8080, "TCP port to listen on, on every address; 0 chooses a free one")
	cmd.Flags().StringVar(&text, "text", "ok", "body of every answer")
	return cmd
}

// target answers every request with text.
func target(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
}

// Serve answers requests by handler until ctx ends.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	}
	return nil
}

const (
	// defaultTimeoutSeconds bounds a target if the request does not.
	defaultTimeoutSeconds = 5
	// parallel is how many targets are checked at once, so that a dozen clusters
	// behind a firewall that drops packets do not add up.
	parallel = 16
	// maxBody is how much of an answer is kept.
	maxBody = 4096
)

// Run checks every target of the request.
func Run(ctx context.Context, request Request) []Result {
	timeout := time.Duration(cmp.Or(max(request.TimeoutSeconds, 0), defaultTimeoutSeconds)) * time.Second
	results := make([]Result, len(request.Targets))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, target := range request.Targets {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			start, result := time.Now(), &results[i]
			result.Target = target.Target
			if err := target.check(ctx, result); err != nil {
				result.Error = explain(err)
			}
			result.Milliseconds = float64(time.Since(start).Round(10*time.Microsecond)) / float64(time.Millisecond)
			return nil // errors are results
		})
	}
	_ = group.Wait()
	return results
}

func (t Target) check(ctx context.Context, result *Result) (err error) {
	switch {
	case t.CA != nil, strings.Contains(t.Target, "/"):
		return t.fetch(ctx, result)
	case strings.Contains(t.Target, ":"):
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", t.Target)
		if err == nil {
			err = connection.Close()
		}
		return err
	}
	result.Addresses, err = net.DefaultResolver.LookupHost(ctx, t.Target)
	return err
}

// explain says why a connection failed, in the words of Go but for two of them: they are
// fixed in different places, and those of Go do not say where.
func explain(err error) string {
	dns, isDNS := errors.AsType[*net.DNSError](err)
	switch network, is := errors.AsType[net.Error](err); {
	case isDNS && dns.IsNotFound:
		return fmt.Sprintf("cannot resolve %s: no such host", dns.Name)
	case isDNS:
		return fmt.Sprintf("cannot resolve %s: the DNS server does not answer (%s)", dns.Name, dns.Err)
	case is && network.Timeout():
		return "timed out: no answer; a firewall may drop the packets, or no route leads back"
	}
	return err.Error()
}

// fetch makes one request over a connection of its own, so that kube-proxy chooses an endpoint
// each time. No proxy is used: the agent's own connections to peers use none either. An API
// server is asked for its version, which it answers to everybody or refuses; either proves that
// it can be reached and that the CA verifies it. Any other URL has to answer 200.
func (t Target) fetch(ctx context.Context, result *Result) error {
	network, known := map[string]string{"": "tcp", "IPv4": "tcp4", "IPv6": "tcp6"}[t.Family]
	if !known {
		return fmt.Errorf("the family is %q; expected none, IPv4 or IPv6", t.Family)
	}
	scheme, roots := "http", x509.NewCertPool()
	if t.CA != nil {
		scheme = "https"
		if !roots.AppendCertsFromPEM(t.CA) {
			return errors.New("the CA holds no PEM certificate")
		}
	}
	u, err := url.Parse(t.Target)
	if err != nil || u.Scheme != scheme || u.Host == "" {
		return fmt.Errorf("%q is not a URL; expected %s://host:port", t.Target, scheme)
	}
	if t.CA != nil {
		u = u.JoinPath("version")
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { result.Address = info.Conn.RemoteAddr().String() },
	})
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	response, err := (&http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}).RoundTrip(request) // follows no redirect
	if err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	err = errors.Join(err, response.Body.Close())
	if result.Status, result.Body = response.StatusCode, string(body); err == nil && t.CA == nil && result.Status != http.StatusOK {
		err = fmt.Errorf("answers %d, expected 200; something else than the target may have answered", result.Status)
	}
	return err
}
