// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

func TestAnAgentThatDoesNotRunMakesItsClusterLostAndNothingElse(t *testing.T) {
	w := newWorld(t)
	w.server.put("exportrecords", record(shared, 1))
	w.server.put("leases", lease(1))
	w.join()
	w.pass(5)
	w.renew(2)
	w.pass(44)
	if got := w.condition(v1alpha1.PeerConnected); w.state() != model.Connected || got != "True Connected" {
		t.Errorf("%v after 44 s, condition %s", w.state(), got)
	}
	told, only := w.times("cluster b"), w.times("liveness b")
	w.pass(8) // the Lease is read every 7.5 s
	got := w.member().Liveness
	if got.State != model.Lost || got.Silent || got.Reason != remote.ReasonHeartbeatMissing || !got.Confirmed.Equal(begun.Add(5*time.Second)) || !strings.Contains(got.Message, "the Deployment") {
		t.Errorf("got %+v", got)
	}
	if got := w.message(v1alpha1.PeerConnected); !strings.HasPrefix(got, "no heartbeat of cluster b was seen since 2026-01-01T00:00:05Z: HeartbeatMissing: Lease comity-b/b") {
		t.Errorf("condition: %s", got)
	}
	w.pass(100)
	if diff := cmp.Diff(got, w.member().Liveness); diff != "" {
		t.Errorf("it changed although the state did not:\n%s", diff)
	}
	if n := w.times("cluster b") - told; n != 1 {
		t.Errorf("told %d times of one transition", n)
	}
	if n := w.times("liveness b") - only; n != 1 {
		t.Errorf("of one transition, %d change nothing but the liveness", n)
	}
	if !w.member().Synced || !w.exports(keyOf(1)) {
		t.Error("what was read of it is gone")
	}
	w.renew(3)
	if n := w.times("liveness b") - only; n != 1 {
		t.Error("a heartbeat that is back may come with changes of its exports")
	}
	if diff := cmp.Diff(model.Liveness{State: model.Connected, Seen: true}, w.member().Liveness); diff != "" {
		t.Error(diff)
	}
	if got := w.status("b").LastHeartbeat; got == nil || !got.Time.Equal(w.clock.Now()) {
		t.Errorf("the last heartbeat is %v", got)
	}
	if diff := cmp.Diff([]string{"Warning Lost", "Normal Connected"}, w.kinds()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// probed is a slice with an endpoint that can be probed.
func probed(n int) *discoveryv1.EndpointSlice {
	s, port := sliceOf(n, fmt.Sprintf("10.1.0.%d", n+1)), int32(8080)
	s.Ports = []discoveryv1.EndpointPort{{Port: &port}}
	return s
}

// A cluster of which nothing answers is Lost within 15 s and three rounds of probes.
func TestEndpointsThatAnswerNoMoreMakeAClusterSilent(t *testing.T) {
	begin := func(t *testing.T) *world {
		w := newWorld(t)
		w.server.put("leases", lease(1))
		for n := range 60 {
			w.server.put("exportrecords", record(shared, n))
			w.server.put("endpointslices", probed(n))
		}
		w.join()
		w.pass(5)
		w.renew(2)
		if w.dials != maxSample {
			t.Fatalf("%d endpoints were probed", w.dials)
		}
		return w
	}
	silence := func(w *world) (after int) {
		for after = 1; after <= 60 && !w.member().Liveness.Silent; after++ {
			w.pass(1)
		}
		return after
	}
	t.Run("and answer again, and its heartbeat returns", func(t *testing.T) {
		w := begin(t)
		w.setDown(true)
		w.answer = func() (string, remote.Failure) {
			return "", remote.Failure{Reason: remote.ReasonUnreachable, Message: "no route"}
		}
		if after := silence(w); after < 20 || after > 23 || w.state() != model.Lost || w.member().Liveness.Reason != remote.ReasonUnreachable {
			t.Errorf("after %d s, %+v", after, w.member().Liveness)
		}
		if got := w.message(v1alpha1.PeerConnected); !strings.HasPrefix(got, "no probed endpoint answers, and no heartbeat of cluster b was seen since") {
			t.Errorf("condition: %s", got)
		}
		before := w.dials
		w.pass(10)
		if perSecond := (w.dials - before) / 10; perSecond > maxSample/2 {
			t.Errorf("%d connections a second", perSecond)
		}
		w.setDown(false)
		w.pass(4)
		if got := w.member().Liveness; got.State != model.Lost || got.Silent {
			t.Errorf("they answer, and it is %+v", got)
		}
		w.setDown(true)
		w.pass(6)
		if !w.member().Liveness.Silent {
			t.Error("they do not answer again")
		}
		w.renew(3)
		if got := w.member().Liveness; got.State != model.Connected || got.Silent {
			t.Errorf("its heartbeat is back, and it is %+v", got)
		}
	})
	t.Run("never, while they answer: only its API server hangs", func(t *testing.T) {
		w := begin(t)
		w.answer = func() (string, remote.Failure) { return "", remote.Failure{Reason: remote.ReasonUnreachable} }
		if after := silence(w); after < 60 || w.state() != model.Lost {
			t.Errorf("after %d s, %+v", after, w.member().Liveness)
		}
	})
	t.Run("never, if none ever answered", func(t *testing.T) {
		w := newWorld(t)
		w.setDown(true)
		w.server.put("leases", lease(1))
		w.server.put("exportrecords", record(shared, 1))
		w.server.put("endpointslices", probed(1))
		w.join()
		w.pass(5)
		w.renew(2)
		if after := silence(w); after < 60 || w.dials == 0 {
			t.Errorf("after %d s and %d probes, %+v", after, w.dials, w.member().Liveness)
		}
	})
	t.Run("though they did not in the last sample", func(t *testing.T) {
		w := begin(t)
		w.setDown(true)
		for s := 10; s < 60; s += 10 { // heartbeats, and one sample or two that are not answered
			w.pass(10)
			w.renew(s)
		}
		if after := silence(w); after < 20 || after > 23 {
			t.Errorf("after %d s, %+v", after, w.member().Liveness)
		}
	})
	t.Run("never, if none answered for long", func(t *testing.T) {
		w := begin(t)
		w.setDown(true)
		for s := 10; s <= 400; s += 10 {
			w.pass(10)
			w.renew(s)
		}
		if after := silence(w); after < 60 {
			t.Errorf("after %d s, %+v", after, w.member().Liveness)
		}
	})
	t.Run("never, with heartbeats", func(t *testing.T) {
		w := begin(t)
		w.setDown(true)
		for s := 10; s < 60; s += 10 {
			w.pass(10)
			w.renew(s)
		}
		if got := w.member().Liveness; got.State != model.Connected || got.Silent {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("never, if another cluster took its place", func(t *testing.T) {
		w := begin(t)
		w.setDown(true)
		w.use(peer(func(p *v1alpha1.Peer) { p.Spec.ClusterUID = "uid-other" }))
		if after := silence(w); after < 60 {
			t.Errorf("after %d s, %+v", after, w.member().Liveness)
		}
	})
}

func TestARevokedTokenMakesAClusterLostAndItsDataStays(t *testing.T) {
	w := newWorld(t)
	w.server.put("exportrecords", record(shared, 1))
	w.server.put("leases", lease(1))
	w.join()
	w.server.change(func() { w.server.refuse = func(string) (int, string) { return 401, "Unauthorized" } })
	w.server.restart()
	w.await("it is told", func() bool { return w.condition(v1alpha1.PeerConnected) == "False Unauthorized" })
	w.pass(52)
	if c := w.member(); c.Liveness.State != model.Lost || c.Liveness.Reason != remote.ReasonUnauthorized || !c.Synced || !w.exports(keyOf(1)) {
		t.Errorf("got %+v with its export: %v", c, w.exports(keyOf(1)))
	}
	w.status("b")
	if diff := cmp.Diff([]string{"Warning Unauthorized", "Warning Lost"}, w.kinds()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestAPeerThatWasNeverReachedIsLostAndUnsynced(t *testing.T) {
	w := newWorld(t)
	w.server.change(func() { w.server.refuse = func(string) (int, string) { return 403, "Forbidden" } })
	w.use(peer())
	w.await("it is known to fail", func() bool { return w.member().Failing })
	w.pass(44)
	if w.state() != model.Connected {
		t.Errorf("%v while it is being connected to", w.state())
	}
	w.pass(8)
	if c := w.member(); c.Liveness.State != model.Lost || c.Liveness.Reason != remote.ReasonForbidden || !c.Liveness.Confirmed.IsZero() || c.Synced {
		t.Errorf("got %+v", c)
	}
}

func TestASecretThatCannotBeUsedMakesAMemberLostWithItsReason(t *testing.T) {
	w := newWorld(t)
	s := w.server.secret()
	s.Data[kubeconfig.SecretKey] = []byte("garbage")
	w.secrets(s)
	w.await("it is known to fail", func() bool { return w.member().Failing })
	w.pass(46)
	if c := w.member().Liveness; c.State != model.Lost || c.Reason != ReasonInvalidKubeconfig {
		t.Errorf("got %+v", c)
	}
}

// FAULT 6: with the default times, watches that bring nothing are found within 30 s.
func TestDeadWatchesAreFoundWithin30SecondsAndOpenedAgain(t *testing.T) {
	w := newWorld(t)
	w.server.put("leases", lease(1))
	w.server.put("exportrecords", record(shared, 1))
	w.join()
	w.pass(5)
	w.renew(2)
	w.status("b")
	w.awaitWatch()
	time.Sleep(1100 * time.Millisecond) // a reflector lists again after a watch that brought nothing for less than a second
	before, lists := w.active(), 0
	w.server.change(func() { w.server.stale, lists = true, w.server.lists["exportrecords/"+shared] })
	w.server.put("exportrecords", record(shared, 2))
	found := 0
	for s := 1; s <= 30 && found == 0; s++ {
		if s%5 == 0 {
			w.server.put("leases", lease(2+s))
		}
		w.pass(1)
		if w.reconnects() > 0 {
			found = s
		}
	}
	t.Logf("found after %d s", found)
	if found == 0 || found > 30 {
		t.Fatalf("found after %d s", found)
	}
	w.await("it is read", func() bool { return w.exports(keyOf(2)) })
	w.server.change(func() { lists = w.server.lists["exportrecords/"+shared] - lists })
	if w.active() != before || lists != 0 {
		t.Errorf("exports were listed %d times again", lists)
	}
	if w.state() != model.Connected {
		t.Errorf("%v, although the peer was heard of all the time", w.state())
	}
	if got := w.condition(v1alpha1.PeerConnected); got != "True Connected" || len(w.kinds()) > 0 {
		t.Errorf("condition %s, events %q", got, w.kinds())
	}
}

// heardOf is a world in which a renewal of b was seen, and the connection that brought it.
func heardOf(t *testing.T) (*world, *remote.Connection) {
	t.Helper()
	w := newWorld(t)
	w.server.put("leases", lease(1))
	w.join()
	w.pass(5)
	w.renew(2)
	return w, w.active()
}

// trying reports whether another connection or token is being tried.
func (w *world) trying() bool { return w.next() != nil }

func (w *world) next() *remote.Connection {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	return w.set.members["b"].next
}

// reconnects is how often the connections to b were ended.
func (w *world) reconnects() int {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	return w.set.members["b"].reconnects
}

func (w *world) active() *remote.Connection {
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	return w.set.members["b"].active
}

func TestAWatchThatFailedComesBackByItself(t *testing.T) {
	w, before := heardOf(t)
	w.server.change(func() { w.server.refuse = func(string) (int, string) { return 500, "InternalError" } })
	w.server.restart()
	w.await("it fails", func() bool { return !before.Watching() })
	w.answer = func() (string, remote.Failure) { return stamp(3), remote.Failure{} }
	w.pass(50)
	if w.state() != model.Connected || w.active() != before || w.reconnects() > 0 {
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

// A member is drained by its Peer, or by itself if the Peer does not refuse that.
func TestDrains(t *testing.T) {
	w := newWorld(t)
	w.join()
	since := metav1.Unix(1_800_000_000, 0)
	drained := func(p *v1alpha1.Peer) { p.Spec.Drained = &model.Drained{Since: since, Force: true} }
	is := func(when, condition string, want ...model.Drain) {
		t.Helper()
		if diff := cmp.Diff(want, w.member().Drains); diff != "" || w.condition(v1alpha1.PeerDrained) != condition {
			t.Errorf("%s: condition %q, drains (-want +got):\n%s", when, w.condition(v1alpha1.PeerDrained), diff)
		}
	}
	is("not drained", "")
	told := w.times("cluster b")
	w.use(peer(drained))
	is("by its Peer", "True Drained", model.Drain{Drained: model.Drained{Since: since, Force: true}})
	if w.times("cluster b") != told+1 {
		t.Errorf("told %d times", w.times("cluster b")-told)
	}
	w.use(peer())
	is("resumed", "")
	itself := memberRecord("uid-b")
	itself.Annotations = map[string]string{model.AnnotationDrained: `{"since":"2027-01-15T08:00:00Z","over":"5m0s"}`}
	w.server.put("memberrecords", itself)
	w.await("it is read", func() bool { return len(w.member().Drains) == 1 })
	self := model.Drain{Drained: model.Drained{Since: metav1.NewTime(since.UTC()), Over: metav1.Duration{Duration: 5 * time.Minute}}, Self: true}
	is("by itself", "True Drained", self)
	w.use(peer(drained))
	is("by both", "True Drained", model.Drain{Drained: model.Drained{Since: since, Force: true}}, self)
	if message := meta.FindStatusCondition(w.status("b").Conditions, v1alpha1.PeerDrained).Message; message != "an administrator of this cluster drained it by force, so that its endpoints are not ready; to end that: kubectl comity resume b; and "+
		"cluster b itself drained it, so that its endpoints are used only where no other cluster has a ready one; one import after the other from 2027-01-15T08:00:00Z to 2027-01-15T08:05:00Z; "+
		"to end that: kubectl comity resume b --self there, or spec.ignoreDrain of its Peer here" {
		t.Errorf("by both: %s", message)
	}
	w.use(peer(func(p *v1alpha1.Peer) { p.Spec.IgnoreDrain = true }))
	is("by itself, which its Peer refuses", "")
	w.use(peer())
	nonsense := memberRecord("uid-b")
	nonsense.Annotations = map[string]string{model.AnnotationDrained: `{"over":`}
	w.server.put("memberrecords", nonsense)
	w.await("it is read", func() bool { return len(w.member().Drains) == 0 })
	is("by a text that is not valid", "")
}
