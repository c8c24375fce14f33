// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

// standsIn notes what an import is in a cluster, and gives a check that it is the same.
func (w *World) standsIn(c *Cluster) func(when string) {
	key := w.opts.Keys[0]
	before, imported := w.standing(c, key), w.imported(c, key)
	return func(when string) {
		now, is := w.standing(c, key), w.imported(c, key)
		w.holds("the import in %s is %+v, was %+v, %s", now != nil && now.Import == before.Import && now.Service == before.Service, c.ID, now, before, when)
		w.holds("the clusterset IP is another one %s", is.UID == imported.UID && is.Spec.IPs[0] == imported.Spec.IPs[0], when)
	}
}

// again deletes and creates the ServiceExport of a cluster.
func (w *World) again(c *Cluster) {
	key := w.opts.Keys[0]
	w.drop(c, "ServiceExport", key)
	if w.n(2, "is read in between") == 0 {
		w.rounds()
	}
	w.must(c.Server.Put("user", exportOf(key)))
	w.rounds()
}

// FAULT 39: a takeover is held, then the deciding export is deleted and created again,
// while others serve or not. The import keeps its properties and clusterset IP.
func TestFault39DecidingExportMadeAgain(t *testing.T) {
	fault(t, 20, func(seed uint64) *World {
		w := New(quiet(seed, ids("a", "b", "c"), keys("web")))
		w.exports(w.clusters["b"], w.opts.Keys[0], 2)
		if w.n(2, "a exports it, too") == 0 {
			w.exports(w.clusters["a"], w.opts.Keys[0], 2)
		}
		w.rounds()
		w.now = w.now.Add(time.Hour)
		return w
	}, func(w *World) {
		key, a := w.opts.Keys[0], w.clusters["a"]
		w.forge(w.clusters["c"], key, forgedBy("c"), mcsv1beta1.Headless, port("http", 80))
		w.rounds()
		same := w.standsIn(a)
		w.holds("the takeover that is held is that of %q", w.heldTakeover(a, key) == "c", w.heldTakeover(a, key))
		w.again(w.clusters["b"])
		same("after b made its export again")
		w.now = w.now.Add(time.Hour)
		w.happen("crash", a)
		w.rounds()
		same("an hour later")
		w.holds("the takeover that is held is that of %q", w.heldTakeover(a, key) == "c", w.heldTakeover(a, key))
	})
}

// FAULT 40: within two minutes of a new export, another member publishes the same name,
// dated years back. What was there when the list formed decides.
func TestFault40NewcomerWithinTwoMinutes(t *testing.T) {
	fault(t, 20, func(seed uint64) *World {
		w := New(quiet(seed, ids("a", "b", "c"), keys("web")))
		w.exports(w.clusters["b"], w.opts.Keys[0], 2)
		w.rounds()
		return w
	}, func(w *World) {
		key, c := w.opts.Keys[0], w.clusters["c"]
		same := w.standsIn(w.clusters["a"])
		w.forge(c, key, forgedBy("c"), mcsv1beta1.Headless, port("http", 80))
		w.rounds()
		same("after c forged it")
		w.forgetForged(c)
		w.rounds()
		same("after its record disappeared")
	})
}

// FAULT 41: Comity's namespace is deleted, and every Peer with it. No import goes, however
// long they stay away.
func TestFault41PeersAbsent(t *testing.T) {
	fault(t, 10, func(seed uint64) *World {
		return shared(quiet(seed, ids("a", "b", "c"), keys("web")))
	}, func(w *World) {
		a, before := w.clusters["a"], w.state()
		for _, id := range ids("b", "c") {
			w.setPeer(a, id, false, false)
		}
		w.happen("crash", a)
		w.rounds()
		w.now = w.now.Add(24 * time.Hour)
		w.rounds()
		w.holds("an import changed without Peers:\n%s\n%s", w.state() == before, before, w.state())
		w.Check()
	})
}

// FAULT 42: a cluster is destroyed and made again with the same id and manifests. Every
// import keeps its clusterset IP, and nothing is held a minute later.
func TestFault42ClusterMadeAgain(t *testing.T) {
	fault(t, 20, func(seed uint64) *World {
		return shared(quiet(seed, ids("a", "b", "c"), keys("web")))
	}, func(w *World) {
		key, a, b := w.opts.Keys[0], w.clusters["a"], w.clusters["b"]
		w.now = w.now.Add(time.Hour)
		same := w.standsIn(a)
		b.Server.Restore(b.backup) // empty, but for namespaces
		w.restored["b"], b.Agents = true, nil
		w.start(b)
		w.rounds()
		w.now = w.now.Add(time.Hour)
		w.rounds()
		same("while b is empty")
		w.exports(b, key, 2)
		w.now = w.now.Add(time.Minute)
		w.rounds()
		same("once the manifests are applied")
		w.holds("the takeover of %q is held", w.heldTakeover(a, key) == "", w.heldTakeover(a, key))
		w.holds("%d endpoints of b are ready", w.ready(a, key, "b") == 2, w.ready(a, key, "b"))
		w.Check()
	})
}

// FAULT 48: the cluster that decides is gone for good, and another one changes a port. A
// condition says by whom the import is frozen, also after a restart, and a confirmation
// ends it.
func TestFault48DeciderGone(t *testing.T) {
	fault(t, 10, func(seed uint64) *World {
		w := New(quiet(seed, ids("a", "b", "c"), keys("web")))
		w.exports(w.clusters["b"], w.opts.Keys[0], 2)
		w.exports(w.clusters["c"], w.opts.Keys[0], 2)
		w.rounds()
		return w
	}, func(w *World) {
		key, a, c := w.opts.Keys[0], w.clusters["a"], w.clusters["c"]
		same := w.standsIn(a)
		w.clusters["b"].Down = true
		w.now = w.now.Add(24 * time.Hour)
		w.happen("crash", a)
		a.Agents[0].Lost = ids("b")
		service := serviceOf(key, port("http", 81))
		service.Spec.ClusterIP = find[corev1.Service](c, "Service", key).Spec.ClusterIP
		w.must(c.Server.Put("user", service))
		w.must(c.Server.Put("user", sliceOf(service, "web-0", w.number(c), 0, 2)))
		w.rounds()
		same("after c changed its port")
		frozen := apimeta.FindStatusCondition(w.imported(a, key).Status.Conditions, condition.TypeFrozen)
		w.holds("no condition says that the import is frozen", frozen != nil)
		w.holds("condition Frozen has reason %s", frozen.Reason == string(model.SourceNotRead), frozen.Reason)
		e, _ := w.stored(a, key).Find("c")
		w.confirmTakeover(a, key, e.ID())
		w.rounds()
		w.holds("the port is %d once it was confirmed", w.imported(a, key).Spec.Ports[0].Port == 81, w.imported(a, key).Spec.Ports[0].Port)
	})
}
