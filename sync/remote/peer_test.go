// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

// peer is the API server of cluster b. It counts requests and accepts some tokens.
type peer struct {
	mu       sync.Mutex
	version  int
	accepted map[string]bool
	lists    map[string]int // by token
	watches  map[string]int // by token
	open     map[string]chan string
	// streams: lists are streamed, too.
	streams bool
	// answer answers a request in place of this peer, if it is true.
	answer func(w http.ResponseWriter, path string, watch bool) bool
	// intercept is like answer, and sees the requests for the version of the store, too.
	intercept func(w http.ResponseWriter, r *http.Request, path string) bool
	// logged is what the agent logs about it.
	logged []string
	// compared is how often all imports, or all exports, are to be compared with what it says.
	compared int
}

func (p *peer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	_, path, _ := strings.Cut(r.URL.Path, "/namespaces/")
	query := r.URL.Query()
	p.mu.Lock()
	accepted, version, events := p.accepted[token], fmt.Sprint(p.version), make(chan string, 10)
	switch {
	case !accepted || query.Get("sendInitialEvents") != "":
	case query.Get("watch") != "":
		p.watches[token]++
		p.open[path] = events
	case query.Get("limit") != "1": // which asks for the version of the store
		p.lists[token]++
	}
	answer, intercept, streams := p.answer, p.intercept, p.streams
	p.mu.Unlock()
	list := func(w http.ResponseWriter) {
		if answer != nil && query.Get("limit") != "1" && answer(w, path, false) {
			return
		}
		items := []any{}
		if strings.HasSuffix(path, "/memberrecords") {
			items = append(items, memberB())
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]string{"resourceVersion": version}, "items": items})
	}
	switch {
	case intercept != nil && intercept(w, r, path):
	case !accepted:
		status(w, 401, "Unauthorized")
	case query.Get("sendInitialEvents") != "" && !streams:
		status(w, 422, "Invalid")
	case query.Get("sendInitialEvents") != "":
		stream(w, path, list)
	case query.Get("watch") == "":
		list(w)
	case answer != nil && answer(w, path, true):
	default:
		w.Header().Set("Content-Type", "application/json")
		w.(http.Flusher).Flush()
		for {
			select {
			case line, is := <-events:
				if !is {
					return
				}
				_, _ = fmt.Fprintln(w, line)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
}

// stream writes what list does as the first events of a watch.
func stream(w http.ResponseWriter, path string, list func(http.ResponseWriter)) {
	var listed struct {
		Metadata metav1.ListMeta
		Items    []map[string]any
	}
	answer := httptest.NewRecorder()
	list(answer)
	if err := json.Unmarshal(answer.Body.Bytes(), &listed); err != nil {
		status(w, 500, "InternalError")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	for _, item := range listed.Items {
		event(w, "ADDED", path, item)
	}
	event(w, "BOOKMARK", path, initialEventsEnd(listed.Metadata.ResourceVersion))
}

// event writes an event with an object of what path lists.
func event(w http.ResponseWriter, kind, path string, object map[string]any) {
	_, resource, _ := strings.Cut(path, "/")
	object["apiVersion"], object["kind"] = exchangev1alpha1.GroupVersion.String(), map[string]string{
		"exportrecords": "ExportRecord", "memberrecords": "MemberRecord", "namespacerecords": "NamespaceRecord", "importrecords": "ImportRecord",
		"endpointslices": "EndpointSlice", "leases": "Lease",
	}[resource]
	switch resource {
	case "endpointslices":
		object["apiVersion"] = "discovery.k8s.io/v1"
	case "leases":
		object["apiVersion"] = "coordination.k8s.io/v1"
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
}

// initialEventsEnd is the object of the last event of a list.
func initialEventsEnd(version string) map[string]any {
	return map[string]any{"metadata": map[string]any{"resourceVersion": version, "annotations": map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
}

func memberB() *exchangev1alpha1.MemberRecord {
	record := &exchangev1alpha1.MemberRecord{Spec: exchangev1alpha1.MemberRecordSpec{ClusterID: "b", ClusterSet: "prod", ClusterUID: "uid-b"}}
	record.Namespace, record.Name, record.ResourceVersion = "comity-b", "b", "9"
	return record
}

// change runs f while no request is answered.
func (p *peer) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func await(t *testing.T, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 30 s: %s", what)
		}
	}
}
