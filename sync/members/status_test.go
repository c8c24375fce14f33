// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// conditions are those of a status, as type, status and reason.
func conditions(status v1alpha1.PeerStatus) map[string]string {
	out := map[string]string{}
	for _, c := range status.Conditions {
		out[c.Type] = string(c.Status) + " " + c.Reason
	}
	return out
}

func TestTheStatusOfAPeer(t *testing.T) {
	connected := model.Liveness{State: model.Connected}
	lost := model.Liveness{State: model.Lost, Reason: remote.ReasonUnauthorized, Message: "no"}
	unreachable, limit := remote.Failure{Reason: remote.ReasonUnreachable, Message: "no"}, remote.Failure{Reason: model.ReasonLimitExceeded, Message: "no"}
	refused := remote.Failure{Reason: ReasonSecretMissing, Message: "no"}
	good := map[string]string{"Accepted": "True Accepted", "Connected": "True Connected", "RecordsValid": "True RecordsValid", "WithinLimits": "True WithinLimits", "Complete": "True Complete"}
	with := func(of map[string]string, pairs ...string) map[string]string {
		out := map[string]string{}
		for k, v := range of {
			out[k] = v
		}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = pairs[i+1]
		}
		return out
	}
	started := map[string]string{"Accepted": "True Accepted", "Connected": "Unknown Connecting"}
	of := func(o observed) v1alpha1.PeerStatus { p := peer(); return o.status(&p, begun) }
	read := observed{connects: true, read: true, liveness: connected}
	for name, c := range map[string]struct {
		before v1alpha1.PeerStatus
		now    observed
		want   map[string]string
		events string
	}{
		"it is being connected to":   {now: observed{connects: true, liveness: connected}, want: started},
		"it was read":                {now: read, want: good},
		"it was read, after a while": {before: of(observed{connects: true, liveness: connected}), now: read, want: good},
		"the agent restarts":         {before: of(read), now: observed{connects: true, liveness: connected}, want: good},
		"the agent restarts, and it was not reached before": {before: of(observed{connects: true, liveness: connected, problem: unreachable}),
			now: observed{connects: true, liveness: connected}, want: map[string]string{"Accepted": "True Accepted", "Connected": "False Unreachable"}},
		"its Secret is there again": {before: of(observed{refused: refused, liveness: connected}), now: observed{connects: true, liveness: connected}, want: started},
		"its Secret is missing": {before: of(read), now: observed{refused: refused, liveness: connected},
			want: with(good, "Accepted", "False SecretMissing", "Connected", "False SecretMissing"), events: "Warning SecretMissing"},
		"its Secret is missing for long": {before: of(observed{refused: refused, liveness: connected}), now: observed{refused: refused, liveness: lost},
			want: map[string]string{"Accepted": "False SecretMissing", "Connected": "False SecretMissing"}},
		"another kubeconfig leads nowhere": {before: of(read), now: observed{connects: true, read: true, liveness: connected, refused: unreachable},
			want: with(good, "Accepted", "False Unreachable"), events: "Warning Unreachable"},
		"it cannot be reached": {before: of(read), now: observed{connects: true, read: true, liveness: connected, problem: unreachable},
			want: with(good, "Connected", "False Unreachable"), events: "Warning Unreachable"},
		"its heartbeat is missing": {before: of(read), now: observed{connects: true, read: true, liveness: lost, problem: unreachable},
			want: with(good, "Connected", "False Lost"), events: "Warning Lost"},
		"it is back": {before: of(observed{connects: true, read: true, liveness: lost}), now: read, want: good, events: "Normal Connected"},
		"it publishes too much": {before: of(read), now: observed{connects: true, read: true, liveness: connected, problem: limit, limited: remote.Failure{Reason: model.ReasonLimitExceeded, Message: "no"}},
			want: with(good, "WithinLimits", "False LimitExceeded"), events: "Warning LimitExceeded"},
		"it published too much before it was read": {now: observed{connects: true, liveness: connected, problem: limit, limited: remote.Failure{Reason: model.ReasonLimitExceeded, Message: "no"}},
			want: map[string]string{"Accepted": "True Accepted", "Connected": "False LimitExceeded", "WithinLimits": "False LimitExceeded"}, events: "Warning LimitExceeded"},
		"a record is not valid": {before: of(read), now: observed{connects: true, read: true, liveness: connected, invalid: because(model.ReasonInvalidRecord, "it")},
			want: with(good, "RecordsValid", "False InvalidRecord"), events: "Warning InvalidRecord"},
		"exports are missing": {before: of(read), now: observed{connects: true, read: true, liveness: connected, imports: model.ImportCounts{Missing: 1}},
			want: with(good, "Complete", "False Missing"), events: "Warning Missing"},
		"more are missing": {before: of(observed{connects: true, read: true, liveness: connected, imports: model.ImportCounts{Missing: 1}}),
			now: observed{connects: true, read: true, liveness: connected, imports: model.ImportCounts{Missing: 2}}, want: with(good, "Complete", "False Missing")},
		"some wait as well": {before: of(observed{connects: true, read: true, liveness: connected, imports: model.ImportCounts{Missing: 1}}),
			now:  observed{connects: true, read: true, liveness: connected, imports: model.ImportCounts{Missing: 1, Waiting: 7}},
			want: with(good, "Complete", "False Missing")},
		"some wait": {before: of(read), now: observed{connects: true, read: true, liveness: connected, imports: model.ImportCounts{Waiting: 7}},
			want: with(good, "Complete", "False TakeoverHeld"), events: "Warning TakeoverHeld"},
		"it is not read, and exports are missing": {before: of(observed{connects: true, read: true, liveness: connected, imports: model.ImportCounts{Missing: 1}}),
			now:  observed{connects: true, liveness: connected, problem: unreachable},
			want: with(good, "Complete", "False Missing", "Connected", "False Unreachable"), events: "Warning Unreachable"},
	} {
		t.Run(name, func(t *testing.T) {
			p := peer(func(p *v1alpha1.Peer) { p.Status = c.before })
			stored := *p.Status.DeepCopy()
			got := c.now.status(&p, begun.Add(time.Hour))
			if diff := cmp.Diff(c.want, conditions(got)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			var events []string
			for _, e := range transitions(&p.Status, &got) {
				events = append(events, map[bool]string{true: "Warning ", false: "Normal "}[e.Status == metav1.ConditionFalse]+e.Reason)
			}
			if diff := cmp.Diff(c.events, strings.Join(events, ", ")); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			for _, now := range got.Conditions {
				was := meta.FindStatusCondition(stored.Conditions, now.Type)
				if was != nil && (was.Status == now.Status) != now.LastTransitionTime.Equal(&was.LastTransitionTime) {
					t.Errorf("%s: since %v, was %s since %v", now.Type, now.LastTransitionTime, was.Status, was.LastTransitionTime)
				}
			}
			p.Status = got
			if again := c.now.status(&p, begun.Add(2*time.Hour)); !cmp.Equal(got, again) || len(transitions(&got, &again)) > 0 {
				t.Errorf("it changes without a cause:\n%s", cmp.Diff(got, again))
			}
			if diff := cmp.Diff(c.before, stored); diff != "" {
				t.Errorf("what was stored is changed:\n%s", diff)
			}
		})
	}
}

