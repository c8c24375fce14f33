// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// FAULT 2: a remote API server is down, and the local process is restarted and
// killed meanwhile: not one endpoint goes.
func TestFault02RemoteDown(t *testing.T) {
	fault(t, 100, func(seed uint64) *World {
		o := quiet(seed, ids("a", "b", "c"), keys("svc-adb", "svc-bbc"))
		return shared(o)
	}, func(w *World) {
		w.opts.Calls, w.opts.Late = 5, 3
		want := w.state()
		before := len(w.writes)
		w.clusters["b"].Down = true
		for range 30 {
			w.happen("crash", w.clusters[[]model.ClusterID{"a", "c"}[w.n(2, "whose agent")]])
			w.Live(5)
		}
		w.now = w.now.Add(10 * time.Minute)
		got := w.state()
		w.holds("what stands changed (-before +while down):\n%s", got == want, cmp.Diff(want, got))
		for what, count := range w.since(before) {
			w.holds("%d times %s while nothing changed", what == "status ServiceImport", count, what)
		}
		w.Check()
	})
}

// FAULT 2: peers are lost and do not answer either. Nothing of them is deleted; their
// endpoints are the last resort here.
func TestFault02Lost(t *testing.T) {
	fault(t, 100, func(seed uint64) *World {
		return shared(quiet(seed, ids("a", "b", "c"), keys("web")))
	}, func(w *World) {
		key, a := w.opts.Keys[0], w.clusters["a"]
		if w.n(2, "a exports it too") == 0 {
			w.drop(a, "ServiceExport", key)
			w.rounds()
		}
		before := len(w.writes)
		p := a.Agents[0]
		p.Lost = [][]model.ClusterID{{"b"}, {"c"}, {"b", "c"}}[w.n(3, "lost")]
		w.rounds()
		left := w.ready(a, key, "a")
		for _, id := range []model.ClusterID{"b", "c"} {
			left += w.ready(a, key, id)
		}
		w.holds("no ready endpoint is left while %v are lost", left > 0, p.Lost)
		if only := len(p.Lost) == 1; only {
			w.holds("%d endpoints of lost %v are ready", w.ready(a, key, p.Lost[0]) == 0, w.ready(a, key, p.Lost[0]), p.Lost)
		}
		for what, count := range w.since(before) {
			w.holds("%d times %s because %v are lost", what == "update EndpointSlice" || what == "status ServiceImport", count, what, p.Lost)
		}
		w.Check()
	})
}

// FAULT 4: the etcd of a peer is restored to an hour ago; what was restored is
// followed, and what is newer than that goes.
func TestFault04Restored(t *testing.T) {
	fault(t, 100, func(seed uint64) *World {
		return New(quiet(seed, ids("a", "b", "c"), keys("svc-adb", "svc-bbc")))
	}, func(w *World) {
		b := w.clusters["b"]
		w.users(20)
		w.rounds()
		w.happen("backup", b)
		w.now = w.now.Add(time.Hour)
		w.users(20)
		w.rounds()
		w.happen("restore", b)
		w.Check()
	})
}

// FAULT 5: watches that are too old, and lists from servers that are behind.
func TestFault05Gone(t *testing.T) {
	fault(t, 100, func(seed uint64) *World {
		o := quiet(seed, ids("a", "b", "c"), keys("svc-adb", "web"))
		o.Steps = map[string]int{"user": 12, "gone": 12, "crash": 3, "backup": 1, "restore": 1}
		o.Late, o.Stale = 12, 12
		return New(o)
	}, func(w *World) {
		w.Live(150)
		w.Check()
	})
}

// FAULT 8: a and b do not see each other and both reach c. While nothing
// changes, no winner comes back that was given up before.
func TestFault08Parted(t *testing.T) {
	fault(t, 100, func(seed uint64) *World {
		o := quiet(seed, ids("a", "b", "c"), keys("web"))
		o.Steps = map[string]int{"crash": 2}
		o.Late = 3
		w := New(o)
		for _, pair := range [][2]model.ClusterID{{"a", "b"}, {"b", "a"}} {
			w.parted[pair] = true
		}
		return w
	}, func(w *World) {
		key := w.opts.Keys[0]
		for range 12 {
			w.now = w.now.Add(time.Second)
			w.user(w.clusters[w.ids[w.n(2, "a or b")]])
		}
		w.follow()
		var specs []mcsv1beta1.ServiceImportSpec
		c := w.clusters["c"]
		w.watch(c, func(write apiserver.Write) {
			now, is := write.After.(*mcsv1beta1.ServiceImport)
			if !is || write.Status || now.Name != key.Name {
				return
			}
			if n := len(specs); n > 0 && cmp.Equal(specs[n-1], now.Spec) {
				return // labels only
			}
			for _, before := range specs {
				w.holds("the import of c is again what it was before: %s %s", !cmp.Equal(before, now.Spec), before.Type, before.SessionAffinity)
			}
			specs = append(specs, now.Spec)
		})
		w.Live(60)
		w.Check()
	})
}

