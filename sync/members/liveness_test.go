// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

func TestAPeerThatIsHeardOfCausesNoChange(t *testing.T) {
	w := newWorld(t)
	w.join()
	w.renew(1)
	w.pass(1)
	w.renew(2)
	w.status("b")
	told, changes, writes := w.times("cluster b"), w.times("status b"), w.writes
	for s := 10; s <= 200; s += 10 {
		w.pass(10)
		w.renew(s)
		w.status("b")
	}
	if w.writes != writes || w.times("status b") != changes {
		t.Errorf("the status was written %d times, and to be written %d times", w.writes-writes, w.times("status b")-changes)
	}
	if diff := cmp.Diff(model.Liveness{State: model.Connected, Seen: true}, w.member().Liveness); diff != "" {
		t.Error(diff)
	}
	if got := w.times("cluster b"); got != told {
		t.Errorf("told %d times of a peer that did not change", got-told)
	}
	if got := w.kinds(); len(got) > 0 {
		t.Errorf("events %q", got)
	}
}

func TestAnAgentThatDoesNotRunMakesItsClusterStaleThenLostAndNothingElse(t *testing.T) {
	w := newWorld(t)
	w.server.put("exportrecords", record(shared, 1))
	w.server.put("leases", lease(1))
	w.join()
	w.pass(5)
	w.renew(2)
	w.pass(39)
	if got := w.condition(v1alpha1.PeerConnected); w.state() != model.Connected || got != "True Connected" {
		t.Errorf("%v after 39 s, condition %s", w.state(), got)
	}
	told, only := w.times("cluster b"), w.times("liveness b")
	w.pass(2)
	got := w.member().Liveness
	if got.State != model.Stale || got.Reason != remote.ReasonHeartbeatMissing || !got.Confirmed.Equal(begun.Add(5*time.Second)) || !strings.Contains(got.Message, "the Deployment") {
		t.Errorf("got %+v", got)
	}
	if got := w.message(v1alpha1.PeerConnected); !strings.HasPrefix(got, "no heartbeat of cluster b was seen since 2026-01-01T00:00:05Z: HeartbeatMissing: Lease comity-b/b") {
		t.Errorf("condition: %s", got)
	}
	w.pass(100)
	if diff := cmp.Diff(got, w.member().Liveness); diff != "" {
		t.Errorf("it changed although the state did not:\n%s", diff)
	}
	w.pass(165)
	if got := w.condition(v1alpha1.PeerConnected); w.state() != model.Lost || got != "False Lost" {
		t.Errorf("%v after 305 s, condition %s", w.state(), got)
	}
	if n := w.times("cluster b") - told; n != 2 {
		t.Errorf("told %d times of two transitions", n)
	}
	if n := w.times("liveness b") - only; n != 2 {
		t.Errorf("of two transitions, %d change nothing but the liveness", n)
	}
	if !w.member().Synced || !w.exports(keyOf(1)) {
		t.Error("what was read of it is gone")
	}
	w.renew(3)
	if n := w.times("liveness b") - only; n != 2 {
		t.Error("a heartbeat that is back may come with changes of its exports")
	}
	if diff := cmp.Diff(model.Liveness{State: model.Connected, Seen: true}, w.member().Liveness); diff != "" {
		t.Error(diff)
	}
	if got := w.status("b").LastHeartbeat; got == nil || !got.Time.Equal(w.clock.Now()) {
		t.Errorf("the last heartbeat is %v", got)
	}
	if diff := cmp.Diff([]string{"Warning Stale", "Warning Lost", "Normal Connected"}, w.kinds()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestARevokedTokenMakesAClusterStaleAndItsDataStays(t *testing.T) {
	w := newWorld(t)
	w.server.put("exportrecords", record(shared, 1))
	w.server.put("leases", lease(1))
	w.join()
	w.server.change(func() { w.server.refuse = func(string) (int, string) { return 401, "Unauthorized" } })
	w.server.restart()
	w.await("it is told", func() bool { return w.condition(v1alpha1.PeerConnected) == "False Unauthorized" })
	w.pass(42)
	if c := w.member(); c.Liveness.State != model.Stale || c.Liveness.Reason != remote.ReasonUnauthorized || !c.Synced || !w.exports(keyOf(1)) {
		t.Errorf("got %+v with its export: %v", c, w.exports(keyOf(1)))
	}
	w.status("b")
	if diff := cmp.Diff([]string{"Warning Unauthorized", "Warning Stale"}, w.kinds()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestAPeerThatWasNeverReachedIsStaleAndUnsynced(t *testing.T) {
	w := newWorld(t)
	w.server.change(func() { w.server.refuse = func(string) (int, string) { return 403, "Forbidden" } })
	w.use(peer())
	w.pass(39)
	if w.state() != model.Connected {
		t.Errorf("%v while it is being connected to", w.state())
	}
	w.pass(2)
	if c := w.member(); c.Liveness.State != model.Stale || c.Liveness.Reason != remote.ReasonForbidden || !c.Liveness.Confirmed.IsZero() || c.Synced {
		t.Errorf("got %+v", c)
	}
}

func TestASecretThatCannotBeUsedMakesAMemberStaleWithItsReason(t *testing.T) {
	w := newWorld(t)
	s := w.server.secret()
	s.Data[kubeconfig.SecretKey] = []byte("garbage")
	w.secrets(s)
	w.pass(41)
	if c := w.member().Liveness; c.State != model.Stale || c.Reason != ReasonInvalidKubeconfig {
		t.Errorf("got %+v", c)
	}
}

// FAULT 6: with the default times, watches that bring nothing are found within 90 s.
func TestDeadWatchesAreFoundWithin90SecondsAndTheConnectionIsReplaced(t *testing.T) {
	w := newWorld(t)
	w.server.put("leases", lease(1))
	w.server.put("exportrecords", record(shared, 1))
	w.join()
	w.pass(5)
	w.renew(2)
	w.status("b")
	before := w.active()
	w.server.change(func() { w.server.deaf = true })
	w.server.put("exportrecords", record(shared, 2))
	found := 0
	for s := 1; s <= 90 && found == 0; s++ {
		if s%10 == 0 {
			w.server.put("leases", lease(2+s))
		}
		w.pass(1)
		w.set.mu.Lock()
		if m := w.set.members["b"]; m.next != nil || !m.active.is(before) {
			found = s
		}
		w.set.mu.Unlock()
	}
	t.Logf("found after %d s", found)
	if found == 0 || found > 90 {
		t.Fatalf("found after %d s", found)
	}
	w.await("it is read anew", func() bool { return w.exports(keyOf(2)) })
	if w.state() != model.Connected {
		t.Errorf("%v, although the peer was heard of all the time", w.state())
	}
	if got := w.condition(v1alpha1.PeerConnected); got != "True Connected" || len(w.kinds()) > 0 {
		t.Errorf("condition %s, events %q", got, w.kinds())
	}
}

// trying reports whether another connection or token is being tried.
func (w *world) trying() bool {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	m := w.set.members["b"]
	return m.next != nil
}

func (w *world) active() *remote.Connection {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	return w.set.members["b"].active.Connection
}

func TestAWatchThatFailedComesBackByItself(t *testing.T) {
	w := newWorld(t)
	w.server.put("leases", lease(1))
	w.join()
	w.pass(5)
	w.renew(2)
	before := w.active()
	w.server.change(func() { w.server.refuse = func(string) (int, string) { return 500, "InternalError" } })
	w.server.restart()
	w.await("it fails", func() bool { return !before.Watching() })
	w.answer = func() (string, remote.Failure) { return stamp(3), remote.Failure{} }
	w.pass(50)
	if w.state() != model.Connected || w.active() != before || w.trying() {
		t.Errorf("got %v and another connection", w.state())
	}
}

func TestATimeInWhichThisProcessStoodStillIsNoSilence(t *testing.T) {
	w := newWorld(t)
	w.server.put("leases", lease(1))
	w.join()
	w.pass(5)
	w.renew(2)
	w.clock.Step(time.Hour)
	w.pass(20)
	if w.state() != model.Connected {
		t.Errorf("%v after this process slept", w.state())
	}
}

func TestWithoutLeaseAndReportsAPeerIsReadAllTheSame(t *testing.T) {
	w := newWorld(t)
	w.server.put("exportrecords", record(shared, 1))
	w.server.refuse = func(resource string) (int, string) {
		switch resource {
		case "importrecords":
			return 404, "NotFound"
		case "leases":
			return 403, "Forbidden"
		}
		return 0, ""
	}
	w.join()
	w.await("it is told", func() bool { return w.condition(v1alpha1.PeerConnected) == "False Forbidden" })
	if got := w.message(v1alpha1.PeerConnected); !strings.Contains(got, "its exports are imported all the same, but whether its agent runs is not known") {
		t.Errorf("got %s", got)
	}
	if !w.exports(keyOf(1)) {
		t.Error("its export is not read")
	}
	w.await("it is known that it will say no more", func() bool { return w.member().Reported })
}

// The reason is that of another feed, so the state of the peer is what it was.
func TestReportsThatCannotBeReadEitherAreToldOf(t *testing.T) {
	w := newWorld(t)
	slow := make(chan struct{})
	w.server.refuse = func(resource string) (int, string) {
		switch resource {
		case "importrecords":
			<-slow
			return 403, "Forbidden"
		case "leases":
			return 403, "Forbidden"
		}
		return 0, ""
	}
	w.join()
	w.await("the Lease cannot be read", func() bool { return w.condition(v1alpha1.PeerConnected) == "False Forbidden" })
	close(slow)
	w.await("it is told", func() bool { return w.member().Reported && w.times("report /") == 1 })
}

// What it has not reported since its start, after a loss of all that it had, is no news yet.
func TestAMemberThatIsCatchingUpHasNotReported(t *testing.T) {
	w := newWorld(t)
	starting := lease(1)
	starting.Annotations = map[string]string{model.AnnotationCatchingUp: "true"}
	w.server.put("leases", starting)
	w.join()
	w.await("its Lease is read", func() bool { return w.member().Synced && !w.member().Reported })
	told := w.times("report /")
	w.renew(2)
	w.await("it is told once", func() bool { return w.member().Reported && w.times("report /") == told+1 })
}
