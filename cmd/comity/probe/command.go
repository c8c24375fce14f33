// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// NewCommand is `comity probe`.
func NewCommand() *cobra.Command {
	var server, caFile string
	cmd := &cobra.Command{
		Use:   "probe",
		Short: "Check which API servers and URLs can be reached from here; used by kubectl comity join, verify and trace",
		Long: `Read a request as JSON from standard input and print the response as JSON:

  in:  {"servers": [{"url": "https://10.0.0.1:6443", "ca": "<base64 of PEM>"}], "urls": ["http://10.244.1.5:8081/healthz"], "timeoutSeconds": 5}
  out: {"servers": [{"target": "...", "error": "...", "milliseconds": 1.2}], "urls": [...]}

With "names", these are resolved; with "addresses", a TCP connection is made to each.

The exit code is 0 if the checks were made, whatever they found.

With --server and --ca-file, only that server is checked, and the exit code is 1 if it cannot be used.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if (server == "") != (caFile == "") {
				return errors.New("--server and --ca-file belong together: expected both or none")
			}
			return cobra.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if server != "" {
				return probeOne(cmd.Context(), cmd.OutOrStdout(), server, caFile)
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
	return cmd
}

// probeOne checks one server. The error says why it cannot be used.
func probeOne(ctx context.Context, out io.Writer, server, caFile string) error {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return fmt.Errorf("--ca-file: %w", err)
	}
	result := Run(ctx, Request{Servers: []Server{{URL: server, CA: ca}}}).Servers[0]
	if result.Error != "" {
		return fmt.Errorf("%s cannot be used: %s", result.Target, result.Error)
	}
	_, err = fmt.Fprintf(out, "%s answered after %.0f ms\n", result.Target, result.Milliseconds)
	return err
}

// NewServeCommand is `comity serve`.
func NewServeCommand() *cobra.Command {
	var (
		port uint16
		text string
	)
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
	cmd.Flags().StringVar(&text, "text", "ok", "body of every answer, but for /readyz, which answers ok")
	return cmd
}

// target answers every request with text, but for /readyz.
func target(text string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	return mux
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
