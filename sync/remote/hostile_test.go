// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/remote/budget"
)

// memoryLimit is the soft limit of the agent in the chart. hostileMemory is the most that four
// hostile peers together may take of it.
const (
	memoryLimit   = 460 << 20
	hostileMemory = 320 << 20
)

// hostile answers of an API server: each would cost the agent its memory, its token, its log, or
// a goroutine for ever.
var hostile = map[string]http.HandlerFunc{
	"pages without end that are as large as they may be": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(asJSON(w), fullPage())
	},
	"a list of 2 GB": func(w http.ResponseWriter, _ *http.Request) {
		record, _ := json.Marshal(exported(1))
		_, _ = io.WriteString(asJSON(w), `{"metadata":{"resourceVersion":"10"},"items":[`)
		repeat(w, 2<<30, string(record)+",")
	},
	"gzip that inflates to 3 GB": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		repeat(asJSON(w), 48*len(packed()), packed())
	},
	"headers without end": func(w http.ResponseWriter, _ *http.Request) {
		raw(w, "HTTP/1.1 200 OK\r\n", "Audit-Id: "+strings.Repeat("0", 100)+"\r\n")
	},
	"interim responses without end": func(w http.ResponseWriter, _ *http.Request) {
		raw(w, "", "HTTP/1.1 103 Early Hints\r\nLink: "+strings.Repeat("0", 100)+"\r\n\r\n")
	},
	"a body of ten bytes a second": func(w http.ResponseWriter, r *http.Request) {
		const pause = time.Second / 10
		parts := 3 // two lists after the other two
		if strings.HasSuffix(r.URL.Path, "/leases/b") || r.Method == http.MethodPost {
			parts = 2 * int(freshTimeout/pause)
		}
		for asJSON(w); parts > 0 && r.Context().Err() == nil; parts-- {
			_, _ = io.WriteString(w, " ")
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(pause):
			}
		}
	},
	"events of 10 MB": func(w http.ResponseWriter, r *http.Request) {
		for asJSON(w); r.Context().Err() == nil; {
			_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"ExportRecord","metadata":{"annotations":{"large":"`)
			repeat(w, 10<<20, strings.Repeat("x", 64<<10))
			_, _ = io.WriteString(w, `"}}}}`)
		}
	},
	"bookmarks that go back": func(w http.ResponseWriter, r *http.Request) {
		bookmark := `{"type":"BOOKMARK","object":{"apiVersion":"exchange.comity.dev/v1alpha1","kind":"ExportRecord","metadata":{"resourceVersion":"%d"}}}`
		asJSON(w)
		for version := 1 << 30; r.Context().Err() == nil; version-- {
			_, _ = fmt.Fprintf(w, bookmark, version)
		}
	},
	"a redirect": func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" { // which would answer what is expected
			_, _ = io.WriteString(w, `{"spec":{"renewTime":"2026-01-01T00:00:00.000000Z"},"status":{"token":"renewed"}}`)
			return
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	},
	"a request to come again in eleven days": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1000000")
		status(w, http.StatusTooManyRequests, "TooManyRequests")
	},
	"warnings": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Warning", strings.Repeat(`299 - "written by the peer", `, 1000)+`299 - "the last"`)
		status(w, http.StatusForbidden, "Forbidden")
	},
}

// fullPage is a page of which the objects have many elements.
var fullPage = sync.OnceValue(func() string {
	var items []any
	for i := range recordPage {
		record := exported(i)
		record.Spec.Ports = make([]mcsv1beta1.ServicePort, 240_000/recordPage)
		items = append(items, record)
	}
	page, _ := json.Marshal(map[string]any{"metadata": map[string]string{"resourceVersion": "10", "continue": "more"}, "items": items})
	return string(page)
})

// packed are 64 MiB.
var packed = sync.OnceValue(func() string {
	var out strings.Builder
	writer := gzip.NewWriter(&out)
	_, _ = io.WriteString(writer, `{"kind":"Status","message":"`)
	repeat(writer, 64<<20, strings.Repeat("0", 64<<10))
	_ = writer.Close()
	return out.String()
})

func asJSON(w http.ResponseWriter) http.ResponseWriter {
	w.Header().Set("Content-Type", "application/json")
	return w
}

// repeat writes size bytes, unless nobody reads them.
func repeat(w io.Writer, size int, part string) {
	for range size / len(part) {
		if _, err := io.WriteString(w, part); err != nil {
			return
		}
	}
}

// raw writes what is not of the form of a response, after a beginning that is.
func raw(w http.ResponseWriter, begin, part string) {
	connection, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = connection.Close() }()
	_, _ = io.WriteString(connection, begin)
	repeat(connection, 2<<30, part)
}

// requestOf names a request of a Connection. One with a limit of 1 asks for the version of the
// store, and a stream is a list.
func requestOf(path string, r *http.Request) string {
	switch query := r.URL.Query(); {
	case query.Get("sendInitialEvents") != "":
		return "stream " + path
	case query.Get("watch") != "":
		return "watch " + path
	case query.Get("limit") == "1":
		return "version " + path
	}
	return "list " + path
}

// requests are all those of a Connection of cluster a to cluster b.
func requests() []string {
	var out []string
	for _, path := range []string{
		"comity-b/exportrecords", "comity-b/endpointslices", "comity-b/namespacerecords", "comity-b/memberrecords", "comity-b/leases",
		"comity-b-to-a/exportrecords", "comity-b-to-a/endpointslices", "comity-b-to-a/importrecords",
	} {
		out = append(out, "stream "+path, "list "+path, "version "+path, "watch "+path)
	}
	return out
}

