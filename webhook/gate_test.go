// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// gated is a server behind a gate, whose handler answers with what answer returns.
func gated(t *testing.T, answer func(body []byte)) (*gate, *httptest.Server, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	g := newGate(Options{Registerer: registry})
	g.wait = 50 * time.Millisecond
	server := httptest.NewServer(g.through(func(_ http.ResponseWriter, _ *http.Request, body []byte, _ time.Duration) { answer(body) }))
	t.Cleanup(server.Close)
	return g, server, registry
}

// rejections are the requests that were rejected, for whatever reason.
func rejections(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			sum += metric.GetCounter().GetValue()
		}
	}
	return sum
}

// post sends a body and returns the code and the message of the answer.
func post(t *testing.T, url string, body io.Reader) (int, string) {
	t.Helper()
	response, err := http.Post(url, "application/json", body)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(response.Body)
	var status metav1.Status
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		return response.StatusCode, status.Message
	}
	return response.StatusCode, string(text)
}

func TestFortyLargeRequestsAreNotReadAtOnce(t *testing.T) {
	var now, most atomic.Int64
	release := make(chan struct{})
	_, server, registry := gated(t, func([]byte) {
		most.Store(max(most.Load(), now.Add(1)))
		<-release
		now.Add(-1)
	})
	body := bytes.Repeat([]byte(" "), 6<<20)
	var done sync.WaitGroup
	var busy atomic.Int64
	for range 40 {
		done.Go(func() {
			switch code, message := post(t, server.URL, bytes.NewReader(body)); {
			case code == http.StatusTooManyRequests && strings.Contains(message, "try again"):
				busy.Add(1)
			case code == 0: // the answer came while the body was being sent
				busy.Add(1)
			case code != http.StatusOK:
				t.Errorf("code %d: %s", code, message)
			}
		})
	}
	for deadline := time.Now().Add(10 * time.Second); rejections(t, registry) < 40-largeSlots; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not all but three are rejected")
		}
	}
	close(release)
	done.Wait()
	if n := most.Load(); n > largeSlots || busy.Load() != 40-largeSlots {
		t.Errorf("%d at once, %d of 40 rejected", n, busy.Load())
	}
}

// besideLargeOnes is a server to which a large request is sent for each slot of these,
// which it answers after release.
func besideLargeOnes(t *testing.T) (server *httptest.Server, release func()) {
	t.Helper()
	end := make(chan struct{})
	_, server, _ = gated(t, func(body []byte) {
		if len(body) > smallBody {
			<-end
		}
	})
	var done sync.WaitGroup
	for range largeSlots {
		done.Go(func() { post(t, server.URL, bytes.NewReader(make([]byte, 1<<20))) })
	}
	return server, func() {
		close(end)
		done.Wait()
	}
}

func TestASmallRequestPassesBesideLargeOnes(t *testing.T) {
	server, release := besideLargeOnes(t)
	if code, message := post(t, server.URL, strings.NewReader("{}")); code != http.StatusOK {
		t.Errorf("code %d: %s", code, message)
	}
	release()
}

func TestWhatNoAPIServerSendsIsRejectedUnread(t *testing.T) {
	g, server, _ := gated(t, func([]byte) { t.Error("it is read") })
	request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(""))
	request.ContentLength = maxBody + 1
	answer := httptest.NewRecorder()
	g.through(func(http.ResponseWriter, *http.Request, []byte, time.Duration) { t.Error("it is read") }).ServeHTTP(answer, request)
	if answer.Code != http.StatusRequestEntityTooLarge || !strings.Contains(answer.Body.String(), "expected at most 7340032") {
		t.Errorf("code %d: %s", answer.Code, answer.Body)
	}
	if response, err := http.Get(server.URL); err != nil || response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %v, error %v", response, err)
	}
	t.Log("nor is one read to its end that does not say its size")
	_, unsized, _ := gated(t, func([]byte) { t.Error("it is read to the end") })
	if code, _ := post(t, unsized.URL, io.LimitReader(zeros{}, maxBody+1)); code == http.StatusOK {
		t.Errorf("code %d", code)
	}
}

// protocols checks servers of HTTP/1.1 and HTTP/2, each with one slot of each size, in
// which a request has to arrive within 500 ms. reading has a value for each request that
// has its slot.
func protocols(t *testing.T, next func(w http.ResponseWriter, r *http.Request, body []byte, budget time.Duration), check func(t *testing.T, server *httptest.Server, reading <-chan struct{})) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", http2), func(t *testing.T) {
			g := newGate(Options{})
			g.small, g.large = make(chan struct{}, 1), make(chan struct{}, 1)
			g.wait, g.read = 10*time.Second, 500*time.Millisecond
			reading := make(chan struct{}, 10)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Body = &announced{ReadCloser: r.Body, reading: reading}
				g.through(next).ServeHTTP(w, r)
			}))
			server.EnableHTTP2 = http2
			server.StartTLS()
			t.Cleanup(server.Close)
			t.Cleanup(server.CloseClientConnections)
			check(t, server, reading)
		})
	}
}

// announced is a body that says when the first of it is read.
type announced struct {
	io.ReadCloser
	reading chan<- struct{}
	once    sync.Once
}

func (a *announced) Read(p []byte) (int, error) {
	a.once.Do(func() { a.reading <- struct{}{} })
	return a.ReadCloser.Read(p)
}

