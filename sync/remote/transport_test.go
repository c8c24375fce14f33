// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"errors"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/comity-mcs/comity/sync/remote/budget"
)

func TestEveryRequestButAWatchHasADeadline(t *testing.T) {
	released := make(chan struct{})
	server, ca := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begins" {
			w.(http.Flusher).Flush()
		}
		if r.URL.Query().Get("watch") != "" {
			time.Sleep(200 * time.Millisecond) // longer than the deadline
			_, _ = io.WriteString(w, "event")
			return
		}
		<-released
	})
	defer server.Close()
	defer close(released)
	transport := NewTransport("a", budget.Limits{})
	transport.timeout = 100 * time.Millisecond
	if err := transport.Use(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}); err != nil {
		t.Fatal(err)
	}
	get := func(path string) (string, error) {
		answer, err := (&http.Client{Transport: transport}).Get(server.URL + path)
		if err != nil {
			return "", err
		}
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		return string(text), err
	}
	for _, path := range []string{"/never", "/begins"} {
		if _, err := get(path); !errors.Is(err, os.ErrDeadlineExceeded) && !os.IsTimeout(err) {
			t.Errorf("%s: got %v, want that the deadline is exceeded", path, err)
		}
	}
	if text, err := get("/begins?watch=true"); err != nil || text != "event" {
		t.Errorf("watch: got %q, %v", text, err)
	}
}
