// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// exporting is a world in which b exports n Services and was read.
func exporting(t *testing.T, n int) *world {
	t.Helper()
	w := newWorld(t)
	for i := range n {
		w.server.put("exportrecords", record(shared, i))
	}
	w.server.put("leases", lease(1))
	w.join()
	w.await("all exports are read", func() bool { return len(w.set.Keys()) == n })
	return w
}

// names are the records from first to last.
func names(first, last int) (out []string) {
	for i := first; i < last; i++ {
		out = append(out, model.RecordName(keyOf(i).Namespace, keyOf(i).Name))
	}
	return out
}

// held counts which of n exports are held, and which are neither there nor held.
func (w *world) held(n int) (held, gone int) {
	w.t.Helper()
	for i := range n {
		if len(w.set.Exports(keyOf(i))) > 0 {
			continue
		}
		if len(w.set.Held(keyOf(i))) > 0 {
			held++
		} else {
			gone++
		}
	}
	return held, gone
}

func TestARelistThatLacksManyIsHeldBeforeAnybodyCanReadIt(t *testing.T) {
	w := exporting(t, 100)
	w.server.change(func() { w.server.deaf = true }) // they vanish unseen, then everything is listed again
	w.server.remove("exportrecords", shared, names(0, 60)...)
	// Whoever looks at any moment finds each export there or held.
	w.server.restart()
	w.await("the new list is read", func() bool {
		if _, gone := w.held(100); gone > 0 {
			t.Fatalf("%d exports are believed gone", gone)
		}
		return len(w.set.Exports(keyOf(0))) == 0
	})
	w.await("all that vanished is held", func() bool { held, _ := w.held(100); return held == 60 })
	if len(w.set.Keys()) != 100 {
		t.Errorf("%d keys; want those that are held as well", len(w.set.Keys()))
	}
	w.pass(3)
	w.says("DeletionHeld 60 of 100 exports of cluster b are gone", "annotate secret -n comity-system peer-b", model.AnnotationConfirmDeletions)
	hold := w.set.Held(keyOf(0))[0]
	if hold.Cluster != "b" || !hold.Since.Equal(begun) || !hold.Until.Equal(begun.Add(10*time.Minute)) || !strings.Contains(hold.Message, "more than 25 of the 100 exports") {
		t.Errorf("got %+v", hold)
	}
}

// What vanished while no process ran is judged by what still stands here of it.
func TestAProcessThatStartsHoldsWhatVanishedBefore(t *testing.T) {
	w := newWorld(t)
	w.set.opts.Imported = func(context.Context) (map[model.ClusterID][]types.NamespacedName, error) {
		of := map[model.ClusterID][]types.NamespacedName{"c": {keyOf(500)}}
		for i := range 100 {
			of["b"] = append(of["b"], keyOf(i))
		}
		return of, nil
	}
	for i := range 40 {
		w.server.put("exportrecords", record(shared, i))
	}
	w.server.put("leases", lease(1))
	w.join()
	if held, gone := w.held(100); held != 60 || gone != 0 {
		t.Errorf("%d are held and %d gone, want 60 and 0", held, gone)
	}
	if len(w.set.Held(keyOf(500))) > 0 {
		t.Error("what is of another cluster is held")
	}
	w.pass(3)
	w.says("DeletionHeld 60 of 100 exports of cluster b are gone")
}

func TestAStreamOfDeletionsIsCutOff(t *testing.T) {
	w := exporting(t, 100)
	w.server.remove("exportrecords", shared, names(0, 60)...)
	w.await("all are seen", func() bool { held, gone := w.held(100); return held+gone == 60 })
	if held, gone := w.held(100); held != 35 || gone != 25 {
		t.Errorf("%d are held and %d believed gone, want 35 and 25", held, gone)
	}
}

