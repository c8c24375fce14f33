// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// colliding are names of which derived names are made that are the same.
func colliding(count int) []string {
	byName := map[string][]string{}
	for i := range 26 * 26 * 26 {
		name := fmt.Sprintf("svc-%c%c%c", 'a'+i/676, 'a'+i/26%26, 'a'+i%26)
		derived := model.DerivedName(name)
		byName[derived] = append(byName[derived], name)
		if len(byName[derived]) == count {
			return byName[derived]
		}
	}
	return nil
}

// FAULT 12: four names collide and somebody else has the name that they would
// like: each gets its own, and keeps it.
func TestFault12Collisions(t *testing.T) {
	fault(t, 100, func(seed uint64) *World {
		o := quiet(seed, ids("a", "b"), keys(colliding(4)...))
		o.Steps = map[string]int{"user": 20, "crash": 3, "second leader": 2, "foreign": 2}
		o.Between, o.Late = 4, 3
		return New(o)
	}, func(w *World) {
		w.Live(150)
		w.Check()
		for _, id := range w.ids {
			owners := map[string]string{}
			for _, o := range w.clusters[id].Server.List("Service", "shop") {
				if name := o.GetLabels()[model.LabelServiceName]; model.IsManaged(o) {
					w.holds("%s has both %s and %s", owners[name] == "", name, owners[name], o.GetName())
					owners[name] = o.GetName()
				}
			}
		}
	})
}

// FAULT 13: the shortest and the longest names that there are.
func TestFault13LongNames(t *testing.T) {
	long := func(n int) string { return strings.Repeat("n", n) }
	var everything []types.NamespacedName
	for _, namespace := range []string{"x", long(62), long(63)} {
		for _, name := range []string{"a", long(62), long(63)} {
			everything = append(everything, types.NamespacedName{Namespace: namespace, Name: name})
		}
	}
	fault(t, 5, func(seed uint64) *World {
		o := quiet(seed, ids("a", model.ClusterID(long(63)), model.ClusterID(long(62)+"m")), everything)
		w := shared(o)
		for _, id := range w.ids {
			for _, key := range everything {
				service := find[corev1.Service](w.clusters[id], "Service", key)
				w.must(w.clusters[id].Server.Put("user", sliceOf(service, long(253), w.number(w.clusters[id]), 9, 1)))
			}
		}
		return w
	}, func(w *World) {
		w.rounds()
		before := w.state()
		w.Check()
		w.holds("names changed with a restart", w.state() == before)
		tooLong := serviceOf(types.NamespacedName{Namespace: "x", Name: long(64)}, port("http", 80))
		w.holds("a Service with a name of 64 was taken", w.clusters["a"].Server.Put("user", tooLong) != nil)
	})
}

// FAULT 14: 999 → 1,000 → 1,001 → 5,000 → 0 endpoints. The importer has ready
// endpoints at every moment at which the source has some.
func TestFault14ManyEndpoints(t *testing.T) { grows(t, 3, 1000) }

// TestFault14InSmall is the same with slices of ten, for the order of things.
func TestFault14InSmall(t *testing.T) { grows(t, 100, 10) }

func grows(t *testing.T, count, full int) {
	fault(t, count, func(seed uint64) *World {
		o := quiet(seed, ids("a", "b"), keys("web"))
		w := shared(o)
		w.opts.Between, w.opts.Late, w.opts.Calls = 3, 3, 8
		w.opts.Steps = map[string]int{"crash": 1, "up": 4}
		return w
	}, func(w *World) {
		key, a, b := w.opts.Keys[0], w.clusters["a"], w.clusters["b"]
		some := true
		w.watch(a, func(write apiserver.Write) {
			w.holds("no endpoint of b is left after %s %s", !some || w.ready(a, key, "b") > 0, write.Verb(), write.Ref)
			if s, is := write.After.(*discoveryv1.EndpointSlice); is {
				w.holds("%s has %d endpoints", len(s.Endpoints) <= full, write.Ref, len(s.Endpoints))
			}
		})
		for generation, count := range []int{full - 1, full, full + 1, 5 * full, 0} {
			some = count > 0
			w.rescale(b, key, generation, count, full)
			w.Live(40)
			w.follow()
			w.calm = true
			w.rounds()
			w.calm = false
			w.holds("%d endpoints of b instead of %d", w.ready(a, key, "b") == count, w.ready(a, key, "b"), count)
		}
		w.Check()
	})
}

