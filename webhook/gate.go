// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
)

const (
	// maxBody is what an API server can send: it accepts requests of 3 MiB, and an
	// AdmissionReview holds the old and the new object; the rest is far below 1 MiB.
	maxBody = 7 << 20
	// smallBody and smallElements are up to what a request is small. ServiceExports,
	// Services and policies have some kB, and some hundred elements.
	smallBody, smallElements = 256 << 10, 2_000
	// maxElements is more than any object of a cluster needs: a Service with 500 ports,
	// which three field managers own, has 25,000, and so a request to update it 50,000.
	maxElements = 100_000
	// smallSlots and largeSlots are how many requests of either size are read,
	// decoded and answered at once. A request takes about four times its size in memory
	// until it is answered, and up to 250 bytes for each element: some 100 MiB and
	// 160 MiB in all. Large ones cannot take the slots of small ones, which are all that
	// users of a cluster send usually.
	smallSlots, largeSlots = 64, 3
	// defaultTimeout holds when the API server does not say how long it waits;
	// it is timeoutSeconds in config/webhook.
	defaultTimeout = 3 * time.Second
	// maxTimeout is the longest timeoutSeconds that the API server accepts. Everybody
	// who reaches the port can write a longer one into the URL.
	maxTimeout = 30 * time.Second
	// maxWait is how long a request waits for a slot, unread. The API server waits 3 s.
	maxWait = time.Second
	// maxRead is how long a request that has a slot may take to arrive. The API server
	// sends it at once, however long it waits for the answer.
	maxRead = defaultTimeout
	// writeGrace is how long after the timeout of the API server the answer is given up.
	writeGrace = time.Second
	// maxUID is the longest request.uid that is accepted. It is in the answer, and the
	// API server's has 36 bytes.
	maxUID = 128
)

// rejectionReasons are those for which a request is rejected without an AdmissionReview, by
// HTTP status: values of the label reason.
var rejectionReasons = map[int]string{
	http.StatusMethodNotAllowed:      "Method",
	http.StatusForbidden:             "Client",
	http.StatusRequestEntityTooLarge: "TooLarge",
	http.StatusTooManyRequests:       "Busy",
	http.StatusBadRequest:            "Incomplete",
}

// gate lets through as many requests at once as there is memory for. It takes a slot
// before it reads anything of a body, because everybody who reaches the port can send
// one: without a client certificate, the webhook cannot know who the client is.
type gate struct {
	Options
	small, large chan struct{}
	// wait is how long a request waits for a slot, and read how long it then takes to
	// arrive, at most.
	wait, read time.Duration
	rejected   *prometheus.CounterVec
}

// newGate registers the metric of rejected requests.
func newGate(opts Options) *gate {
	return &gate{
		Options: opts, small: make(chan struct{}, smallSlots), large: make(chan struct{}, largeSlots), wait: maxWait, read: maxRead,
		rejected: promauto.With(opts.Registerer).NewCounterVec(prometheus.CounterOpts{
			Name: "comity_webhook_rejected_total",
			Help: "Requests to the webhook that were rejected before they were decoded, by reason (Method, Client, TooLarge, Busy, Incomplete).",
		}, []string{"reason"}),
	}
}

// through is next behind the gate. It gets the whole body, and how long it may take. A third of the API
// server's timeout is kept for sending the answer, also of many requests at once to a process that gets little
// CPU time: an answer names the cause, and a timeout does not.
func (g *gate) through(next func(w http.ResponseWriter, r *http.Request, body []byte, budget time.Duration)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timeout := timeoutOf(r)
		budget := timeout * 2 / 3
		// A client that does not read its answer must not keep the slot either. The API server does not
		// read what comes after its timeout, which it notices itself before: "deadline exceeded" says more
		// to a user than the "INTERNAL_ERROR" of a stream that is cut off.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout + writeGrace)) // not in tests without a connection
		select {
		case <-g.Stopping:
			w.Header().Set("Connection", "close")
		default:
		}
		switch {
		case r.Method != http.MethodPost:
			g.reject(w, http.StatusMethodNotAllowed, "expected a POST of an AdmissionReview")
			return
		case !g.isKnown(r.TLS):
			g.reject(w, http.StatusForbidden,
				"the client certificate has none of the names %s (--webhook-client-names)", strings.Join(g.ClientNames, ", "))
			return
		case r.ContentLength > maxBody:
			g.reject(w, http.StatusRequestEntityTooLarge, "the request has %d bytes; expected at most %d", r.ContentLength, maxBody)
			return
		}
		small := r.ContentLength >= 0 && r.ContentLength <= smallBody // -1: not known
		slots := g.large
		if small {
			slots = g.small
		}
		if !g.take(w, slots, budget) {
			return
		}
		defer func() { <-slots }()
		body, ok := g.readBody(w, r, budget)
		if !ok {
			return
		}
		// A small body of many elements takes as much memory as a large one.
		if small && elements(body) > smallElements {
			if !g.take(w, g.large, budget) {
				return
			}
			defer func() { <-g.large }()
		}
		next(w, r, body, budget)
	})
}

