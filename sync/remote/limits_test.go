// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/compactslice"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/budget"
)

const exportsOfB = "comity-b/exportrecords"

// limited is a Connection with limits to a peer that answers with answer.
func limited(t *testing.T, limits budget.Limits, answer func(w http.ResponseWriter, path string, watch bool) bool) (*peer, *Connection) {
	t.Helper()
	p := &peer{answer: answer}
	return p, connected(t, limits, p)
}

// connected is a Connection with limits to p.
func connected(t *testing.T, limits budget.Limits, p *peer) *Connection {
	t.Helper()
	p.version, p.accepted = 10, map[string]bool{"one": true}
	p.lists, p.watches, p.open = map[string]int{}, map[string]int{}, map[string]chan string{}
	server, ca := apiServer(t, p.ServeHTTP)
	config := &rest.Config{Host: server.URL, BearerToken: "one", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	log := funcr.New(func(prefix, args string) { p.change(func() { p.logged = append(p.logged, prefix+args) }) }, funcr.Options{})
	c, err := Connect(context.Background(), Options{ID: "b", Self: "a", ClusterSet: "prod", ClusterUID: "uid-b", Config: config, Log: log, Limits: limits, Hooks: Hooks{
		LeaseRead: func(*Connection, string) {},
		Changed: func(change model.MemberChange) {
			if change.What == model.ReportChanged && change.Key == (types.NamespacedName{}) {
				p.change(func() { p.compared++ })
			}
		},
		State: func(*Connection) { p.change(func() { p.compared++ }) }, Rejected: func() {},
		Restored: func(*Connection, error) {},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Stop()
		server.CloseClientConnections()
		server.Close()
		c.Wait()
	})
	return c
}

// inBothWays runs a test with a peer that streams lists, and with one that does not.
func inBothWays(t *testing.T, test func(*testing.T, *peer)) {
	for _, streams := range []bool{true, false} {
		t.Run(fmt.Sprint("streamed: ", streams), func(t *testing.T) { test(t, &peer{streams: streams}) })
	}
}

// exceeds waits until c has a problem with a limit, which its message names.
func exceeds(t *testing.T, c *Connection, named ...string) {
	t.Helper()
	await(t, "the limit is named: "+strings.Join(named, ", "), func() bool {
		problem := c.State().Problem
		if problem.Reason != model.ReasonLimitExceeded || !strings.Contains(problem.Message, "cluster b") {
			return false
		}
		for _, part := range named {
			if !strings.Contains(problem.Message, part) {
				return false
			}
		}
		return true
	})
}

func list(w http.ResponseWriter, items []any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]string{"resourceVersion": "10"}, "items": items})
}

func exported(i int) *exchangev1alpha1.ExportRecord {
	record := &exchangev1alpha1.ExportRecord{
		TypeMeta: metav1.TypeMeta{APIVersion: exchangev1alpha1.GroupVersion.String(), Kind: "ExportRecord"},
		Spec: exchangev1alpha1.ExportRecordSpec{
			Service:           exchangev1alpha1.ServiceReference{Namespace: "shop", Name: fmt.Sprint("web-", i)},
			ExportUID:         "uid",
			ExportedAt:        metav1.Unix(1, 0),
			ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Port: 80}}},
		},
	}
	record.Namespace, record.Name, record.ResourceVersion = "comity-b", model.RecordName("shop", record.Spec.Service.Name), fmt.Sprint(20+i)
	return record
}

func exports(n int) []any {
	var out []any
	for i := range n {
		out = append(out, exported(i))
	}
	return out
}

// A list that would take longer than a request may is named as what it is, and not as a
// server that cannot be reached.
func TestAListThatIsReadTooSlowlyNamesTheLimit(t *testing.T) {
	limits := budget.Limits{BytesPerSecond: 1000, BurstBytes: 1}
	_, c := limited(t, limits, func(w http.ResponseWriter, path string, watch bool) bool {
		if watch || path != exportsOfB {
			return false
		}
		_, _ = fmt.Fprint(w, strings.Repeat(" ", 400<<10))
		return true
	})
	exceeds(t, c, "ExportRecords in namespace comity-b", "1000 bytes per second")
}

