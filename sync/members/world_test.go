// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// world is a Set of cluster a that reads cluster b, with a clock that the test moves, and
// requests for Leases that the test answers.
type world struct {
	t        *testing.T
	set      *Set
	server   *remoteServer
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
	// writer writes into local, which has the Peers.
	writer *statusWriter
	local  client.Client

	mu      sync.Mutex
	answer  func() (string, remote.Failure)
	told    map[string]int // keys and members, and how often
	imports map[model.ClusterID]model.ImportCounts
	listed  map[model.ClusterID]bool
	events  []string
	writes  int  // of a status
	down    bool // no endpoint answers
	dials   int
}

var begun = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, server: newRemoteServer(t), clock: clocktesting.NewFakeClock(begun),
		recorder: events.NewFakeRecorder(1000), told: map[string]int{}, imports: map[model.ClusterID]model.ImportCounts{}, listed: map[model.ClusterID]bool{},
	}
	w.set = New(Options{
		Self: "a", ClusterUID: "uid-a", ClusterSet: "prod", Namespace: "comity-system", Recorder: w.recorder, Log: logr.Discard(),
		Clock: w.clock, Registry: prometheus.NewRegistry(), LocalCluster: func() model.LocalCluster { return model.LocalCluster{} },
		LostAfter: 15 * time.Second, Dial: w.dial, StatusInterval: 5 * time.Second,
	})
	w.set.requestLease = func(ctx context.Context, id, self model.ClusterID, config *rest.Config) (string, remote.Failure) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.answer == nil {
			return remote.ReadLease(ctx, id, self, config)
		}
		return w.answer()
	}
	w.set.Subscribe(func(c model.MemberChange) {
		switch c.What {
		case model.ExportChanged, model.EndpointsChanged:
			w.note(c.Key.String())
			return
		case model.ReportChanged:
			w.note("report " + c.Key.String())
			return
		case model.NamespaceChanged:
			return
		case model.HeartbeatFirst, model.HeartbeatMissing:
			w.note("liveness " + string(c.ID))
		}
		w.note("cluster " + string(c.ID))
	})
	w.set.statuses.Subscribe(func(name string) { w.note("status " + name) })
	w.lead()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		if err := w.set.closeConnections(ctx); err != nil {
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

// lead gives this replica a writer of statuses.
func (w *world) lead() {
	scheme := runtime.NewScheme()
	if err := exchangev1alpha1.AddToScheme(scheme); err != nil {
		w.t.Fatal(err)
	}
	w.local = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&exchangev1alpha1.Peer{}).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceApply: func(ctx context.Context, c client.Client, subresource string, config runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			w.mu.Lock()
			w.writes++
			w.mu.Unlock()
			return c.SubResource(subresource).Apply(ctx, config, opts...)
		},
	}).Build()
	w.set.leads.Store(true)
	w.writer = &statusWriter{set: w.set, client: w.local, imports: w}
}

// Counts implements Imports.
func (w *world) Counts(id model.ClusterID) model.ImportCounts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.imports[id]
}

// Listed implements Imports.
func (w *world) Listed(id model.ClusterID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listed[id]
}

// use does what the reconciler does with these Peers and the Secret of b.
func (w *world) use(peers ...exchangev1alpha1.Peer) {
	w.t.Helper()
	w.useBoth(peers, w.server.secret())
}

func (w *world) useBoth(peers []exchangev1alpha1.Peer, secrets ...corev1.Secret) {
	w.t.Helper()
	for i := range peers {
		w.store(&peers[i])
	}
	w.set.use(peers, secrets)
}

// store makes peer what the API server has, with the status of before.
func (w *world) store(peer *exchangev1alpha1.Peer) {
	w.t.Helper()
	var before exchangev1alpha1.Peer
	err := w.local.Get(w.t.Context(), client.ObjectKeyFromObject(peer), &before)
	stored := peer.DeepCopy()
	stored.DeletionTimestamp = nil // the fake API server refuses one without finalizers
	switch {
	case err == nil:
		stored.ResourceVersion, stored.Status = before.ResourceVersion, before.Status
		err = w.local.Update(w.t.Context(), stored)
	case apierrors.IsNotFound(err):
		stored.ResourceVersion = ""
		err = w.local.Create(w.t.Context(), stored)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// secrets does what the reconciler does with the Peer of b and these Secrets.
func (w *world) secrets(secrets ...corev1.Secret) {
	w.t.Helper()
	w.useBoth([]exchangev1alpha1.Peer{peer()}, secrets...)
}

// status is that of the Peer of that name, written as the leader does.
func (w *world) status(name string) exchangev1alpha1.PeerStatus {
	w.t.Helper()
	key := client.ObjectKey{Name: name}
	if _, err := w.writer.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		w.t.Fatal(err)
	}
	var peer exchangev1alpha1.Peer
	if err := w.local.Get(w.t.Context(), key, &peer); err != nil {
		w.t.Fatal(err)
	}
	return peer.Status
}

// condition is one of the Peer of b, and its reason.
func (w *world) condition(typ string) string {
	w.t.Helper()
	c := meta.FindStatusCondition(w.status("b").Conditions, typ)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

// message is that of a condition of the Peer of b.
func (w *world) message(typ string) string {
	w.t.Helper()
	if c := meta.FindStatusCondition(w.status("b").Conditions, typ); c != nil {
		return c.Message
	}
	return ""
}

// join makes b a peer and waits until all of it was read.
func (w *world) join() {
	w.t.Helper()
	w.use(peer())
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

// published is what is known of what b publishes.
func (w *world) published(key types.NamespacedName) (of exchange.Published) {
	for _, p := range w.set.Read(key, true) {
		if p.ID == "b" {
			of = p
		}
	}
	return of
}

// exports reports whether b is read to export something.
func (w *world) exports(key types.NamespacedName) bool { return w.published(key).Export != nil }

func (w *world) await(what string, met func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("not in 20 s: %s; members %+v; events %q", what, w.set.Members(), w.happened())
		}
	}
}

// pass lets seconds go by, as monitorLiveness sees them. A question is answered
// before the next second.
func (w *world) pass(seconds int) {
	for range seconds {
		w.clock.Step(time.Second)
		if s := w.clock.Since(begun) / time.Second; s%2 == 0 {
			w.set.prober.Round(w.t.Context())
		}
		w.set.tick()
		w.await("the question is answered", func() bool {
			w.set.mu.Lock()
			defer w.set.mu.Unlock()
			return !slices.ContainsFunc(slices.Collect(maps.Values(w.set.members)), func(m *member) bool { return m.heartbeat.requesting || m.probes.sampling })
		})
	}
}

// dial opens a connection to an endpoint.
func (w *world) dial(context.Context, string, string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dials++
	if w.down {
		return nil, errors.New("no route to host")
	}
	here, there := net.Pipe()
	return here, there.Close()
}

// setDown makes endpoints answer no more, or again.
func (w *world) setDown(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
}

// renew renews the Lease and waits until a watch brought that.
func (w *world) renew(second int) {
	w.t.Helper()
	w.server.put("leases", lease(second))
	w.await("the Lease is seen", func() bool {
		w.set.mu.Lock()
		defer w.set.mu.Unlock()
		p := w.set.members["b"].heartbeat
		return p.renewal == stamp(second)
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

// firstWords are kind and reason of an event of the fake recorder.
func firstWords(event string) string {
	words := strings.SplitN(event, " ", 3)
	return strings.Join(words[:min(2, len(words))], " ")
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

func (w *world) state() model.LivenessState { return w.member().Liveness.State }
