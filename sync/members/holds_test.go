// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

func TestWhatIsMissingIsHeldUntilItIsConfirmedOrBack(t *testing.T) {
	h, now := newHolds(), begun.Add(300*time.Millisecond)
	h.set(keyOf(1), true, now)
	h.set(keyOf(2), true, now.Add(5*time.Second))
	h.set(keyOf(1), true, now.Add(time.Hour))
	if since, held := h.held(keyOf(1)); !held || !since.Equal(begun) {
		t.Errorf("held %v since %v", held, since)
	}
	if got := h.confirm(begun.Add(-time.Second)); len(got) > 0 {
		t.Errorf("an earlier time confirms %v", got)
	}
	if got := h.confirm(begun); !slices.Equal(got, []types.NamespacedName{keyOf(1)}) {
		t.Errorf("confirmed %v", got)
	}
	if got := h.confirm(begun); len(got) > 0 {
		t.Errorf("confirmed again: %v", got)
	}
	h.set(keyOf(1), true, now.Add(2*time.Hour))
	if _, held := h.held(keyOf(1)); held {
		t.Error("what is confirmed is held again before it is removed")
	}
	h.set(keyOf(1), false, now)
	h.set(keyOf(1), true, now.Add(3*time.Hour))
	if _, held := h.held(keyOf(1)); !held {
		t.Error("what was back and is missing again is not held")
	}
	h.confirm(time.Time{})
	if got := len(h.keys()); got != 2 {
		t.Errorf("%d are held without a confirmation", got)
	}
}

