// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/simulator/agent"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// FAULT 26: kubectl delete namespace of an exchange namespace, with 1, 5 and 50
// exports. No importer loses an endpoint, also after a restart; the imports say that
// they are held; joining again brings everything back.
func TestFault26ExchangeNamespaceDeleted(t *testing.T) {
	for _, count := range []int{1, 5, 50} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			fault(t, 10, func(seed uint64) *World {
				var names []string
				for i := range count {
					names = append(names, fmt.Sprintf("svc-%02d", i))
				}
				return shared(quiet(seed, ids("a", "b"), keys(names...)))
			}, func(w *World) {
				a, b := w.clusters["a"], w.clusters["b"]
				stays := func(when string) {
					for _, key := range w.opts.Keys {
						w.holds("%d endpoints of b are left of %s in a %s", w.ready(a, key, "b") == 2, w.ready(a, key, "b"), key, when)
					}
				}
				w.deleteExchange(b, model.ExchangeNamespace("b"))
				w.rounds()
				stays("without the namespace")
				if w.n(2, "restart") == 0 {
					w.happen("crash", a)
				}
				w.now = w.now.Add(24 * time.Hour)
				w.rounds()
				stays("a day later")
				w.rejoin(b)
				w.rounds()
				stays("once it is joined again")
				for _, o := range w.writes {
					w.holds("%s %s", o.After != nil || !strings.HasPrefix(o.Actor, "agent a/") || o.Ref.Kind != "EndpointSlice", o.Actor, o.Ref)
				}
				w.Check()
			})
		})
	}
}

// FAULT 26, one object at a time and in any order: what is lost of the exchange
// costs no endpoint; the exporter writes it again.
func TestFault26RecordsDeletedOneByOne(t *testing.T) {
	fault(t, 100, func(seed uint64) *World {
		o := quiet(seed, ids("a", "b", "c"), keys("svc-adb", "web"))
		o.Steps = map[string]int{"slip": 10, "crash": 2, "backup": 1}
		o.Late = 3
		return shared(o)
	}, func(w *World) {
		w.Live(80)
		for _, c := range w.clusters {
			for _, key := range w.opts.Keys {
				for _, from := range w.ids {
					w.holds("%d endpoints of %s are left of %s in %s", w.ready(c, key, from) == 2, w.ready(c, key, from), from, key, c.ID)
				}
			}
		}
		w.Check()
	})
}

// FAULT 28: a member publishes another's Service with creation time 2020 and another
// port name, then as Headless. What is served stays as it was until an administrator
// confirms it.
func TestFault28Takeover(t *testing.T) {
	fault(t, 50, func(seed uint64) *World {
		o := quiet(seed, ids("a", "b", "c"), keys("database"))
		w := New(o)
		w.exports(w.clusters["a"], o.Keys[0], 2)
		w.rounds()
		w.now = w.now.Add(time.Hour)
		w.rounds()
		return w
	}, func(w *World) {
		key, b := w.opts.Keys[0], w.clusters["b"]
		before, derived := w.standing(b, key), w.imported(b, key).Annotations[model.AnnotationDerivedName]
		same := func(when string) {
			now := w.standing(b, key)
			w.holds("the import in b is now %+v, was %+v, %s", now != nil && now.Import == before.Import && now.Service == before.Service, now, before, when)
			w.holds("%d endpoints of a are left in b %s", w.ready(b, key, "a") == 2, w.ready(b, key, "a"), when)
			w.holds("the derived Service was replaced %s", w.imported(b, key).Annotations[model.AnnotationDerivedName] == derived, when)
		}
		for _, kind := range []mcsv1beta1.ServiceImportType{mcsv1beta1.ClusterSetIP, mcsv1beta1.Headless} {
			w.forge(w.clusters["c"], key, forgedBy("c"), kind, port("x", 80))
			w.rounds()
			same("after c forged it as " + string(kind))
			if w.n(2, "restart") == 0 {
				w.happen("crash", b)
			}
			w.now = w.now.Add(24 * time.Hour)
			w.rounds()
			same("a day later")
		}
		if w.n(2, "confirmed") == 0 {
			w.confirmTakeover(b, key, "c/forged-by-c")
			w.rounds()
			w.holds("the import in b is of type %s, although it was confirmed", w.imported(b, key).Spec.Type == mcsv1beta1.Headless, w.imported(b, key).Spec.Type)
		}
	})
}

// FAULT 26: an export was narrowed to one cluster, and then the exchange namespace that
// this cluster reads is deleted. The statement that withdraws it from the others does not
// withdraw it from this one.
func TestFault26NarrowedThenLost(t *testing.T) {
	fault(t, 50, func(seed uint64) *World {
		return shared(quiet(seed, ids("a", "b", "c"), keys("web")))
	}, func(w *World) {
		key, a := w.opts.Keys[0], w.clusters["a"]
		export := exportOf(key)
		export.Annotations = map[string]string{model.AnnotationExportTo: "b"}
		w.must(a.Server.Put("user", export))
		w.rounds()
		w.holds("c still has %d endpoints of a, which is not for it any more", w.ready(w.clusters["c"], key, "a") == 0, w.ready(w.clusters["c"], key, "a"))
		w.deleteExchange(a, model.ScopedExchangeNamespace("a", "b"))
		w.rounds()
		w.holds("%d endpoints of a are left in b", w.ready(w.clusters["b"], key, "a") == 2, w.ready(w.clusters["b"], key, "a"))
		w.rejoin(a)
		w.Check()
	})
}

// FAULT 33: the scope of an export is narrowed while every write to the narrower
// exchange namespace is refused. The wider record goes all the same.
func TestFault33NarrowedWhileRefused(t *testing.T) {
	fault(t, 50, func(seed uint64) *World {
		return shared(quiet(seed, ids("a", "b", "c"), keys("web")))
	}, func(w *World) {
		key, a := w.opts.Keys[0], w.clusters["a"]
		narrow := model.ScopedExchangeNamespace("a", "b")
		refuse := func(p *agent.Process) {
			meets := p.Client.Fault
			p.Client.Fault = func(verb string, ref apiserver.Ref) apiserver.Fault {
				if ref.Namespace == narrow {
					return apiserver.Fail
				}
				return meets(verb, ref)
			}
		}
		refuse(a.Agents[0])
		export := exportOf(key)
		export.Annotations = map[string]string{model.AnnotationExportTo: "b"}
		w.must(a.Server.Put("user", export))
		for range 5 {
			w.follow()
			for _, id := range w.ids {
				w.pass(w.clusters[id])
			}
		}
		w.holds("c still has %d endpoints of a, which is not for it any more", w.ready(w.clusters["c"], key, "a") == 0, w.ready(w.clusters["c"], key, "a"))
		a.Agents = nil
		w.Check()
	})
}
