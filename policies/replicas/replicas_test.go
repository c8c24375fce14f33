// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

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

// replica states what it enforces: digests of policies by name.
func (w *world) replica(name string) (r *replicas.Replicas, state func(enforced map[string]string)) {
	r = replicas.New(replicas.Options{Namespace: "comity-system", Name: name, Reader: w.api, Writer: w.api, Clock: w.clock})
	return r, func(enforced map[string]string) {
		w.t.Helper()
		if again, err := r.State(w.t.Context(), enforced); again <= 0 || err != nil {
			w.t.Fatalf("again after %v, %v", again, err)
		}
	}
}

// counts requires that a replica counts so many that run, and those that lag.
func (w *world) counts(r *replicas.Replicas, digest string, total int, lagging ...string) {
	w.t.Helper()
	statements, err := r.Read(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if got := statements.Lagging("owner", digest); len(statements) != total || !slices.Equal(got, lagging) {
		w.t.Errorf("%d replicas, of which %v lag; want %d and %v", len(statements), got, total, lagging)
	}
}

func TestReplicasThatEnforceAPolicyAreCounted(t *testing.T) {
	w := newWorld(t)
	a, stateA := w.replica("comity-a")
	if _, err := a.Read(t.Context()); err == nil {
		t.Error("before any replica states what it enforces there is something to read")
	}
	stateA(map[string]string{"owner": "v1", "other": "v7"})
	w.counts(a, "v1", 1)

	b, stateB := w.replica("comity-b")
	stateB(map[string]string{"owner": "v1"})
	w.counts(a, "v1", 2)
	stateA(map[string]string{"owner": "v2"})
	w.counts(a, "v2", 2, "comity-b")
	stateB(map[string]string{})
	w.counts(a, "v2", 2, "comity-b")
	stateB(map[string]string{"owner": "v2"})
	w.counts(a, "v2", 2)

	ended, end := context.WithCancel(t.Context())
	end()
	if err := b.Start(ended); err != nil { // asked to end, so it does not count for another moment
		t.Fatal(err)
	}
	w.counts(a, "v2", 1)
}

func TestAReplicaThatWasKilledCountsNoMoreSoonAndIsRemovedLater(t *testing.T) {
	w := newWorld(t)
	a, state := w.replica("comity-a")
	enforced := map[string]string{"owner": "v2"}
	state(enforced)
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = "comity-system", replicas.LeaseName
	w.patch(lease, `{"metadata": {"annotations": {"replica.comity.dev/killed": "2026-11-22T11:59:30Z 0123", "replica.comity.dev/nonsense": "x", "other": "stays"}}}`)
	w.counts(a, "v2", 2, "killed")

	for _, later := range []time.Duration{time.Minute, time.Hour} {
		w.clock.Step(later)
		state(enforced)
		w.counts(a, "v2", 1)
	}
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

// Every replica writes one Lease, so one without a change is not written each time.
func TestAStatementIsRenewedSeldom(t *testing.T) {
	w := newWorld(t)
	a, state := w.replica("comity-a")
	version := func() string {
		state(map[string]string{"owner": "v1"})
		lease := &coordinationv1.Lease{}
		if err := w.api.Get(t.Context(), client.ObjectKey{Namespace: "comity-system", Name: replicas.LeaseName}, lease); err != nil {
			t.Fatal(err)
		}
		return lease.ResourceVersion
	}
	first := version()
	w.clock.Step(time.Second)
	if version() != first {
		t.Error("it is written again after a second")
	}
	again, err := a.State(t.Context(), map[string]string{"owner": "v1"})
	if err != nil {
		t.Fatal(err)
	}
	w.clock.Step(again)
	if version() == first {
		t.Errorf("it is not renewed after %v", again)
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
	a, state := w.replica("comity-a")
	state(map[string]string{"other": "v1"})
	w.counts(a, "v1", 1, "comity-a")
}

func TestNameIsAValidNameOfAnAnnotation(t *testing.T) {
	for host, want := range map[string]string{
		"comity-7c9d-x2":                        "comity-7c9d-x2-1",
		"Host_1.Example":                        "Host_1.Example-1",
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