// FAULT 31: a peer answers a list with 2 GB.
func TestFault31AListOfTwoGigabytesIsNotRead(t *testing.T) {
	var served atomic.Int64
	limits := budget.Limits{ResponseBytes: 1 << 20}
	_, c := limited(t, limits, func(w http.ResponseWriter, path string, watch bool) bool {
		if watch || path != exportsOfB {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"metadata":{"resourceVersion":"10"},"items":[`)
		part := []byte(strings.Repeat(" ", 64<<10))
		for range 2 << 30 / len(part) {
			n, err := w.Write(part)
			served.Add(int64(n))
			if err != nil {
				return true
			}
		}
		return true
	})
	exceeds(t, c, "ExportRecords", "1048576 bytes in one response", "remedy")
	if verified := c.Verified(); verified {
		t.Error("the peer counts as one that exports nothing")
	}
	// What the sockets hold beyond the limit, and a repetition or two.
	if n := served.Load(); n > 64<<20 {
		t.Errorf("%d bytes were read", n)
	}
}

// FAULT 31: a peer sends one event of a watch that does not end.
func TestFault31AnEventWithoutEndIsNotRead(t *testing.T) {
	var served atomic.Int64
	_, c := limited(t, budget.Limits{EventBytes: 1 << 20}, func(w http.ResponseWriter, path string, watch bool) bool {
		if !watch || path != exportsOfB {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"type":"ADDED","object":{"kind":"`)
		part := []byte(strings.Repeat("x", 64<<10))
		for range 2 << 30 / len(part) {
			n, err := w.Write(part)
			served.Add(int64(n))
			if err != nil {
				return true
			}
		}
		return true
	})
	exceeds(t, c, "1048576 bytes in one event")
	if n := served.Load(); n > 64<<20 {
		t.Errorf("%d bytes were read", n)
	}
}

// FAULT 31: a peer publishes very many records, listed or one after the other. What
// was read before stays, and what was left out is read once there are fewer.
func TestFault31TooManyRecordsAreNotRead(t *testing.T) { inBothWays(t, testTooManyRecords) }

func testTooManyRecords(t *testing.T, p *peer) {
	var count atomic.Int64
	count.Store(10)
	p.answer = func(w http.ResponseWriter, path string, watch bool) bool {
		if watch || path != exportsOfB {
			return false
		}
		list(w, exports(int(count.Load())))
		return true
	}
	c := connected(t, budget.Limits{Exports: 10}, p)
	await(t, "ten exports are read", func() bool {
		open := false
		p.change(func() { open = p.open[exportsOfB] != nil })
		return c.Verified() && len(c.Keys()) == 10 && open
	})
	send := func(kind string, object any) {
		line, err := json.Marshal(map[string]any{"type": kind, "object": object})
		if err != nil {
			t.Fatal(err)
		}
		p.change(func() { p.open[exportsOfB] <- string(line) })
	}
	changed := exported(3)
	changed.Spec.Ports[0].Port, changed.ResourceVersion = 81, "40"
	send("MODIFIED", changed)
	await(t, "a change of one that is read is no more", func() bool {
		export, _ := c.Export(types.NamespacedName{Namespace: "shop", Name: "web-3"})
		return export != nil && export.Ports[0].Port == 81
	})
	count.Store(11)
	send("ADDED", exported(10))
	exceeds(t, c, "10 ExportRecords")
	if verified := c.Verified(); !verified || len(c.Keys()) != 10 {
		t.Errorf("verified: %v, exports: %d; what was read before must stay", verified, len(c.Keys()))
	}
	count.Store(9)
	await(t, "everything is read again", func() bool {
		problem, verified := c.State().Problem, c.Verified()
		return problem == Failure{} && verified && len(c.Keys()) == 9
	})
}

// FAULT 31: many slices of the largest size.
func TestFault31BytesOfAllObjectsAreBounded(t *testing.T) { inBothWays(t, testBytesOfAllObjects) }

func testBytesOfAllObjects(t *testing.T, p *peer) {
	p.answer = func(w http.ResponseWriter, path string, watch bool) bool {
		if watch || path != "comity-b/endpointslices" {
			return false
		}
		var items []any
		for i := range 3 {
			s := &discoveryv1.EndpointSlice{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, AddressType: discoveryv1.AddressTypeIPv4}
			s.Namespace, s.Name, s.ResourceVersion = "comity-b", fmt.Sprint("s-", i), "10"
			s.Annotations = map[string]string{"large": strings.Repeat("x", 40_000)}
			items = append(items, s)
		}
		list(w, items)
		return true
	}
	c := connected(t, budget.Limits{Bytes: 100_000}, p)
	exceeds(t, c, "EndpointSlices", "100000 bytes in all objects")
}

// FAULT 31: a peer that keeps changing what all imports, or all exports, depend on has these
// compared a few times.
func TestFault31WhatAPeerKeepsChangingIsFollowedAFewTimes(t *testing.T) {
	member := func(change func(*exchangev1alpha1.MemberRecord)) func(version string) metav1.Object {
		return func(version string) metav1.Object {
			record := memberB()
			record.TypeMeta = metav1.TypeMeta{APIVersion: exchangev1alpha1.GroupVersion.String(), Kind: "MemberRecord"}
			record.ResourceVersion = version
			change(record)
			return record
		}
	}
	isMember := member(func(*exchangev1alpha1.MemberRecord) {})
	lease := func(catchingUp bool) func(version string) metav1.Object {
		return func(version string) metav1.Object {
			lease := &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}}
			lease.Namespace, lease.Name, lease.ResourceVersion = "comity-b", "b", version
			if catchingUp {
				lease.Annotations = map[string]string{model.AnnotationCatchingUp: "true"}
			}
			return lease
		}
	}
	waits := func(of func(*Connection) *seldom) func(*Connection) bool {
		return func(c *Connection) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return of(c).waits
		}
	}
	for _, c := range []struct {
		name, feed string
		one, other func(version string) metav1.Object
		// isOne reports whether the one shows, and held whether changes are not followed just now.
		isOne, held func(c *Connection) bool
	}{
		{
			"whether its MemberRecord is valid", "memberrecords",
			member(func(r *exchangev1alpha1.MemberRecord) { r.Spec.ClusterSet = "other" }), isMember,
			func(c *Connection) bool { return !c.Verified() },
			func(c *Connection) bool {
				problem := c.State().Problem
				return problem.Reason == model.ReasonLimitExceeded &&
					strings.Contains(problem.Message, "MemberRecord comity-b/b: keeps changing between valid and not") && strings.Contains(problem.Message, "cluster b")
			},
		},
		{
			"whether it is drained", "memberrecords",
			member(func(r *exchangev1alpha1.MemberRecord) {
				r.Annotations = map[string]string{model.AnnotationDrained: "x"}
			}), isMember,
			func(c *Connection) bool { return c.State().Drained == "x" },
			waits(func(c *Connection) *seldom { return &c.statements }),
		},
		{
			"its version", "memberrecords",
			member(func(r *exchangev1alpha1.MemberRecord) { r.Spec.Version = "v1" }), isMember,
			func(c *Connection) bool { return c.State().Version == "v1" },
			waits(func(c *Connection) *seldom { return &c.statements }),
		},
		{
			"whether it has reported", "leases", lease(true), lease(false),
			func(c *Connection) bool { return !c.Reported() },
			waits(func(c *Connection) *seldom { return &c.reports }),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, connection := limited(t, budget.Limits{Pause: 3 * time.Second}, nil)
			var events chan string
			await(t, "the feed is watched", func() bool {
				p.change(func() { events = p.open["comity-b/"+c.feed] })
				return connection.Verified() && events != nil
			})
			version, held := "", false
			for n := range 10 * burst {
				object := []func(string) metav1.Object{c.one, c.other}[n%2]
				version = fmt.Sprint(20 + n)
				line, err := json.Marshal(map[string]any{"type": "MODIFIED", "object": object(version)})
				if err != nil {
					t.Fatal(err)
				}
				events <- string(line)
				// The first changes are followed; each later one is, or is one too many.
				await(t, fmt.Sprintf("change %d is seen", n), func() bool {
					tooMany := n >= burst-1 && c.held(connection)
					held = held || tooMany
					return tooMany || c.isOne(connection) == (n%2 == 0)
				})
			}
			if !held {
				t.Error("every change was followed")
			}
			await(t, "all was read", func() bool {
				feed := map[string]*feed{"memberrecords": connection.feeds.members, "leases": connection.feeds.leases}[c.feed]
				object, has := cached[metav1.Object](feed, "b")
				return has && object.GetResourceVersion() == version
			})
			var compared int
			p.change(func() { compared = p.compared })
			if most := 3 * burst; compared > most {
				t.Errorf("all was compared %d times, want at most %d", compared, most)
			}
			await(t, "what it says in the end is known", func() bool { return !c.isOne(connection) && !c.held(connection) })
		})
	}
}

