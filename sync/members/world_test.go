// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// world is a Set of cluster a that reads cluster b, with a clock that stands
// still and questions that the test answers.
type world struct {
	t        *testing.T
	set      *Set
	server   *remoteServer
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder

	mu     sync.Mutex
	answer func() (string, remote.Failure)
	told   map[string]int // keys and members, and how often
	events []string
}

var begun = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, server: newRemoteServer(t), clock: clocktesting.NewFakeClock(begun),
		recorder: events.NewFakeRecorder(1000), told: map[string]int{},
	}
	w.set = New(Options{
		Self: "a", ClusterSet: "prod", Namespace: "comity-system", Recorder: w.recorder, Log: logr.Discard(),
		Clock: w.clock, Registry: prometheus.NewRegistry(),
	})
	w.set.requestLease = func(ctx context.Context, id, self model.ClusterID, config *rest.Config) (string, remote.Failure) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.answer == nil {
			return remote.ReadLease(ctx, id, self, config)
		}
		return w.answer()
	}
	w.set.Subscribe(
		func(key types.NamespacedName) { w.note(key.String()) },
		func(id model.ClusterID) { w.note("cluster " + string(id)) },
	)
	w.set.SubscribeReports(func(key types.NamespacedName) { w.note("report " + key.String()) }, func(model.ClusterID) {})
	w.set.becomeLeader()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		if err := (connectionCloser{w.set}).Start(ctx); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told[what]++
}

// times is how often something was told.
func (w *world) times(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.told[what]
}

// secrets does what the reconciler does with these Secrets.
func (w *world) secrets(secrets ...corev1.Secret) {
	w.t.Helper()
	w.set.mu.Lock()
	marks := maps.Clone(w.set.marks)
	w.set.mu.Unlock()
	if err := w.set.use(w.t.Context(), secrets, marks); err != nil {
		w.t.Fatal(err)
	}
}

// join makes b a peer and waits until all of it was read.
func (w *world) join() {
	w.t.Helper()
	w.secrets(w.server.secret())
	w.await("b is synced", func() bool { return w.member().Synced })
	leases := 0
	w.server.change(func() { leases = len(w.server.objects["leases/"+shared]) })
	w.await("its Lease, which is not waited for, was seen too", func() bool {
		w.set.mu.Lock()
		defer w.set.mu.Unlock()
		return leases == 0 || w.set.members["b"].heartbeat.renewal != ""
	})
}

func (w *world) member() model.Member {
	w.t.Helper()
	members := w.set.Members()
	at := slices.IndexFunc(members, func(m model.Member) bool { return m.ID == "b" })
	if at < 0 {
		w.t.Fatalf("members: %v", members)
	}
	return members[at]
}

func (w *world) await(what string, met func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not in 20 s: %s; states %+v; events %q", what, w.set.States(), w.happened())
		}
	}
}

// pass lets seconds go by, as the livenessMonitor sees them. A question is answered
// before the next second.
func (w *world) pass(seconds int) {
	for range seconds {
		w.clock.Step(time.Second)
		w.set.tick()
		w.await("the question is answered", func() bool {
			w.set.mu.Lock()
			defer w.set.mu.Unlock()
			return !slices.ContainsFunc(slices.Collect(maps.Values(w.set.members)), func(m *member) bool { return m.heartbeat.requesting })
		})
	}
}

// renew renews the Lease and waits until a watch brought that.
func (w *world) renew(second int) {
	w.t.Helper()
	w.server.put("leases", lease(second))
	w.await("the Lease is seen", func() bool {
		w.set.mu.Lock()
		defer w.set.mu.Unlock()
		p := w.set.members["b"].heartbeat
		return p.renewal == stamp(second) && p.lastEvent.Equal(w.clock.Now())
	})
}

// stamp is that of a Lease renewed at second.
func stamp(second int) string { return fmt.Sprint("lease@", int64(second)*int64(time.Second)) }

// happened lists the events so far.
func (w *world) happened() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.recorder.Events) > 0 {
		w.events = append(w.events, <-w.recorder.Events)
	}
	return slices.Clone(w.events)
}

// kinds are the first words of the events so far, which are forgotten.
func (w *world) kinds() []string {
	out := []string{}
	for _, e := range w.happened() {
		out = append(out, firstWords(e))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = nil
	return out
}

func (w *world) says(words ...string) {
	w.t.Helper()
	w.await(fmt.Sprintf("an event says %q", words), func() bool {
		return slices.ContainsFunc(w.happened(), func(event string) bool {
			return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(event, word) })
		})
	})
}

func (w *world) state() model.LivenessState { return w.member().Liveness.State }
