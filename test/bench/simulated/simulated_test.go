// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
	"github.com/comity-mcs/comity/sync/remote/budget"
)

// What a member publishes is read by the connection of an agent, and so is each change.
func TestAnAgentReadsASimulatedMember(t *testing.T) {
	server, err := Serve()
	if err != nil {
		t.Fatal(err)
	}
	w := World{Measured: "a", Set: "bench", Members: 3, Exports: 1200, Endpoints: 12_000} // more than a page of records and of slices
	export, own := w.All()[1], types.NamespacedName{Namespace: "scale-00", Name: "own"}
	objects := w.Of(1, map[types.NamespacedName]types.UID{own: "11111111-1111-4111-8111-111111111111"})
	exports := 0
	for _, e := range w.All() {
		if e.Of == 1 {
			exports++
			objects = append(objects, w.Record(e), w.Slice(e, 0))
		}
	}
	for _, object := range objects {
		if err := server.Put(object); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	c, err := remote.Connect(ctx, remote.Options{
		ID: w.ID(1), Self: "a", ClusterSet: w.Set, ClusterUID: w.UID(1), Log: logr.Discard(),
		Config: &rest.Config{Host: server.URL, BearerToken: "any", TLSClientConfig: rest.TLSClientConfig{CAData: server.CA}},
		Hooks: remote.Hooks{
			Changed:   func(model.MemberChange) {},
			LeaseRead: func(*remote.Connection, string) {}, State: func(*remote.Connection) {}, Rejected: func() { t.Error("a record is not valid") },
			Restored: func(*remote.Connection, error) { t.Error("versions go back") },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		c.Wait()
	})
	await(t, "everything is read", func() bool { return c.Verified() && c.Reported() && server.Watches() == 8 })
	if got := len(c.Keys()); got != exports || c.State().Problem != (remote.Failure{}) {
		t.Errorf("%d of %d exports are read: %v", got, exports, c.State().Problem)
	}
	if report, found := c.Report(own); !found || !report.Imported {
		t.Errorf("the report is %+v", report)
	}
	if got := c.Namespace("scale-00").Presence; got != decision.Present {
		t.Errorf("the namespace is %v", got)
	}
	first := func() string {
		copies, _ := c.Slices(export.Key)
		if len(copies) != 1 || len(copies[0].Endpoints) != 10 {
			t.Fatalf("slices of one export: %v", copies)
		}
		return copies[0].Endpoints[0].Addresses[0]
	}
	if got, want := first(), export.Source(0).Endpoints[0].Addresses[0]; got != want {
		t.Errorf("the first address is %s, not %s", got, want)
	}
	if err := server.Put(w.Slice(export, 7)); err != nil {
		t.Fatal(err)
	}
	await(t, "a change is read", func() bool { return first() == Address(7) })
}

func TestExportsAreSpreadEvenly(t *testing.T) {
	w := World{Measured: "a", Members: 100, Exports: 10_000, Endpoints: 100_000}
	of, clusters, addresses := map[int]int{}, map[types.NamespacedName]map[int]bool{}, map[string]bool{}
	for _, e := range w.All() {
		of[e.Of]++
		if clusters[e.Key] == nil {
			clusters[e.Key] = map[int]bool{}
		}
		clusters[e.Key][e.Of] = true
		for _, endpoint := range e.Source(0).Endpoints {
			addresses[endpoint.Addresses[0]] = true
		}
	}
	if len(of) != 100 || of[0] != 100 || of[99] != 100 {
		t.Errorf("exports of a member: %v", of)
	}
	if len(clusters) != w.Services() || len(addresses) != w.Endpoints {
		t.Errorf("%d Services and %d addresses", len(clusters), len(addresses))
	}
	for key, exporters := range clusters {
		if len(exporters) != 4 {
			t.Errorf("%s is exported by %d members", key, len(exporters))
		}
	}
}

// docs/limits.md says so.
func TestOneMemberOfAHundredMayHaveAllExports(t *testing.T) {
	w := World{Measured: "a", Set: "bench", Members: 100, Exports: 10_000, Endpoints: 100_000}
	member := budget.New(budget.Limits{})
	read := func(kind string, of func(Export) runtime.Object) {
		var objects []runtime.Object
		for _, e := range w.All() {
			// All have one name for each Service, which only one of its exporters can have in one member.
			e.Key.Name, e.Of = fmt.Sprintf("%s-%d", e.Key.Name, e.Of), 1
			objects = append(objects, of(e))
		}
		feed := member.Feed(kind)
		feed.Begin()
		if exceeded := feed.Page(objects); exceeded != nil {
			t.Errorf("%s: %v", kind, exceeded)
		}
		feed.End()
	}
	for range 2 { // namespaces
		read("ExportRecords", func(e Export) runtime.Object { return w.Record(e) })
		read("EndpointSlices", func(e Export) runtime.Object { return w.Slice(e, 0) })
	}
	read("ImportRecords", func(e Export) runtime.Object { return w.report(1, e.Key, "11111111-1111-4111-8111-111111111111") })
}

func await(t *testing.T, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 30 s: %s", what)
		}
	}
}
