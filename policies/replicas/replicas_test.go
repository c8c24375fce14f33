// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/comity-mcs/comity/policies/replicas"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// world is one API server and its time.
type world struct {
	t     *testing.T
	api   client.Client
	clock *clocktesting.FakeClock
}

func newWorld(t *testing.T) *world {
	return &world{t, fake.NewClientBuilder().Build(), clocktesting.NewFakeClock(noon)}
}

// start runs a replica until the test ends, or stop is called.
func (w *world) start(name string) (r *replicas.Replicas, stop func()) {
	r = replicas.New(replicas.Options{Namespace: "comity-system", Name: name, Reader: w.api, Writer: w.api, Clock: w.clock})
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Start(ctx)
	}()
	stop = func() { cancel(); <-ended }
	w.t.Cleanup(stop)
	return r, stop
}

// count is how many replicas run, and which of them lag.
type count struct {
	Total   int
	Lagging []string
}

// await waits until a replica reads a count of a policy.
func (w *world) await(r *replicas.Replicas, digest string, want count) {
	w.t.Helper()
	var last count
	deadline := time.After(10 * time.Second)
	for {
		statements, err := r.Read(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		if last = (count{len(statements), statements.Lagging("owner", digest)}); cmp.Equal(want, last, cmpopts.EquateEmpty()) {
			return
		}
		select {
		case <-deadline:
			w.t.Fatalf("(-want +got):\n%s", cmp.Diff(want, last))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestReplicasThatEnforceAPolicyAreCounted(t *testing.T) {
	w := newWorld(t)
	a, _ := w.start("comity-a")
	if statements, err := a.Read(t.Context()); statements != nil || err != nil {
		t.Errorf("before the first load it counts %v, %v", statements, err)
	}
	a.State(map[string]string{"owner": "v1", "other": "v7"})
	w.await(a, "v1", count{Total: 1})

	b, stop := w.start("comity-b")
	b.State(map[string]string{"owner": "v1"})
	w.await(a, "v1", count{Total: 2})
	a.State(map[string]string{"owner": "v2"})
	w.await(a, "v2", count{Total: 2, Lagging: []string{"comity-b"}})
	b.State(map[string]string{})
	w.await(a, "v2", count{Total: 2, Lagging: []string{"comity-b"}})
	b.State(map[string]string{"owner": "v2"})
	w.await(a, "v2", count{Total: 2})

	stop() // asked to end, so it does not count for another moment
	w.await(a, "v2", count{Total: 1})
}

func TestAReplicaThatWasKilledCountsNoMoreSoonAndIsRemovedLater(t *testing.T) {
	w := newWorld(t)
	a, _ := w.start("comity-a")
	a.State(map[string]string{"owner": "v2"})
	w.await(a, "v2", count{Total: 1})
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = "comity-system", replicas.LeaseName
	w.patch(lease, `{"metadata": {"annotations": {"replica.comity.dev/killed": "2026-11-22T11:59:30Z 0123", "replica.comity.dev/nonsense": "x", "other": "stays"}}}`)
	w.await(a, "v2", count{Total: 2, Lagging: []string{"killed"}})

	w.clock.Step(time.Minute) // the ticker renews the statement of a
	w.await(a, "v2", count{Total: 1})
	w.clock.Step(time.Hour)
	w.await(a, "v2", count{Total: 1})
	if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"killed", "nonsense"} {
		if _, has := lease.Annotations["replica.comity.dev/"+gone]; has {
			t.Errorf("the statement of %s stays", gone)
		}
	}
	if lease.Annotations["other"] != "stays" {
		t.Error("an annotation of somebody else was removed")
	}
}

func (w *world) patch(lease *coordinationv1.Lease, text string) {
	w.t.Helper()
	if err := w.api.Patch(w.t.Context(), lease, client.RawPatch("application/merge-patch+json", []byte(text))); err != nil {
		w.t.Fatal(err)
	}
}

func TestTwoPoliciesOfOneDigestAreTwo(t *testing.T) {
	w := newWorld(t)
	a, _ := w.start("comity-a")
	a.State(map[string]string{"other": "v1"})
	w.await(a, "v1", count{Total: 1, Lagging: []string{"comity-a"}})
}

func TestNameIsAValidNameOfAnAnnotation(t *testing.T) {
	for host, want := range map[string]string{
		"comity-7c9d-x2":                        "comity-7c9d-x2-1",
		"Host_1.Example":                        "Host_1.Example-1",
		"höst":                                  "h-st-1",
		"":                                      "1",
		strings.Repeat("long-", 30) + "7c9d-x2": "",
	} {
		got := replicas.Name(host, 1)
		if problems := validation.IsQualifiedName("replica.comity.dev/" + got); len(problems) > 0 {
			t.Errorf("%q of %q: %v", got, host, problems)
		}
		if want != "" && got != want {
			t.Errorf("%q of %q; want %q", got, host, want)
		}
		if !strings.HasSuffix(got, "1") {
			t.Errorf("%q of %q does not end as the host's", got, host)
		}
	}
}