func TestAClientThatSendsSlowlyDoesNotKeepItsSlot(t *testing.T) {
	protocols(t, func(http.ResponseWriter, *http.Request, []byte, time.Duration) {}, func(t *testing.T, server *httptest.Server, reading <-chan struct{}) {
		for _, size := range []int64{1000, smallBody + 1} {
			body, sends := io.Pipe()
			slow, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"?timeout=9999h", body)
			if err != nil {
				t.Fatal(err)
			}
			slow.ContentLength = size
			var done sync.WaitGroup
			done.Go(func() {
				if response, err := server.Client().Do(slow); err == nil {
					_ = response.Body.Close()
				}
			})
			go func() { _, _ = sends.Write([]byte(" ")) }()
			<-reading
			response, err := server.Client().Post(server.URL+"?timeout=30s", "application/json", bytes.NewReader(make([]byte, size)))
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("a request after one that never ends: %v, error %v", response, err)
			}
			<-reading
			_ = response.Body.Close()
			_ = sends.Close()
			done.Wait()
		}
	})
}

func TestAClientThatDoesNotReadItsAnswerDoesNotKeepItsSlot(t *testing.T) {
	long := func(w http.ResponseWriter, _ *http.Request, body []byte, _ time.Duration) {
		if string(body) == "long" {
			_, _ = io.Copy(w, io.LimitReader(zeros{}, 1<<30))
		}
	}
	protocols(t, long, func(t *testing.T, server *httptest.Server, _ <-chan struct{}) {
		// The header comes, and the rest waits for the client.
		unread, err := server.Client().Post(server.URL+"?timeout=1s", "application/json", strings.NewReader("long"))
		if err != nil {
			t.Fatal(err)
		}
		response, err := server.Client().Post(server.URL+"?timeout=30s", "application/json", strings.NewReader("short"))
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("a request after one whose answer is not read: %v, error %v", response, err)
		}
		_ = response.Body.Close()
		_ = unread.Body.Close()
	})
}

func TestASmallRequestOfManyElementsTakesALargeSlot(t *testing.T) {
	server, release := besideLargeOnes(t)
	for name, c := range map[string]struct {
		body string
		want int
		says string
	}{
		"few elements":  {strings.Repeat("{},", smallElements/2), http.StatusOK, ""},
		"many elements": {strings.Repeat("{},", smallElements), http.StatusTooManyRequests, "answers 3 large requests (over 256 KiB or 2000 elements)"},
	} {
		t.Run(name, func(t *testing.T) {
			// The large slots may not all be taken yet.
			code, message := post(t, server.URL, strings.NewReader(c.body))
			for deadline := time.Now().Add(10 * time.Second); code != c.want && time.Now().Before(deadline); {
				code, message = post(t, server.URL, strings.NewReader(c.body))
			}
			if code != c.want || !strings.Contains(message, c.says) {
				t.Errorf("code %d: %s", code, message)
			}
		})
	}
	release()
	t.Log("what fills the small slots is named, too, and what an administrator does about it")
	g, server, _ := gated(t, func([]byte) {})
	g.small = make(chan struct{})
	if code, message := post(t, server.URL, strings.NewReader("{}")); code != http.StatusTooManyRequests ||
		!strings.Contains(message, "small requests (up to 256 KiB and 2000 elements)") ||
		!strings.Contains(message, "networkPolicy.apiServerCIDRs") || !strings.Contains(message, "--webhook-client-ca-file") {
		t.Errorf("code %d: %s", code, message)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestAClientNeedsOneOfTheNames(t *testing.T) {
	with := func(certificate *x509.Certificate) *tls.ConnectionState {
		return &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{certificate}}}
	}
	for name, c := range map[string]struct {
		names []string
		state *tls.ConnectionState
		want  bool
	}{
		"no name is asked for":         {nil, nil, true},
		"no certificate":               {[]string{"api"}, &tls.ConnectionState{}, false},
		"no TLS":                       {[]string{"api"}, nil, false},
		"the common name":              {[]string{"x", "api"}, with(&x509.Certificate{Subject: pkix.Name{CommonName: "api"}}), true},
		"a DNS name":                   {[]string{"api"}, with(&x509.Certificate{DNSNames: []string{"y", "api"}}), true},
		"another name of the same CA":  {[]string{"api"}, with(&x509.Certificate{Subject: pkix.Name{CommonName: "kubelet"}}), false},
		"an empty name is not a match": {[]string{"api"}, with(&x509.Certificate{}), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (&gate{Options: Options{ClientNames: c.names}}).isKnown(c.state); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestAnAnswerOfAReplicaThatStopsEndsItsConnection(t *testing.T) {
	stopping := make(chan struct{})
	server := httptest.NewServer(newGate(Options{Stopping: stopping}).through(func(w http.ResponseWriter, _ *http.Request, _ []byte, _ time.Duration) {
		w.WriteHeader(http.StatusOK)
	}))
	defer server.Close()
	closes := func() bool {
		t.Helper()
		answer, err := http.Post(server.URL, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		return answer.Close
	}
	if closes() {
		t.Error("a replica that runs on closes the connection")
	}
	close(stopping)
	if !closes() {
		t.Error("a replica that stops keeps the connection open")
	}
}
