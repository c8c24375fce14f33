// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/comity/probe"
)

// maxBody is how much of an answer is kept.
const maxBody = 4096

// Families of --family and the networks that they dial.
var families = map[string]string{"any": "tcp", "ipv4": "tcp4", "ipv6": "tcp6"}

// Fetched is what `comity fetch` prints as JSON: one Answer for each request, in
// the order of the requests.
type Fetched struct {
	URL     string   `json:"url"`
	Answers []Answer `json:"answers"`
}

// Answer is the outcome of one request.
type Answer struct {
	// Status is the HTTP status code; 0 if there was no answer.
	Status int `json:"status,omitempty"`
	// Body is the start of the answer's body.
	Body string `json:"body,omitempty"`
	// Address is the host:port that was connected to.
	Address string `json:"address,omitempty"`
	// Error says why there was no answer; empty if there was one.
	Error string `json:"error,omitempty"`
	// Milliseconds is how long the request took, name resolution included.
	Milliseconds float64 `json:"milliseconds"`
}

// NewFetchCommand is `comity fetch`.
func NewFetchCommand() *cobra.Command {
	var (
		count   int
		timeout time.Duration
		family  string
		target  string
	)
	cmd := &cobra.Command{
		Use:   "fetch URL",
		Short: "Send HTTP requests and print the answers as JSON; used by kubectl comity verify",
		Long: `Send --count HTTP GET requests one after another, each over a connection of its own, and print the answers as JSON:

  {"url": "...", "answers": [{"status": 200, "body": "...", "address": "10.0.0.1:80", "milliseconds": 1.2}, {"error": "..."}]}

The exit code is 0 if the requests were made, whatever came back.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%d arguments given, expected one URL", len(args))
			}
			target = args[0]
			return validate(target, count, timeout, family)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := json.NewEncoder(cmd.OutOrStdout())
			return out.Encode(Fetched{URL: target, Answers: fetch(cmd.Context(), target, count, timeout, families[family])})
		},
	}
	cmd.Flags().IntVar(&count, "count", 1, "how many requests to send")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "how long each request may take")
	cmd.Flags().StringVar(&family, "family", "any", "IP family to connect over: any, ipv4 or ipv6")
	return cmd
}

func validate(target string, count int, timeout time.Duration, family string) error {
	u, err := url.Parse(target)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return fmt.Errorf("%q is not a URL; expected one such as http://web.shop.svc.clusterset.local", target)
	case count < 1:
		return fmt.Errorf("--count: %d given, expected at least 1", count)
	case timeout <= 0:
		return fmt.Errorf("--timeout: %s given, expected more than 0", timeout)
	case families[family] == "":
		return fmt.Errorf("--family: %q given, expected any, ipv4 or ipv6", family)
	}
	return nil
}

// fetch sends the requests. A connection for each makes kube-proxy choose an
// endpoint each time.
func fetch(ctx context.Context, target string, count int, timeout time.Duration, network string) []Answer {
	dialer := &net.Dialer{}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, address)
		},
	}}
	answers := make([]Answer, 0, count)
	for range count {
		if ctx.Err() != nil {
			break
		}
		answers = append(answers, one(ctx, client, target, timeout))
	}
	return answers
}

func one(ctx context.Context, client *http.Client, target string, timeout time.Duration) (answer Answer) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	start := time.Now()
	defer func() { answer.Milliseconds = probe.Milliseconds(time.Since(start)) }()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { answer.Address = info.Conn.RemoteAddr().String() },
	})
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return Answer{Error: err.Error()}
	}
	response, err := client.Do(request)
	if err != nil {
		answer.Error = probe.Explain(err)
		return answer
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	answer.Status, answer.Body = response.StatusCode, string(body)
	if err != nil && !errors.Is(err, io.EOF) {
		answer.Error = probe.Explain(err)
	}
	return answer
}
