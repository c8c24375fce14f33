// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// maxBody is what an API server can send: it accepts requests of 3 MiB, and an
	// AdmissionReview holds the old and the new object; the rest is far below 1 MiB.
	maxBody = 7 << 20
	// smallBody is the size up to which a request is small. ServiceExports, Services
	// and policies have some kB.
	smallBody = 256 << 10
	// smallSlots and largeSlots are how many requests of either size are read,
	// decoded and answered at once. A body takes about four times its size in memory
	// until it is answered: 64 MiB and 84 MiB. Large ones cannot take the slots of
	// small ones, which are all that users of a cluster send usually.
	smallSlots, largeSlots = 64, 3
	// maxWait is how long a request waits for a slot, unread. The API server waits 3 s.
	maxWait = time.Second
	// maxRead is how long a request that has a slot may take to arrive. The API server
	// sends it at once, however long it waits for the answer.
	maxRead = defaultTimeout
	// maxUID is the longest request.uid that is accepted. It is in the answer, and the
	// API server's has 36 bytes.
	maxUID = 128
)

// Reasons for which a request is rejected without an AdmissionReview: values of the
// label reason.
const (
	rejectedMethod = "Method"
	rejectedClient = "Client"
	rejectedSize   = "TooLarge"
	rejectedBusy   = "Busy"
)

// gate lets through as many requests at once as there is memory for. It takes a slot
// before it reads anything of a body, because everybody who reaches the port can send
// one: without a client certificate, the webhook cannot know who the client is.
type gate struct {
	small, large chan struct{}
	// wait is how long a request waits for a slot, and read how long it then takes to
	// arrive, at most.
	wait, read time.Duration
	// names are those that a client's certificate must have one of; none: any.
	names    []string
	rejected *prometheus.CounterVec
}

// newGate registers the metric of rejected requests in reg.
func newGate(names []string, reg prometheus.Registerer) (*gate, error) {
	rejected := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "comity_webhook_rejected_total",
		Help: "Requests to the webhook that were rejected before they were read, by reason (Method, Client, TooLarge, Busy).",
	}, []string{"reason"})
	err := reg.Register(rejected)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		// A second manager in one process, as in tests, shares the metric.
		if earlier, ok := there.ExistingCollector.(*prometheus.CounterVec); ok {
			rejected, err = earlier, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("register metric comity_webhook_rejected_total: %w", err)
	}
	return &gate{
		small: make(chan struct{}, smallSlots), large: make(chan struct{}, largeSlots),
		wait: maxWait, read: maxRead, names: names, rejected: rejected,
	}, nil
}

// through is next behind the gate.
func (g *gate) through(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A client that does not read its answer must not keep the slot either. The API
		// server does not read what comes after its timeout.
		control := http.NewResponseController(w)
		_ = control.SetWriteDeadline(time.Now().Add(timeoutOf(r))) // not in tests without a connection
		switch {
		case r.Method != http.MethodPost:
			g.reject(w, http.StatusMethodNotAllowed, rejectedMethod, "expected a POST of an AdmissionReview")
			return
		case !g.isKnown(r.TLS):
			g.reject(w, http.StatusForbidden, rejectedClient,
				fmt.Sprintf("the client certificate has none of the names %s (--webhook-client-names)", strings.Join(g.names, ", ")))
			return
		case r.ContentLength > maxBody:
			g.reject(w, http.StatusRequestEntityTooLarge, rejectedSize, fmt.Sprintf("the request has %d bytes; expected at most %d", r.ContentLength, maxBody))
			return
		}
		slots := g.small
		if r.ContentLength < 0 || r.ContentLength > smallBody { // -1: not known
			slots = g.large
		}
		if !g.take(r, slots) {
			g.reject(w, http.StatusTooManyRequests, rejectedBusy, fmt.Sprintf(
				"Comity's webhook answers %d requests already and this one waited for %v; try again in a few seconds", cap(slots), g.wait))
			return
		}
		defer func() { <-slots }()
		// A client that sends slowly must not keep the slot.
		_ = control.SetReadDeadline(time.Now().Add(min(budget(r), g.read)))
		defer func() { _ = control.SetReadDeadline(time.Time{}) }()
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

// take waits for a slot; false if there was none in time.
func (g *gate) take(r *http.Request, slots chan struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(min(g.wait, budget(r)))
	defer timer.Stop()
	select {
	case slots <- struct{}{}:
		return true
	case <-timer.C:
	case <-r.Context().Done():
	}
	return false
}

// isKnown reports whether the client's certificate, which TLS has verified if there
// is a CA for it, has one of the names.
func (g *gate) isKnown(state *tls.ConnectionState) bool {
	if len(g.names) == 0 {
		return true
	}
	if state == nil || len(state.VerifiedChains) == 0 {
		return false
	}
	certificate := state.VerifiedChains[0][0]
	return slices.ContainsFunc(append([]string{certificate.Subject.CommonName}, certificate.DNSNames...), func(name string) bool {
		return slices.Contains(g.names, name)
	})
}

// reject answers with a Status, whose message the API server shows. The body is not
// read, so the connection ends.
func (g *gate) reject(w http.ResponseWriter, code int, reason, message string) {
	g.rejected.WithLabelValues(reason).Inc()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Connection", "close")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{ // the client may be gone
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: metav1.StatusReason(http.StatusText(code)), Message: message, //nolint:gosec // an HTTP status
	})
}

// ClientCertificates is a TLS option of the webhook server: it accepts only clients
// with a certificate that a CA in caFile, a PEM bundle, verifies for client
// authentication. The file is read for each connection, so that a CA can be replaced.
// The error says why the file cannot be used now.
func ClientCertificates(caFile string) (func(*tls.Config), error) {
	if _, err := readCAs(caFile); err != nil {
		return nil, err
	}
	return func(config *tls.Config) {
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cas, err := readCAs(caFile)
			if err != nil {
				return nil, err
			}
			strict := config.Clone()
			strict.GetConfigForClient = nil
			strict.ClientAuth, strict.ClientCAs = tls.RequireAndVerifyClientCert, cas
			return strict, nil
		}
	}, nil
}

func readCAs(file string) (*x509.CertPool, error) {
	data, err := os.ReadFile(file) //nolint:gosec // the administrator names the file
	if err != nil {
		return nil, fmt.Errorf("read the CA of the webhook's clients: %w", err)
	}
	cas := x509.NewCertPool()
	if !cas.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("file %s holds no certificate; expected a PEM bundle of the CA that signed the API server's client certificate", file)
	}
	return cas, nil
}