func TestAHoldEndsWhenItsTimeIsOverAndTheKeysAreTold(t *testing.T) {
	w := exporting(t, 12)
	w.renew(2)
	w.server.remove("exportrecords", shared, names(0, 12)...)
	w.await("all are seen", func() bool { held, gone := w.held(12); return held == 2 && gone == 10 })
	var waiting []types.NamespacedName
	for i := range 12 {
		if len(w.set.Held(keyOf(i))) > 0 {
			waiting = append(waiting, keyOf(i))
		}
	}
	told := w.times(waiting[0].String())
	for s := 10; s < 600; s += 10 {
		w.pass(10)
		w.renew(s)
	}
	if held, _ := w.held(12); held != 2 {
		t.Errorf("%d are held before the time is over", held)
	}
	w.pass(10)
	if held, _ := w.held(12); held != 0 {
		t.Errorf("%d are held after it", held)
	}
	if w.times(waiting[0].String()) != told+1 || w.times(waiting[1].String()) == 0 {
		t.Error("the keys were not told")
	}
}

func TestAHoldStandsAsLongAsThePeerIsNotHeardOf(t *testing.T) {
	w := exporting(t, 12)
	w.server.remove("exportrecords", shared, names(0, 12)...)
	w.await("all are seen", func() bool { held, _ := w.held(12); return held == 2 })
	w.pass(700)
	if held, _ := w.held(12); held != 2 || w.state() != model.Lost {
		t.Errorf("%d are held of a peer that is %v", held, w.state())
	}
	w.renew(9)
	w.pass(1)
	if held, _ := w.held(12); held != 0 {
		t.Errorf("%d are held once it is heard of", held)
	}
}

func TestAnAdministratorConfirmsDeletions(t *testing.T) {
	w := exporting(t, 12)
	w.server.remove("exportrecords", shared, names(0, 12)...)
	w.await("all are seen", func() bool { held, _ := w.held(12); return held == 2 })
	confirm := func(text string) {
		s := w.server.secret()
		s.Annotations[model.AnnotationConfirmDeletions] = text
		w.secrets(s)
	}
	confirm("yes")
	w.says("Warning InvalidConfirmation Secret comity-system/peer-b, annotation comity.dev/confirm-deletions", `"yes" is not a time`)
	confirm(begun.Add(-time.Second).Format(time.RFC3339))
	if held, _ := w.held(12); held != 2 {
		t.Errorf("%d are held; a time before they vanished confirms nothing", held)
	}
	connection := w.active()
	confirm(begun.Format(time.RFC3339))
	if held, _ := w.held(12); held != 0 {
		t.Errorf("%d are held after it was confirmed", held)
	}
	if w.active() != connection {
		t.Error("an annotation made a new connection")
	}
}

func TestWhatComesBackIsNotHeld(t *testing.T) {
	w := exporting(t, 12)
	w.server.remove("exportrecords", shared, names(0, 12)...)
	w.await("all are seen", func() bool { held, _ := w.held(12); return held == 2 })
	for i := range 12 {
		w.server.put("exportrecords", record(shared, i))
	}
	w.await("all are back", func() bool { held, gone := w.held(12); return held+gone == 0 })
	w.await("none is held any more", func() bool { return len((*w.set.view.Load())[0].guard.Keys()) == 0 })
	w.pass(5)
	if got := w.kinds(); slices.Contains(got, "Warning DeletionHeld") {
		t.Errorf("told of what was over before: %q", got)
	}
}

func TestAnExportThatMovesToAnotherAudienceHasNotVanished(t *testing.T) {
	w := exporting(t, 40)
	scoped := model.ScopedExchangeNamespace("b", "a")
	for i := range 40 {
		w.server.put("exportrecords", record(scoped, i))
	}
	w.await("they stand in both", func() bool {
		w.set.mu.Lock()
		defer w.set.mu.Unlock()
		return len(w.set.members["b"].active.Keys()) == 80
	})
	w.server.remove("exportrecords", shared, names(0, 40)...)
	w.await("they stand in one", func() bool {
		if held, gone := w.held(40); held+gone > 0 {
			t.Fatalf("%d are held and %d gone", held, gone)
		}
		w.set.mu.Lock()
		defer w.set.mu.Unlock()
		return len(w.set.members["b"].active.Keys()) == 40
	})
	w.server.restart()
	w.server.put("exportrecords", record(scoped, 40))
	w.await("it goes on", func() bool { return len(w.set.Exports(keyOf(40))) == 1 })
	if held, gone := w.held(41); held+gone > 0 {
		t.Errorf("%d are held and %d gone after a relist", held, gone)
	}
}

