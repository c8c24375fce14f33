// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
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

// read is how many of n exports are read.
func (w *world) read(n int) (read int) {
	for i := range n {
		if w.exports(keyOf(i)) {
			read++
		}
	}
	return read
}

func TestAnExportThatMovesToAnotherAudienceIsReadAtEachMoment(t *testing.T) {
	w := exporting(t, 40)
	scoped := model.ScopedExchangeNamespace("b", "a")
	for i := range 40 {
		w.server.put("exportrecords", record(scoped, i))
	}
	records := func(n int) func() bool {
		return func() bool {
			if read := w.read(40); read != 40 {
				t.Fatalf("%d of 40 exports are read", read)
			}
			w.set.mu.Lock()
			defer w.set.mu.Unlock()
			return len(w.set.members["b"].active.Keys()) == n
		}
	}
	w.await("they are in both", records(80))
	w.server.remove("exportrecords", shared, names(0, 40)...)
	w.await("they are in one", records(40))
	w.server.restart()
	w.server.put("exportrecords", record(scoped, 40))
	w.await("it goes on", func() bool { return w.exports(keyOf(40)) })
	if read := w.read(40); read != 40 {
		t.Errorf("%d of 40 exports are read after a relist", read)
	}
}

// FAULT 26: an exchange that was emptied as a whole says nothing of the peer: the list of
// exports may not be used before that is known, however few there were.
func TestFault26AnEmptiedExchangeMakesThePeerUnverified(t *testing.T) {
	w := exporting(t, 5)
	w.server.change(func() { w.server.deaf = true })
	w.server.remove("exportrecords", shared, names(0, 5)...)
	w.server.remove("memberrecords", shared, "b")
	w.server.restart()
	w.await("it is unverified", func() bool {
		if read := w.read(5); read < 5 && w.member().Synced {
			t.Fatalf("%d exports are read of a synced peer", read)
		}
		return !w.member().Synced
	})
}

// FAULT 26: the same, where only the watch of the exports ends, and that of the MemberRecord
// brings nothing: the MemberRecord is asked for before a list of exports is used.
func TestFault26AListOfExportsIsNotUsedWithoutTheMemberRecord(t *testing.T) {
	w, exports := exporting(t, 5), "exportrecords/"+shared
	w.await("the exports are watched", func() (is bool) {
		w.server.change(func() { is = len(w.server.watches[exports]) > 0 })
		return is
	})
	w.server.change(func() { w.server.deaf, w.server.lists = true, map[string]int{} })
	w.server.remove("exportrecords", shared, names(0, 5)...)
	w.server.remove("memberrecords", shared, "b")
	w.server.change(func() {
		for _, watch := range w.server.watches[exports] {
			watch <- gone
			close(watch)
		}
		delete(w.server.watches, exports)
	})
	w.await("the exports are listed a second time, because the first list is not used", func() (is bool) {
		if read := w.read(5); read < 5 && w.member().Synced {
			t.Fatalf("%d exports are read of a synced peer", read)
		}
		w.server.change(func() { is = w.server.lists[exports] > 1 })
		return is
	})
}

// FAULT 47: of a NamespaceRecord or an ImportRecord nothing is read but its spec, so nobody
// is notified of a change of the rest, and of one of the spec for its key alone.
func TestFault47OnlyTheSpecOfANamespaceRecordOrImportRecordIsAChange(t *testing.T) {
	w, scoped := exporting(t, 1), model.ScopedExchangeNamespace("b", "a")
	meta := func(kind, namespace, name, note string) (metav1.TypeMeta, metav1.ObjectMeta) {
		return metav1.TypeMeta{APIVersion: exchangev1alpha1.GroupVersion.String(), Kind: kind},
			metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"note": note}}
	}
	put := func(name, note, spec string) {
		namespace, report := &exchangev1alpha1.NamespaceRecord{}, &exchangev1alpha1.ImportRecord{}
		namespace.TypeMeta, namespace.ObjectMeta = meta("NamespaceRecord", shared, name, note)
		namespace.Spec.Labels = map[string]string{"team": spec}
		report.TypeMeta, report.ObjectMeta = meta("ImportRecord", scoped, model.RecordName(name, "web"), note)
		report.Spec.Reason = spec
		w.server.put("namespacerecords", namespace)
		w.server.put("importrecords", report)
	}
	w.set.Subscribe(func(c model.MemberChange) {
		if c.What == model.NamespaceChanged {
			w.note("namespace " + c.Key.Name)
		}
	})
	told := func() []int {
		return []int{w.times("namespace shop"), w.times("report shop/web"), w.times("namespace last"), w.times("report last/web")}
	}
	put("shop", "", "Mine")
	w.await("both are read", func() bool { return slices.Equal(told(), []int{1, 1, 0, 0}) })
	for i := range 20 {
		put("shop", fmt.Sprint(i), "Mine")
	}
	put("shop", "19", "Theirs")
	put("last", "", "Mine")
	w.await("the last ones are read", func() bool { return told()[2] == 1 && told()[3] == 1 })
	if got := told(); !slices.Equal(got, []int{2, 2, 1, 1}) {
		t.Errorf("notified %v times of the namespace and the report, which changed twice, and of two more", got)
	}
}