func TestMissingExportsAreReportedTogetherAndRarely(t *testing.T) {
	h := newHolds()
	var got []string
	at := func(second int) time.Time { return begun.Add(time.Duration(second) * time.Second) }
	for second := range 200 {
		switch {
		case second == 1, second == 2, second == 70:
			h.set(keyOf(second), true, at(second))
		case second >= 100 && second < 120: // one each second
			h.set(keyOf(second), true, at(second))
		case second == 150: // back before it is reported
			h.set(keyOf(500), true, at(second))
			h.set(keyOf(500), false, at(second))
		}
		if count, first, report := h.unreported(at(second)); report {
			got = append(got, at(second).Format("04:05")+" "+string(rune('0'+count%10))+" such as "+first.String())
		}
	}
	if diff := cmp.Diff([]string{"00:04 2 such as shop/web-1", "01:12 3 such as shop/web-1", "02:12 3 such as shop/web-1"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// stating is a world in which b exports n Services and states its withdrawals.
func stating(t *testing.T, n int) *world {
	t.Helper()
	w := newWorld(t)
	w.server.put("memberrecords", statingRecord())
	for i := range n {
		w.server.put("exportrecords", record(shared, i))
	}
	w.server.put("leases", lease(1))
	w.join()
	w.await("all exports are read", func() bool { return len(w.set.Keys()) == n })
	return w
}

func statingRecord() *exchangev1alpha1.MemberRecord {
	r := memberRecord("uid-b")
	r.Spec.Features = []string{"SomethingElse", exchangev1alpha1.FeatureWithdrawals}
	return r
}

func TestOfAPeerThatStatesWithdrawalsNothingMissingIsWithdrawn(t *testing.T) {
	w := stating(t, 3)
	if !w.member().StatesWithdrawals {
		t.Fatal("it does not state its withdrawals")
	}
	withdrawn := record(shared, 1)
	withdrawn.Spec.Withdrawn, withdrawn.Spec.Ports = true, nil
	w.server.put("exportrecords", withdrawn)
	w.server.remove("exportrecords", shared, names(0, 1)...)
	w.await("both are seen", func() bool { return len(w.set.Exports(keyOf(0)))+len(w.set.Exports(keyOf(1))) == 0 })
	if got := w.set.Withdrawals(keyOf(0)); len(got) > 0 {
		t.Errorf("what is missing is withdrawn: %v", got)
	}
	if got := w.set.Withdrawals(keyOf(1)); len(got) != 1 || got[0].UID != withdrawn.Spec.ExportUID {
		t.Errorf("withdrawals: %v", got)
	}
	if got := w.set.Held(keyOf(0)); len(got) > 0 {
		t.Errorf("held before the importer found it missing: %v", got)
	}

	w.clock.Step(300 * time.Millisecond)
	holds := w.set.Hold(keyOf(0), []model.ClusterID{"b", "c"})
	if len(holds) != 1 || holds[0].Cluster != "b" || !holds[0].Since.Equal(begun) || !holds[0].Until.IsZero() {
		t.Fatalf("got %+v", holds)
	}
	if diff := cmp.Diff(holds, w.set.Held(keyOf(0))); diff != "" {
		t.Error(diff)
	}
	if !slices.Contains(w.set.Keys(), keyOf(0)) {
		t.Error("it is not among the keys")
	}
	w.pass(3)
	w.says("DeletionHeld 1 exports of cluster b are missing from its exchange although cluster b did not withdraw them, such as shop/web-0; what", "kubectl comity join", "kubectl comity leave",
		"kubectl annotate secret -n comity-system peer-b --overwrite comity.dev/confirm-deletions=$(date -u")
	w.pass(3600)
	if got := w.set.Hold(keyOf(0), []model.ClusterID{"b"}); len(got) != 1 || !got[0].Since.Equal(begun) {
		t.Errorf("an hour later: %v", got)
	}

	told := w.times(keyOf(0).String())
	s := w.server.secret()
	s.Annotations[model.AnnotationConfirmDeletions] = begun.Format(time.RFC3339)
	w.secrets(s)
	if got := w.set.Hold(keyOf(0), []model.ClusterID{"b"}); len(got) > 0 || w.times(keyOf(0).String()) != told+1 {
		t.Errorf("it is confirmed, and the holds are %v; told %d times", got, w.times(keyOf(0).String())-told)
	}
}

// The clock of the administrator may be ahead: what was missing is confirmed, and
// nothing that goes missing later.
func TestAConfirmationOfATimeToComeConfirmsNothingBeforehand(t *testing.T) {
	w := stating(t, 2)
	missing := func(n int) bool { return len(w.set.Hold(keyOf(n), []model.ClusterID{"b"})) == 1 }
	lose := func(n int) {
		w.server.remove("exportrecords", shared, names(n, n+1)...)
		w.await("it is seen", func() bool { return len(w.set.Exports(keyOf(n))) == 0 })
	}
	lose(0)
	if !missing(0) {
		t.Fatal("it is not held")
	}
	w.pass(5)
	s := w.server.secret()
	s.Annotations[model.AnnotationConfirmDeletions] = begun.Add(50 * time.Minute).Format(time.RFC3339)
	w.secrets(s)
	if missing(0) {
		t.Error("what was missing is held though it is confirmed")
	}
	w.pass(60)
	lose(1)
	s = *s.DeepCopy()
	s.Annotations["example.com/other"] = "changed"
	w.secrets(s)
	if !missing(1) {
		t.Error("what went missing later is not held")
	}
}

// A scope is narrowed by two writes that are watched separately. Whoever stays in it does
// not take the statement for the others as its own, whichever comes first.
func TestWhoStaysInANarrowedScopeKeepsTheExport(t *testing.T) {
	w := stating(t, 2)
	scoped := model.ScopedExchangeNamespace("b", "a")
	narrow := func(i int) {
		statement := record(shared, i)
		statement.Spec.Withdrawn, statement.Spec.Narrowed, statement.Spec.Ports = true, true, nil
		w.server.put("exportrecords", statement)
		w.await("the statement is read", func() bool { return len(w.set.Exports(keyOf(i))) == 0 })
	}
	w.server.change(func() { w.server.late = "exportrecords/" + scoped })
	w.server.put("exportrecords", record(scoped, 0))
	narrow(0)
	narrow(1)
	w.await("the server is asked about both, and one is withdrawn", func() bool {
		if got := w.set.Withdrawals(keyOf(0)); len(got) > 0 {
			t.Fatalf("withdrawn from who stays: %v", got)
		}
		return len(w.set.Withdrawals(keyOf(1))) == 1
	})
	if got := w.set.Withdrawals(keyOf(0)); len(got) > 0 {
		t.Errorf("withdrawn from who stays: %v", got)
	}
	told := w.times(keyOf(0).String())
	w.server.change(func() { w.server.late = "" })
	w.server.put("exportrecords", record(scoped, 0))
	w.await("it is read", func() bool { return len(w.set.Exports(keyOf(0))) == 1 })
	w.await("it is told", func() bool { return w.times(keyOf(0).String()) > told })
}

func TestAHoldOutlivesThatItsPeerCannotBeRead(t *testing.T) {
	w := stating(t, 2)
	w.server.remove("exportrecords", shared, names(0, 1)...)
	w.await("it is seen", func() bool { return len(w.set.Exports(keyOf(0))) == 0 })
	w.set.Hold(keyOf(0), []model.ClusterID{"b"})
	w.server.remove("memberrecords", shared, "b")
	w.await("it is unsynced", func() bool { return !w.member().Synced })
	if !w.member().Read {
		t.Error("a member that was synced once counts as never read")
	}
	if got := w.set.Hold(keyOf(0), nil); len(got) != 1 {
		t.Errorf("got %v", got)
	}
	w.server.put("memberrecords", statingRecord())
	w.await("it is synced", func() bool { return w.member().Synced })
	if got := w.set.Hold(keyOf(0), nil); len(got) > 0 {
		t.Errorf("it is missing no more, and held: %v", got)
	}
}

// A caller reads the exports before it has them held. What changes in between must not
// make it remove the import.
func TestAnExportThatWasFoundMissingIsHeldWhateverChangedSince(t *testing.T) {
	b := []model.ClusterID{"b"}
	lose := func(w *world) {
		w.server.remove("exportrecords", shared, names(0, 1)...)
		w.await("it is missing", func() bool { return len(w.set.Exports(keyOf(0))) == 0 })
	}
	for peer, begin := range map[string]func(*testing.T, int) *world{"states withdrawals": stating, "is of an older version": exporting} {
		t.Run("it is published again by a peer that "+peer, func(t *testing.T) {
			w := begin(t, 2)
			lose(w)
			w.server.put("exportrecords", record(shared, 0))
			w.await("it is back", func() bool { return len(w.set.Exports(keyOf(0))) == 1 })
			if got := w.set.Hold(keyOf(0), b); len(got) != 1 || got[0].Cluster != "b" || !got[0].Since.Equal(begun) {
				t.Errorf("holds: %+v", got)
			}
			if got := w.set.Hold(keyOf(0), nil); len(got)+len(w.set.Held(keyOf(0))) > 0 || len((*w.set.view.Load())[0].heldKeys()) > 0 {
				t.Errorf("the next decision does not end the hold: %+v", got)
			}
		})
		t.Run("the MemberRecord is deleted of a peer that "+peer, func(t *testing.T) {
			w := begin(t, 2)
			lose(w)
			w.server.remove("memberrecords", shared, "b")
			w.await("it is unsynced", func() bool { return !w.member().Synced })
			if got := w.set.Hold(keyOf(0), b); len(got) != 1 || got[0].Cluster != "b" {
				t.Errorf("holds: %+v", got)
			}
			w.server.put("exportrecords", record(shared, 0))
			back := memberRecord("uid-b")
			if peer == "states withdrawals" {
				back = statingRecord()
			}
			w.server.put("memberrecords", back)
			w.await("it is synced", func() bool { return w.member().Synced })
			if got := w.set.Hold(keyOf(0), nil); len(got)+len(w.set.Held(keyOf(0))) > 0 {
				t.Errorf("the hold does not end: %+v", got)
			}
		})
	}
}

// A confirmation is of what was missing, and not of what is published again.
func TestWhatIsConfirmedAndPublishedAgainIsKept(t *testing.T) {
	w := stating(t, 2)
	w.server.remove("exportrecords", shared, names(0, 1)...)
	w.await("it is missing", func() bool { return len(w.set.Exports(keyOf(0))) == 0 })
	w.set.Hold(keyOf(0), []model.ClusterID{"b"})
	s := w.server.secret()
	s.Annotations[model.AnnotationConfirmDeletions] = begun.Format(time.RFC3339)
	w.secrets(s)
	if got := w.set.Hold(keyOf(0), []model.ClusterID{"b"}); len(got) > 0 {
		t.Fatalf("it is confirmed, and held: %+v", got)
	}
	w.server.put("exportrecords", record(shared, 0))
	w.await("it is back", func() bool { return len(w.set.Exports(keyOf(0))) == 1 })
	if got := w.set.Hold(keyOf(0), []model.ClusterID{"b"}); len(got) != 1 {
		t.Errorf("it is published again, and not kept")
	}
}

// FAULT 26: while an exchange is deleted, the MemberRecord may be gone before the peer
// is known to be unverified.
func TestAMissingMemberRecordDoesNotMakeAMissingExportAWithdrawal(t *testing.T) {
	w := stating(t, 3)
	w.server.remove("exportrecords", shared, names(0, 3)...)
	w.await("they are missing", func() bool { return len(w.set.Exports(keyOf(0)))+len(w.set.Exports(keyOf(1))) == 0 })
	active := w.active()
	w.set.mu.Lock() // nobody hears of what comes now
	w.server.remove("memberrecords", shared, "b")
	for known := true; known; time.Sleep(time.Millisecond) {
		_, known = active.StatesWithdrawals()
	}
	members, withdrawals := w.set.Members(), w.set.Withdrawals(keyOf(0))
	w.set.mu.Unlock()
	if !members[0].Synced || !members[0].StatesWithdrawals || len(withdrawals) > 0 {
		t.Errorf("members %+v, withdrawals %v", members, withdrawals)
	}
}

func TestAPeerThatBeginsToStateWithdrawalsIsFollowed(t *testing.T) {
	w := exporting(t, 2)
	if w.member().StatesWithdrawals {
		t.Fatal("an earlier version states its withdrawals")
	}
	told := w.times("cluster b")
	w.server.put("memberrecords", statingRecord())
	w.await("it is known", func() bool { w.set.tick(); return w.member().StatesWithdrawals })
	if w.times("cluster b") == told {
		t.Error("nobody is told")
	}
}

func TestAConfirmationOfATimeToComeIsBounded(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, begun.Format(time.RFC3339): true, begun.Add(time.Hour).Format(time.RFC3339): true,
		begun.Add(time.Hour + time.Second).Format(time.RFC3339): false, "2099-01-01T00:00:00Z": false, "tomorrow": false,
	} {
		then, err := parseConfirmation(text, begun)
		if (err == nil) != want || err != nil && !then.IsZero() {
			t.Errorf("%q: %v, %v", text, then, err)
		}
	}
}