// FAULT 22: a peer is removed while our process is down, and comes back under
// the same id as another cluster; exactly its objects go.
func TestFault22PeerRemovedWhileDown(t *testing.T) {
	fault(t, 100, func(seed uint64) *World {
		return shared(quiet(seed, ids("a", "b", "c"), keys("svc-adb", "svc-bbc")))
	}, func(w *World) {
		a, b := w.clusters["a"], w.clusters["b"]
		w.users(6)
		w.rounds()
		a.Agents = nil
		b.Down = true
		w.setPeer(a, "b", false, true)
		w.start(a)
		before := len(w.writes)
		w.rounds()
		for _, write := range w.writes[before:] {
			if write.Ref.Kind == "EndpointSlice" && write.Ref.Namespace == "shop" && write.After == nil && w.check.processes[write.Actor].cluster == a {
				from := write.Before.GetLabels()[model.LabelSourceCluster]
				w.holds("%s of cluster %s went with b", from == "b", write.Ref, from)
			}
		}
		for _, key := range w.opts.Keys {
			w.holds("%d endpoints of b are left of %s", w.ready(a, key, "b") == 0, w.ready(a, key, "b"), key)
		}
		b.Down = false
		w.Check()
		w.setPeer(a, "b", true, false)
		w.Check()
	})
}

// FAULT 25: five clusters flip what they export every two seconds; what the
// oldest export says wins all the time.
func TestFault25Flipping(t *testing.T) {
	fault(t, 50, func(seed uint64) *World {
		return shared(quiet(seed, ids("a", "b", "c", "d", "e"), keys("web")))
	}, func(w *World) {
		key := w.opts.Keys[0]
		before, flips := len(w.writes), 0
		for range 20 {
			w.now = w.now.Add(2 * time.Second)
			for _, id := range w.ids[1:] {
				if w.n(2, "flip") == 0 {
					flips++
					w.flip(w.clusters[id])
				}
			}
			w.follow()
			for _, id := range w.ids {
				w.pass(w.clusters[id])
				s := w.imported(w.clusters[id], key)
				w.holds("the import of %s is %s with affinity %s", s.Spec.Type == mcsv1beta1.ClusterSetIP &&
					s.Spec.SessionAffinity == corev1.ServiceAffinityNone, id, s.Spec.Type, s.Spec.SessionAffinity)
			}
		}
		counts := w.since(before)
		w.holds("a derived Service was deleted %d times", counts["delete Service"] == 0, counts["delete Service"])
		w.holds("%d status writes for %d flips", counts["status ServiceImport"] == 0, counts["status ServiceImport"], flips)
		w.holds("%d updates of ServiceImports for %d flips in 5 clusters", counts["update ServiceImport"] == 0, counts["update ServiceImport"], flips)
		w.Check()
	})
}

// flip gives an exported Service another type, affinity and target.
func (w *World) flip(c *Cluster) {
	key := w.opts.Keys[0]
	old := find[corev1.Service](c, "Service", key)
	service := serviceOf(key, port("http", int32(80+w.n(2, "port"))))
	if w.n(2, "affinity") == 0 {
		service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	if w.n(2, "headless") == 0 {
		service.Spec.ClusterIP = corev1.ClusterIPNone
	}
	if old != nil && (old.Spec.ClusterIP == corev1.ClusterIPNone) != (service.Spec.ClusterIP == corev1.ClusterIPNone) {
		w.drop(c, "Service", key)
	} else if old != nil {
		service.Spec.ClusterIP = old.Spec.ClusterIP
	}
	w.must(c.Server.Put("user", service))
	w.must(c.Server.Put("user", sliceOf(service, key.Name+"-0", w.number(c), 0, 2)))
}
