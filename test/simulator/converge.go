// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/simulator/agent"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// maxRounds is how many passes over everything may be needed after the last
// fault. Each pass of each cluster is one hop: publish, read, import, its status.
const maxRounds = 12

// Check lets a run end: nothing fails any more, everybody reads everything, and
// every key is worked on until no API server is called. Then it asks whether what
// stands is what should, and whether a restart leaves it alone (I3).
func (w *World) Check() {
	w.settle()
	w.compare()
	w.endTakeovers()
	w.compare()
	w.restart()
}

// restart is I3: processes that restart where all is as it should be write nothing.
func (w *World) restart() {
	before := len(w.writes)
	w.now = w.now.Add(10 * time.Minute)
	for _, id := range w.ids {
		w.clusters[id].Agents = nil
		p := w.start(w.clusters[id])
		p.Seen = agent.Seen{}
		w.pass(w.clusters[id]) // no peer is read yet
	}
	w.follow()
	for _, id := range w.ids {
		w.pass(w.clusters[id])
	}
	for _, write := range w.writes[before:] {
		if !w.leftover(write) {
			w.fail("I3: %d writes although everything was as it should be, among them %s %s %s:\n%s",
				len(w.writes)-before, write.Actor, write.Verb(), write.Ref, cmp.Diff(write.Before, write.After))
		}
	}
}

// leftover reports whether a write takes away what is left of an import in whose
// place an object of somebody else stands. What is left there depends on what
// came first, so compare does not look at it either.
func (w *World) leftover(write apiserver.Write) bool {
	from := w.check.origins[uidOf(write)]
	return write.After == nil && w.inTheWay(w.check.processes[write.Actor].cluster, from.key)
}

func uidOf(write apiserver.Write) types.UID {
	if write.Before != nil {
		return write.Before.GetUID()
	}
	return write.After.GetUID()
}

// settle ends all faults and runs until nobody calls.
func (w *World) settle() {
	w.log("nothing fails any more")
	w.calm = true
	clear(w.parted)
	for _, id := range w.ids {
		c := w.clusters[id]
		c.Down = false
		w.forgetForged(c)
		for _, o := range c.Server.List("Namespace", "") {
			for c.Server.Finalize(o.GetName()) {
			}
		}
		w.rejoin(c)
		if len(c.Agents) == 0 {
			w.start(c)
		}
		c.Agents = c.Agents[len(c.Agents)-1:]
		for _, other := range w.ids { // a Peer that is absent is made again
			if other != id && !c.Removed[other] {
				w.setPeer(c, other, true, false)
			}
		}
		c.Agents[0].Policy, c.Agents[0].Imports, c.Agents[0].Lost = decision.Allowed, nil, nil
	}
	w.rounds()
	w.confirmMissing()
	w.leaveExcess()
}

// confirmMissing lets administrators say that what was lost is not to come back; until
// then it is held.
func (w *World) confirmMissing() {
	w.now = w.now.Add(time.Second)
	w.rounds()
	for _, id := range w.ids {
		for _, peer := range w.ids {
			w.confirm(w.clusters[id], peer)
		}
	}
	w.rounds()
	w.now = w.now.Add(2 * time.Minute) // what is out for a minute is passed over, or dropped
	w.rounds()
}

func (w *World) rounds() {
	most := maxRounds
	if w.killAll {
		most *= 100 // each process gets to make one write only
	}
	for range most {
		before := w.calls // a call that fails for good would be a retry loop
		w.follow()
		for _, id := range w.ids {
			w.pass(w.clusters[id])
		}
		if w.calls == before {
			return
		}
		w.now = w.now.Add(time.Second)
	}
	w.fail("still calling after %d passes; the last write: %s %s", most, w.writes[len(w.writes)-1].Verb(), w.writes[len(w.writes)-1].Ref)
}

// follow lets every process read everything that it can reach.
func (w *World) follow() {
	for _, id := range w.ids {
		for _, p := range w.clusters[id].Agents {
			for _, kind := range agent.LocalKinds {
				p.Local[kind].Follow(1 << 30)
			}
			for _, member := range p.Members() {
				if w.reaches(id, member) {
					w.follows(w.clusters[id], p, member)
				}
			}
		}
	}
}

// pass works on everything there is in one cluster, once.
func (w *World) pass(c *Cluster) {
	for _, p := range c.Agents {
		for _, key := range p.Keys() {
			w.work(c, p, func() {
				_ = p.Publish(key) // what keeps failing shows as a difference in the end
				w.importAndTell(p, key)
			})
		}
		w.work(c, p, func() { w.publishSelf(p) })
	}
}