// FAULT 31: what a cache keeps of records that are not valid is small.
func TestFault31InvalidRecordsAreKeptWithoutTheirContent(t *testing.T) {
	record := exported(1)
	record.Spec.Ports = make([]mcsv1beta1.ServicePort, 1000)
	kept, err := trim(record)
	if err != nil || len(kept.(*exchangev1alpha1.ExportRecord).Spec.Ports) > 0 {
		t.Errorf("kept: %+v, %v", kept, err)
	}
}

// FAULT 44: a small slice that claims to be packed is not unpacked to gigabytes.
func TestFault44WhatAPeerClaimsIsPackedIsNotOpened(t *testing.T) {
	honest := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-b", Name: "web"}, AddressType: discoveryv1.AddressTypeIPv4}
	packed, err := compactslice.Transform(honest)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := trim(packed)
	if err != nil {
		t.Fatal(err)
	}
	if opened, err := compactslice.Open(kept.(*discoveryv1.EndpointSlice)); err == nil && opened.AddressType == honest.AddressType {
		t.Errorf("opened: %+v", opened)
	}
	unbounded := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"a": strings.Repeat("x", 100<<10)}}, AddressType: discoveryv1.AddressTypeFQDN}
	if kept, err = trim(unbounded); err != nil || kept.(*discoveryv1.EndpointSlice).Labels["a"] != "" {
		t.Errorf("labels of a slice without addresses are kept: %v", err)
	}
}
