// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

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