// FAULT 31: the API servers of four peers are hostile: one in every request, one in every list by
// pages, one in every watch, one when it is asked for its version. The agent stays small, and reads another peer meanwhile.
func TestFault31AHostileServerCostsNoOtherMember(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(memoryLimit))
	for _, name := range slices.Sorted(maps.Keys(hostile)) {
		t.Run(name, func(t *testing.T) {
			other, c := limited(t, budget.Limits{}, nil)
			await(t, "the other peer is watched", func() bool {
				open := false
				other.change(func() { open = other.open[exportsOfB] != nil })
				return c.Verified() && open
			})
			peak := peakMemory()
			var seen sync.Map
			var peers []*peer
			var elsewhere atomic.Bool
			for _, which := range []string{"", "list ", "watch ", "version "} {
				p := &peer{intercept: func(w http.ResponseWriter, r *http.Request, path string) bool {
					elsewhere.Store(elsewhere.Load() || r.URL.Path == "/elsewhere")
					request := requestOf(path, r)
					if !strings.HasPrefix(request, which) {
						return false
					}
					seen.Store(request, true)
					hostile[name](w, r)
					return true
				}}
				peers = append(peers, p)
				connected(t, budget.Limits{}, p)
			}
			for _, request := range requests() {
				await(t, "the hostile peers are asked: "+request, func() bool { _, is := seen.Load(request); return is })
			}
			for i := range 5 { // for half a second
				begun := time.Now()
				line, _ := json.Marshal(map[string]any{"type": "ADDED", "object": exported(i)})
				other.change(func() { other.open[exportsOfB] <- string(line) })
				await(t, "an export of the other peer is read", func() bool {
					export, _ := c.Export(types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("web-", i)})
					return export != nil
				})
				if took := time.Since(begun); took > 15*time.Second {
					t.Errorf("an export of the other peer is read after %v", took)
				}
				time.Sleep(100 * time.Millisecond)
			}
			took := peak()
			if t.Logf("hostile peers take %d MiB", took>>20); took > hostileMemory {
				t.Errorf("that is more than %d MiB", hostileMemory>>20)
			}
			if elsewhere.Load() {
				t.Error("a redirect is followed")
			}
			for _, p := range peers {
				p.change(func() {
					if len(p.logged) > 100 || strings.Contains(fmt.Sprint(p.logged), "written by the peer") {
						t.Errorf("the log has %d lines because of a peer, such as %.200s", len(p.logged), p.logged[0])
					}
				})
			}
		})
	}
}

// FAULT 31: each list that is read takes several times its size until it is decoded.
func TestFault31FewListsOfOnePeerAreReadAtTheSameTime(t *testing.T) {
	var reading, most, all atomic.Int32
	connected(t, budget.Limits{}, &peer{intercept: func(_ http.ResponseWriter, r *http.Request, path string) bool {
		request := requestOf(path, r)
		if path == "comity-b/leases" || !strings.HasPrefix(request, "list ") && !strings.HasPrefix(request, "stream ") {
			return false
		}
		now := reading.Add(1)
		defer reading.Add(-1)
		for {
			if before := most.Load(); now <= before || most.CompareAndSwap(before, now) {
				break
			}
		}
		time.Sleep(50 * time.Millisecond)
		all.Add(1)
		return false
	}})
	await(t, "all is listed", func() bool { return all.Load() >= 2*7 })
	if most.Load() > maxLists {
		t.Errorf("%d lists are read at the same time, want %d", most.Load(), maxLists)
	}
}

// FAULT 31: a peer narrows the scope of an export, and lists endless records of other names.
func TestFault31RecordsWithoutEndOfNarrowedExportsAreNotKept(t *testing.T) {
	const scoped = "comity-b-to-a/exportrecords"
	var pages atomic.Int64
	_, c := limited(t, budget.Limits{}, func(w http.ResponseWriter, path string, watch bool) bool {
		switch {
		case watch:
		case path == exportsOfB:
			record := exported(1)
			record.Spec.Withdrawn, record.Spec.Narrowed = true, true
			list(w, []any{record})
			return true
		case path == scoped && pages.Add(1) > 1: // the first is that of the informer
			var names []string
			for i := range recordPage {
				names = append(names, fmt.Sprintf(`{"metadata":{"name":"%d-%d-%s"}}`, pages.Load(), i, strings.Repeat("x", 20<<10)))
			}
			_, _ = fmt.Fprintf(asJSON(w), `{"metadata":{"resourceVersion":"10","continue":"more"},"items":[%s]}`, strings.Join(names, ","))
			return true
		}
		return false
	})
	key := types.NamespacedName{Namespace: "shop", Name: "web-1"}
	await(t, "the statement is read", func() bool { return c.Verified() && c.record(key) != nil })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	if got := c.Withdrawals(key); len(got) > 0 {
		t.Errorf("a statement counts before it is confirmed: %v", got)
	}
	await(t, "many pages are read", func() bool { return pages.Load() > 20 }) // of 5 MB
	runtime.GC()
	runtime.ReadMemStats(&after)
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > 50<<20 {
		t.Errorf("%d MiB are kept of %d pages", kept>>20, pages.Load())
	}
}

// peakMemory measures the most memory that the process takes, beyond what it takes now, until the
// function that it returns is called.
func peakMemory() func() uint64 {
	read := func() uint64 {
		samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
		metrics.Read(samples)
		return samples[0].Value.Uint64() - samples[1].Value.Uint64()
	}
	runtime.GC()
	debug.FreeOSMemory()
	before, peak := read(), uint64(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-stop:
				return
			case <-tick.C:
				peak = max(peak, read())
			}
		}
	}()
	return func() uint64 {
		close(stop)
		<-stopped
		return peak - min(peak, before)
	}
}