// An exchange that was emptied as a whole is no longer the peer's word: the list
// of exports may not be taken before that is known, however few there were.
func TestAnEmptiedExchangeMakesThePeerUnverifiedAndLosesNothing(t *testing.T) {
	w := exporting(t, 5)
	w.server.change(func() { w.server.deaf = true })
	w.server.remove("exportrecords", shared, names(0, 5)...)
	w.server.remove("memberrecords", shared, "b")
	w.server.restart()
	w.await("it is unverified", func() bool {
		for i := range 5 {
			exports, synced := len(w.set.Exports(keyOf(i))), w.member().Synced
			if exports == 0 && synced {
				t.Fatalf("export %d is believed gone", i)
			}
		}
		return !w.member().Synced
	})
}

func TestARotatedConnectionThatLacksManyIsJudgedBeforeItIsRead(t *testing.T) {
	w := exporting(t, 100)
	w.server.change(func() { w.server.deaf = true })
	w.server.remove("exportrecords", shared, names(0, 60)...)
	s := w.server.secret()
	s.Data[kubeconfig.SecretKey] = append([]byte("# rotated\n"), s.Data[kubeconfig.SecretKey]...)
	before := w.active()
	w.secrets(s)
	w.await("the new connection is read", func() bool {
		if _, gone := w.held(100); gone > 0 {
			t.Fatalf("%d exports are believed gone", gone)
		}
		return w.active() != before
	})
	if held, _ := w.held(100); held != 60 {
		t.Errorf("%d are held", held)
	}
}

// FAULT 5: a server that has forgotten the version of every watch is listed
// again once for each, and what it still has is missed at no moment.
func TestAForgottenVersionCausesOneRelistAndNoDeletion(t *testing.T) {
	w := exporting(t, 20)
	w.await("the exports are watched", func() (is bool) {
		w.server.change(func() { is = len(w.server.watches["exportrecords/"+shared]) > 0 })
		return is
	})
	w.server.change(func() { w.server.lists = map[string]int{} })
	w.server.restart()
	w.server.put("exportrecords", record(shared, 20))
	w.await("it goes on", func() bool {
		if held, gone := w.held(20); held+gone > 0 {
			t.Fatalf("%d are held and %d gone", held, gone)
		}
		return len(w.set.Exports(keyOf(20))) == 1
	})
	w.server.change(func() {
		if got := w.server.lists["exportrecords/"+shared]; got != 1 {
			t.Errorf("the exports were listed %d times", got)
		}
	})
}

// FAULT 4: the version to which a watch would go on lies in the future of a
// store that was restored. What is there now is read, and what comes is heard.
func TestAPeerThatWasRestoredIsReadAnew(t *testing.T) {
	w := exporting(t, 20)
	backup := 0
	w.server.change(func() { backup = w.server.version })
	for i := 20; i < 25; i++ {
		w.server.put("exportrecords", record(shared, i))
	}
	w.await("it went on", func() bool { return len(w.set.Keys()) == 25 })
	w.server.restore(backup)
	w.await("what came later is gone", func() bool { return len(w.set.Keys()) == 20 })
	w.server.put("exportrecords", record(shared, 30))
	w.await("what comes now is read", func() bool { return len(w.set.Exports(keyOf(30))) == 1 })
	w.says("Warning StoreRestored cluster b: the API server is at resourceVersion", "its store was restored from a backup", "remedy: ")
	told := 0
	for _, kind := range w.kinds() {
		if kind == "Warning StoreRestored" {
			told++
		}
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}