func TestARotatedConnectionReplacesTheOldOneOnceItIsRead(t *testing.T) {
	w := exporting(t, 100)
	s := w.server.secret()
	s.Data[kubeconfig.SecretKey] = append([]byte("# rotated\n"), s.Data[kubeconfig.SecretKey]...)
	before := w.active()
	w.secrets(s)
	w.await("the new connection is in use", func() bool {
		if read := w.read(100); read != 100 {
			t.Fatalf("%d of 100 exports are read", read)
		}
		return w.active() != before
	})
}

// FAULT 5: the network breaks while a connection with another token is made. What the new one listed
// before is not used in place of what was read since.
func TestFault5ARotatedConnectionDoesNotGoBackToWhatItListed(t *testing.T) {
	w := exporting(t, 20)
	exports := "exportrecords/" + shared
	own := "exportrecords/" + model.ScopedExchangeNamespace("b", "a")
	var refused atomic.Int64 // requests for exports
	refuse := func(resources ...string) {
		w.server.change(func() {
			w.server.refuse = func(resource string) (int, string) {
				if slices.Contains(resources, resource) {
					if resource == "exportrecords" {
						refused.Add(1)
					}
					return http.StatusServiceUnavailable, "ServiceUnavailable"
				}
				return 0, ""
			}
		})
	}
	watched := func(times int) func() bool {
		return func() (is bool) {
			w.server.change(func() { is = len(w.server.watches[exports]) == times && len(w.server.watches[own]) == times })
			return is
		}
	}
	w.await("the exports are watched", watched(1))
	before, s := w.active(), w.server.secret()
	s.Data[kubeconfig.SecretKey] = append([]byte("# rotated\n"), s.Data[kubeconfig.SecretKey]...)
	refuse("namespacerecords")
	w.secrets(s)
	w.await("the new connection watches the exports, too", watched(2))
	refuse("namespacerecords", "exportrecords")
	w.server.change(func() {
		close(w.server.watches[exports][1])
		w.server.watches[exports] = w.server.watches[exports][:1]
	})
	next := w.next()
	w.await("its watch of the exports fails", func() bool { return refused.Load() == 2 }) // the first failure is known then
	w.server.put("exportrecords", record(shared, 20))
	w.await("the old connection reads on", func() bool { return w.exports(keyOf(20)) })
	refuse("exportrecords")
	w.await("the new connection is synced", next.Verified)
	if w.active() != before || !w.exports(keyOf(20)) {
		t.Error("it is in use, although its exports are those of before")
	}
	refuse()
	w.await("the new connection is in use", func() bool { return w.active() == next })
	w.await("nothing is missing", func() bool { return w.read(21) == 21 })
}

// awaitWatch waits until the exports are watched.
func (w *world) awaitWatch() {
	w.t.Helper()
	w.await("the exports are watched", func() (is bool) {
		w.server.change(func() { is = len(w.server.watches["exportrecords/"+shared]) > 0 })
		return is
	})
}

// FAULT 5: a server that has forgotten the version of every watch is listed
// again once for each, and what it still has is missed at no moment.
func TestFault5AForgottenVersionCausesOneRelist(t *testing.T) {
	w := exporting(t, 20)
	w.awaitWatch()
	w.server.change(func() { w.server.lists = map[string]int{} })
	w.server.restart()
	w.server.put("exportrecords", record(shared, 20))
	w.await("it goes on", func() bool {
		if read := w.read(20); read != 20 {
			t.Fatalf("%d of 20 exports are read", read)
		}
		return w.exports(keyOf(20))
	})
	w.server.change(func() {
		if got := w.server.lists["exportrecords/"+shared]; got != 1 {
			t.Errorf("the exports were listed %d times", got)
		}
	})
}

// FAULT 4: the version from which a watch would continue is one that a restored store has
// not reached. What it has now is read, and what comes.
func TestFault4APeerThatWasRestoredIsReadAgain(t *testing.T) {
	w := exporting(t, 20)
	backup := 0
	w.server.change(func() { backup = w.server.version })
	for i := 20; i < 25; i++ {
		w.server.put("exportrecords", record(shared, i))
	}
	w.await("it went on", func() bool { return len(w.set.Keys()) == 25 })
	w.status("b")
	w.server.restore(backup)
	w.await("what came later is gone", func() bool { return len(w.set.Keys()) == 20 })
	w.server.put("exportrecords", record(shared, 30))
	w.await("what comes now is read", func() bool { return w.exports(keyOf(30)) })
	for range 3 {
		w.status("b")
	}
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