// rescale gives a Service new slices of other names and takes the old ones away,
// at once or bit by bit, as the controller of Kubernetes does at its worst.
func (w *World) rescale(c *Cluster, key types.NamespacedName, generation, count, full int) {
	service := find[corev1.Service](c, "Service", key)
	steps := 6 * w.n(2, "bit by bit")
	var old []string
	for _, o := range c.Server.List("EndpointSlice", key.Namespace) {
		if o.GetLabels()[discoveryv1.LabelServiceName] == key.Name {
			old = append(old, o.GetName())
		}
	}
	for first := 0; first < count; first += full {
		name := fmt.Sprintf("%s-%d-%d", key.Name, generation, first)
		w.must(c.Server.Put("user", sliceOf(service, name, w.number(c), first, min(full, count-first))))
		w.Live(steps)
	}
	for _, name := range old {
		w.drop(c, "EndpointSlice", types.NamespacedName{Namespace: key.Namespace, Name: name})
		w.Live(steps)
	}
}

// FAULT 15: a peer publishes good and bad addresses in one slice; the good ones
// are imported, and nothing is tried again and again.
func TestFault15BadAddresses(t *testing.T) {
	bad := []string{"", "nonsense", "10.0.0", "10.0.0.256", "0.0.0.0", "127.0.0.1", "169.254.169.254", "224.0.0.1",
		"255.255.255.255", "::1", "::ffff:10.0.0.1", "fe80::1%eth0", "10.0.0.1/8", "010.0.0.1"}
	fault(t, 20, func(seed uint64) *World {
		o := quiet(seed, ids("a", "b"), keys("web"))
		w := New(o)
		w.clusters["b"].Server.Lax = true
		return w
	}, func(w *World) {
		key, a, b := w.opts.Keys[0], w.clusters["a"], w.clusters["b"]
		service := serviceOf(key, port("http", 80))
		s := sliceOf(service, "web-0", 1, 0, len(bad)+2)
		first := 1 + w.n(2, "a good one at the beginning")
		good := s.Endpoints[0].Addresses[0]
		for i := range bad {
			s.Endpoints[first+i-1+0].Addresses = []string{bad[i]}
		}
		if first == 2 {
			s.Endpoints[0].Addresses = []string{good, "127.0.0.2"}
		}
		for _, o := range []apiserver.Object{service, exportOf(key), s} {
			w.must(b.Server.Put("user", o))
		}
		w.rounds()
		var got []string
		for _, o := range a.Server.List("EndpointSlice", key.Namespace) {
			if imported, is := o.(*discoveryv1.EndpointSlice); is && model.IsManaged(o) {
				for _, e := range imported.Endpoints {
					got = append(got, e.Addresses...)
				}
			}
		}
		var want []string
		for _, e := range s.Endpoints {
			for _, address := range e.Addresses {
				if !slices.Contains(bad, address) && address != "127.0.0.2" {
					want = append(want, address)
				}
			}
		}
		w.holds("imported %v, want %v", slices.Equal(got, want) && len(want) >= 2, got, want)
		before := w.calls
		w.follow()
		w.pass(a)
		w.holds("%d calls although nothing changed", w.calls == before, w.calls-before)
	})
}

// FAULT 23: objects of others with our names and labels, and users who change
// ours.
func TestFault23ForeignAndMeddled(t *testing.T) {
	fault(t, 100, func(seed uint64) *World {
		o := quiet(seed, ids("a", "b"), keys("svc-adb", "svc-bbc"))
		o.Steps = map[string]int{"user": 8, "foreign": 8, "meddle": 8, "crash": 2}
		o.Between, o.Late, o.Calls = 5, 3, 12
		return New(o)
	}, func(w *World) {
		w.Live(150)
		w.Check()
	})
}

// FAULT 24: namespaces end and come back, also in the middle of a reconcile.
func TestFault24Namespaces(t *testing.T) {
	fault(t, 100, func(seed uint64) *World {
		o := quiet(seed, ids("a", "b", "c"), keys("svc-adb", "web"))
		o.Steps = map[string]int{"user": 10, "namespace": 8, "crash": 1}
		o.Between, o.Late = 3, 4
		return New(o)
	}, func(w *World) {
		w.Live(150)
		w.Check()
	})
}