// readBody rejects what is too large, and a client that sends too slowly.
func (g *gate) readBody(w http.ResponseWriter, r *http.Request, budget time.Duration) ([]byte, bool) {
	// net/http ends the deadline with the request.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(min(budget, g.read)))
	var body bytes.Buffer
	body.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead)
	if _, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			g.reject(w, http.StatusRequestEntityTooLarge, "the request has more than %d bytes; expected at most as many", maxBody)
		} else {
			g.reject(w, http.StatusBadRequest, "read the AdmissionReview: %v; expected all of it within %v", err, g.read)
		}
		return nil, false
	}
	if n := elements(body.Bytes()); n > maxElements {
		g.reject(w, http.StatusRequestEntityTooLarge,
			"the AdmissionReview has %d commas, braces and brackets; expected at most %d, because each may become a list item or field. "+
				"Remedy: remove items of lists, labels and annotations from the object that it is about", n, maxElements)
		return nil, false
	}
	return body.Bytes(), true
}

// elements is at least the number of values in a JSON text, whatever they are: a text
// of "{},{}," takes a hundred times its size when it is decoded. Those within strings
// count too, because annotations hold lists.
func elements(body []byte) int {
	return bytes.Count(body, []byte(",")) + bytes.Count(body, []byte("{")) + bytes.Count(body, []byte("["))
}

// timeoutOf is how long the API server waits for the answer, which is in the query of
// the URL ("?timeout=3s").
func timeoutOf(r *http.Request) time.Duration {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || timeout <= 0 {
		return defaultTimeout
	}
	return min(timeout, maxTimeout)
}

// take waits for a slot. If there was none in time, it rejects the request, and says which slots
// are taken and what keeps others from taking them.
func (g *gate) take(w http.ResponseWriter, slots chan struct{}, budget time.Duration) bool {
	select {
	case slots <- struct{}{}:
		return true
	default: // a timer is allocated only for a request that waits
	}
	select {
	case slots <- struct{}{}:
		return true
	case <-time.After(min(g.wait, budget)): // also while the process ends, which ends the context of the request
	}
	kind := "small requests (up to %d KiB and %d elements)"
	if slots == g.large {
		kind = "large requests (over %d KiB or %d elements)"
	}
	g.reject(w, http.StatusTooManyRequests,
		"Comity's webhook answers %d "+kind+" already and this one waited for %v; try again in a few seconds. Remedy if it stays so: an administrator lets "+
			"only the API server reach the webhook (networkPolicy.apiServerCIDRs of the chart) or has it present a client certificate (--webhook-client-ca-file)",
		cap(slots), smallBody>>10, smallElements, g.wait)
	return false
}

// isKnown reports whether the client's certificate, which TLS has verified if there
// is a CA for it, has one of the names.
func (g *gate) isKnown(state *tls.ConnectionState) bool {
	if len(g.ClientNames) == 0 {
		return true
	}
	if state == nil || len(state.VerifiedChains) == 0 {
		return false
	}
	certificate := state.VerifiedChains[0][0]
	return slices.ContainsFunc(g.ClientNames, func(name string) bool {
		return name == certificate.Subject.CommonName || slices.Contains(certificate.DNSNames, name)
	})
}

// reject answers with a Status, whose message the API server shows. The body may be
// unread, so the connection ends.
func (g *gate) reject(w http.ResponseWriter, code int, format string, args ...any) {
	g.rejected.WithLabelValues(rejectionReasons[code]).Inc()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Connection", "close")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // the client may be gone
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), //nolint:gosec // an HTTP status
		Reason: metav1.StatusReason(http.StatusText(code)), Message: fmt.Sprintf(format, args...),
	})
}

// ClientCertificates is a TLS option of the webhook server: it accepts only clients
// with a certificate that a CA in caFile, a PEM bundle, verifies for client
// authentication. The file is read for each connection, so that a CA can be replaced.
// The error says why the file cannot be used now.
func ClientCertificates(caFile string) (func(*tls.Config), error) {
	strict := func(config *tls.Config) (*tls.Config, error) {
		cas, err := cert.NewPool(caFile)
		if err != nil {
			return nil, fmt.Errorf("read the CA of the webhook's clients: %w; expected a PEM bundle of the CA that signed the API server's client certificate", err)
		}
		config = config.Clone()
		config.ClientAuth, config.ClientCAs, config.GetConfigForClient = tls.RequireAndVerifyClientCert, cas, nil
		return config, nil
	}
	_, err := strict(new(tls.Config))
	return func(config *tls.Config) {
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return strict(config) }
	}, err
}