// compare asks of every cluster and key whether what stands is what should.
func (w *World) compare() {
	for _, id := range w.ids {
		c := w.clusters[id]
		for _, key := range w.opts.Keys {
			namespace := find[corev1.Namespace](c, "Namespace", types.NamespacedName{Name: key.Namespace})
			if namespace == nil || w.inTheWay(c, key) {
				continue
			}
			if diff := cmp.Diff(expected(w.inOrder(c, key)), w.imports(c, key)); diff != "" {
				w.fail("%s in cluster %s is not as it should be (-expected +standing):\n%s\nthe exports that reach it: %s\nwhat was imported: %s",
					key, id, diff, wordConstituents(w.constituents(c, key)), w.lastSeen(c, key))
			}
		}
		w.compareExchange(c)
	}
}

// imports is what there is of an import; nil also if nothing but its address stays.
func (w *World) imports(c *Cluster, key types.NamespacedName) *wanted {
	standing := w.standing(c, key)
	if standing != nil && standing.Import == "" && len(standing.Slices) == 0 && w.mayComeBack(c, key) {
		return nil
	}
	return standing
}

// mayComeBack reports whether the list of an import has an export that was suspended or
// refused.
func (w *World) mayComeBack(c *Cluster, key types.NamespacedName) bool {
	return slices.ContainsFunc(w.stored(c, key).Entries, func(e model.Entry) bool {
		return e.Absent == model.SourceSuspended || e.Absent == model.SourceRefused
	})
}

// compareExchange asks that everything in the exchange is of an export, or states a
// withdrawal, and that a cluster that shares anything says that it has shared everything.
func (w *World) compareExchange(c *Cluster) {
	for _, o := range c.Server.List("ExportRecord", "") {
		name, namespace := splitRecord(o.GetName())
		key := types.NamespacedName{Namespace: namespace, Name: name}
		record, _ := o.(*exchangev1alpha1.ExportRecord)
		exported := c.Server.Get(apiserver.Ref{Kind: "ServiceExport", Namespace: namespace, Name: name}) != nil && find[corev1.Service](c, "Service", key) != nil
		if !record.Spec.Withdrawn && !exported {
			w.fail("ExportRecord %s/%s of cluster %s is of no export", o.GetNamespace(), o.GetName(), c.ID)
		}
		if !record.Spec.Withdrawn {
			w.comparePorts(c, key, record)
		}
	}
	shared := model.ExchangeNamespace(c.ID)
	if c.Server.Get(apiserver.Ref{Kind: "MemberRecord", Namespace: shared, Name: string(c.ID)}) == nil {
		w.fail("cluster %s has no MemberRecord", c.ID)
	}
}

// comparePorts asks that an export, and the slices beside its record, have no port that
// it does not share.
func (w *World) comparePorts(c *Cluster, key types.NamespacedName, record *exchangev1alpha1.ExportRecord) {
	service := sharedOf(find[mcsv1beta1.ServiceExport](c, "ServiceExport", key), find[corev1.Service](c, "Service", key))
	if service == nil {
		w.fail("ExportRecord %s/%s of cluster %s is of an export that shares no port", record.Namespace, record.Name, c.ID)
		return
	}
	var names []string
	for _, p := range record.Spec.Ports {
		names = append(names, p.Name)
	}
	for _, o := range c.Server.List("EndpointSlice", record.Namespace) {
		s, is := o.(*discoveryv1.EndpointSlice)
		if of, labeled := model.LabeledExport(o.GetLabels()); is && labeled && of == key {
			for _, p := range s.Ports {
				names = append(names, *p.Name)
			}
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == name }) {
			w.fail("cluster %s publishes port %q of %s in %s, which it does not share", c.ID, name, key, record.Namespace)
		}
	}
}

// lastSeen lets the agent import once more, to report what it reads.
func (w *World) lastSeen(c *Cluster, key types.NamespacedName) string {
	p := c.Agents[0]
	err := p.Import(key)
	saw := process{p, c}
	return fmt.Sprintf("%s, unread %v, list %s, frozen %t, error %v", wordConstituents(seen(saw)), unread(saw), p.Seen.List, p.Seen.Frozen, err)
}

func wordConstituents(all []constituent) string {
	var words []string
	for _, one := range all {
		words = append(words, fmt.Sprintf("%s since %d with %s", one.cluster, one.created, wordPorts(one.service.Spec.Ports, false)))
	}
	return strings.Join(words, "; ")
}