// FAULT 49: however many are missing or wait, one condition says so, with the commands.
func TestFault49WhatIsMissingAndWaitsIsSaidWithItsCommands(t *testing.T) {
	w := exporting(t, 1)
	w.status("b")
	w.kinds()
	w.mu.Lock()
	w.imports["b"] = model.ImportCounts{Missing: 60, Waiting: 1000, FirstMissing: keyOf(1), FirstWaiting: types.NamespacedName{Namespace: "kitchen", Name: "pay"}}
	w.mu.Unlock()
	status := w.status("b")
	if diff := cmp.Diff(v1alpha1.PeerExports{Read: 1, Missing: 60, Waiting: 1000}, status.Exports); diff != "" {
		t.Errorf("exports (-want +got):\n%s", diff)
	}
	message := w.message(v1alpha1.PeerComplete)
	for _, words := range []string{"did not withdraw them: 60", "such as shop/web-1", "kubectl comity confirm missing b", "exports of cluster b that would change imports, and wait: 1000",
		"such as kitchen/pay", "kubectl comity confirm takeover --all --from b"} {
		if !strings.Contains(message, words) {
			t.Errorf("%q is not in: %s", words, message)
		}
	}
	if diff := cmp.Diff([]string{"Warning Missing"}, w.kinds()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestARecordThatIsNotValidIsSaidForAsLongAsItIs(t *testing.T) {
	w := exporting(t, 2)
	if got := w.condition(v1alpha1.PeerRecordsValid); got != "True RecordsValid" {
		t.Fatalf("RecordsValid: %s", got)
	}
	bad := record(shared, 1)
	bad.Spec.Type = "Other"
	w.server.put("exportrecords", bad)
	w.await("it is said", func() bool { return w.condition(v1alpha1.PeerRecordsValid) == "False InvalidRecord" })
	if got := w.message(v1alpha1.PeerRecordsValid); !strings.Contains(got, "that are not valid: 1") || !strings.Contains(got, "web-1.shop") {
		t.Errorf("message: %s", got)
	}
	if diff := cmp.Diff(v1alpha1.PeerExports{Read: 1, Refused: 1}, w.status("b").Exports); diff != "" {
		t.Errorf("exports (-want +got):\n%s", diff)
	}
	w.server.remove("exportrecords", shared, bad.Name)
	w.await("it is over", func() bool { return w.condition(v1alpha1.PeerRecordsValid) == "True RecordsValid" })
	if diff := cmp.Diff([]string{"Warning InvalidRecord"}, w.kinds()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestTheStatusNamesVersionAndExpiry(t *testing.T) {
	w := newWorld(t)
	member := memberRecord("uid-b")
	member.Spec.Version = "v1.2.3"
	w.server.put("memberrecords", member)
	s := w.server.secret()
	s.Data[kubeconfig.SecretKey] = kubeconfigOf(t, w.server.server.URL, w.server.ca(), jwt(`{"iat":1000,"exp":2000,"sub":"system:serviceaccount:comity-system:peer-a"}`))
	w.secrets(s)
	w.await("it is synced", func() bool { return w.member().Synced })
	if got := w.status("b"); got.Version != "v1.2.3" || !got.TokenExpires.Equal(&metav1.Time{Time: time.Unix(2000, 0)}) {
		t.Errorf("%+v", got)
	}
	told := w.times("status b")
	member = memberRecord("uid-b")
	member.Spec.Version = "v1.2.4"
	w.server.put("memberrecords", member)
	w.await("the Peer is to be written", func() bool { return w.times("status b") > told && w.status("b").Version == "v1.2.4" })
}

// A stale cache must not make one transition twice.
func TestAStatusIsWrittenToTheVersionThatItWasComputedFrom(t *testing.T) {
	w := exporting(t, 1)
	w.status("b")
	var stale v1alpha1.Peer
	if err := w.local.Get(t.Context(), types.NamespacedName{Name: "b"}, &stale); err != nil {
		t.Fatal(err)
	}
	w.secrets()
	w.status("b")
	wanted, _ := w.writer.wanted(&stale)
	if written, err := w.writer.write(t.Context(), &stale, wanted); written || err != nil {
		t.Errorf("written %v, error %v", written, err)
	}
}

func TestALostPeerSaysWhatKeepsItFromBeingReadNow(t *testing.T) {
	o := observed{
		connects: true, read: true, liveness: model.Liveness{State: model.Lost, Reason: remote.ReasonUnreachable, Message: "connection refused"},
		problem: remote.Failure{Reason: remote.ReasonUnauthorized, Message: "the token is not accepted; remedy: run kubectl comity join again"},
	}
	status := o.status(&v1alpha1.Peer{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, time.Unix(1, 0))
	got := meta.FindStatusCondition(status.Conditions, v1alpha1.PeerConnected)
	if got == nil || got.Reason != "Lost" || !strings.Contains(got.Message, "kubectl comity join") || strings.Contains(got.Message, "refused") {
		t.Errorf("got %+v", got)
	}
}
