// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/simulator/agent"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// I7: while takeovers are held, the exports of which an import consists keep their
// order, and no other export comes before one of them, unless
//
//	the import was made within the last two minutes, or the process read it first
//	or read that it was not there, within them
//	the deciding export is gone: withdrawn, replaced, denied
//	an administrator confirmed the other one, by its cluster and UID, or by a UID
//	which no other member has
//	the hold is for a time, and the process has seen the other one wait that long
//	the other one decided the import before, at the same age
//	its cluster was never read by the process before the import was there
//
// and the ServiceImport is what its exports make in that order. The order is what the
// process decided; whether it may be so is taken from what the simulator saw happen.

// settling is how long after an import was made its takeovers may happen at once.
const settling = 2 * time.Minute

// decider names an export that decided the import of a key in one cluster.
type decider struct {
	in      model.ClusterID
	key     types.NamespacedName
	export  model.SourceExport // without its age, which is created
	created int64
}

// waiter names an export that one process saw waiting to decide an import.
type waiter struct {
	process *agent.Process
	key     types.NamespacedName
	export  model.SourceExport // without its age
}

// unreadBefore names a cluster that one process had not read when it had no import yet.
type unreadBefore struct {
	process *agent.Process
	key     types.NamespacedName
	cluster model.ClusterID
}

// takeovers is what the checker remembers of who decided what.
type takeovers struct {
	deciders map[decider]bool
	waiting  map[waiter]time.Time // since when, by the clock of the process
	unread   map[unreadBefore]bool
	wasRead  map[unreadBefore]bool // of no key: the process has read the cluster
	// written are the ServiceImports that a reconcile wrote, as it left them: one write
	// removes what the next one would leave.
	written map[importOf]*mcsv1beta1.ServiceImport
	// made is when each ServiceImport was made, began when a reconcile read its import,
	// and young when one last read that there was none, or first read one that seems
	// to be new; all by the clock of the world, which is nobody's. Last is what the last
	// reconcile read.
	made         map[types.UID]time.Time
	began, young map[importOf]time.Time
	last         map[importOf]types.UID
}

// importOf names an import of one process.
type importOf struct {
	process *agent.Process
	key     types.NamespacedName
}

func newTakeovers() takeovers {
	return takeovers{deciders: map[decider]bool{}, waiting: map[waiter]time.Time{}, unread: map[unreadBefore]bool{}, wasRead: map[unreadBefore]bool{}, written: map[importOf]*mcsv1beta1.ServiceImport{},
		made: map[types.UID]time.Time{}, began: map[importOf]time.Time{}, young: map[importOf]time.Time{}, last: map[importOf]types.UID{}}
}

// looked notes what a process saw of an import that it worked on, and asks what the
// ServiceImport is then.
func (k *checker) looked(p process, err error) {
	v, at := p.Seen.View, importOf{p.Process, p.Seen.Key}
	if p.TakeoverHold == 0 {
		return
	}
	k.read(p)
	if s, want := k.takeovers.written[at], expected(seen(p)); s != nil && want != nil && err == nil && len(unread(p)) == 0 && wordImport(s) != want.Import {
		k.world.fail("I7: cluster %s made ServiceImport %s %s, but its exports make it %s: %s", p.ID, at.key, wordImport(s), want.Import, wordConstituents(seen(p)))
	}
	delete(k.takeovers.written, at)
	for _, m := range v.Members {
		if m.Synced {
			k.takeovers.wasRead[unreadBefore{process: p.Process, cluster: m.ID}] = true
		}
	}
	if p.Seen.Import == nil || !model.IsManaged(p.Seen.Import) {
		for _, m := range v.Members {
			if !k.takeovers.wasRead[unreadBefore{process: p.Process, cluster: m.ID}] {
				k.takeovers.unread[unreadBefore{p.Process, p.Seen.Key, m.ID}] = true
			}
		}
		return
	}
	all := seen(p)
	for i, one := range all {
		if !waits(all, i) {
			continue
		}
		of := waiter{p.Process, p.Seen.Key, model.SourceExport{Cluster: one.cluster, UID: one.uid}}
		if since, has := k.takeovers.waiting[of]; !has || v.Now.Before(since) {
			k.takeovers.waiting[of] = v.Now
		}
	}
}

// decides notes an import that was written, and by which export it is decided.
func (k *checker) decides(p process, write apiserver.Write) {
	if s, is := write.After.(*mcsv1beta1.ServiceImport); is && !write.Status && p.TakeoverHold != 0 {
		k.takeovers.written[importOf{p.Process, p.Seen.Key}] = s
		if order := model.ParseSourceExports(s.Annotations[model.AnnotationExports]); len(order) > 0 {
			first := model.SourceExport{Cluster: order[0].Cluster, UID: order[0].UID}
			k.takeovers.deciders[decider{p.ID, p.Seen.Key, first, order[0].CreatedAt.Unix()}] = true
		}
	}
}

// mayDecide is I7 of one write to an import, or to what belongs to it.
func (k *checker) mayDecide(p process, write apiserver.Write) {
	if p.TakeoverHold == 0 || write.Status || strings.HasPrefix(write.Ref.Namespace, "comity-") {
		return
	}
	k.read(p)
	all := seen(p)
	if stored := k.protected(p, all); len(stored) > 0 {
		k.keepOrder(p, write, stored, all)
	}
}

// protected are the exports whose order must stay, in that order; none if it need not.
func (k *checker) protected(p process, all []constituent) []model.SourceExport {
	imported := p.Seen.Import
	if imported == nil || !model.IsManaged(imported) || k.isYoung(importOf{p.Process, p.Seen.Key}, imported) {
		return nil
	}
	stored := model.ParseSourceExports(imported.Annotations[model.AnnotationExports])
	if len(stored) == 0 || slices.Contains(unread(p), stored[0].Cluster) || !slices.ContainsFunc(all, isExport(stored[0])) {
		return nil
	}
	return stored
}

func isExport(s model.SourceExport) func(constituent) bool {
	return func(one constituent) bool { return one.cluster == s.Cluster && one.uid == s.UID }
}

// placeOf is where an export is in a list; -1 if it is not.
func placeOf(stored []model.SourceExport, one constituent) int {
	return slices.IndexFunc(stored, func(s model.SourceExport) bool { return isExport(s)(one) })
}

// keepOrder asks that no export came before one of those that stood before it.
func (k *checker) keepOrder(p process, write apiserver.Write, stored []model.SourceExport, all []constituent) {
	for i, one := range all {
		at := placeOf(stored, one)
		for _, behind := range all[i+1:] {
			if then := placeOf(stored, behind); then >= 0 && (at < 0 || at > then) && !k.mayPass(p, one, all) {
				k.world.fail("I7: %s wrote %s (%s) as if the export %s of cluster %s came before the one of cluster %s, which nobody confirmed: it was %s, and is %s",
					write.Actor, write.Ref, write.Verb(), one.uid, one.cluster, behind.cluster, model.FormatSourceExports(stored), wordConstituents(all))
			}
		}
	}
}

// mayPass reports whether an export may come before others that stood before it.
func (k *checker) mayPass(p process, one constituent, all []constituent) bool {
	of, key := model.SourceExport{Cluster: one.cluster, UID: one.uid}, p.Seen.Key
	confirmed := p.Seen.Import.Annotations[model.AnnotationConfirmTakeover]
	shared := slices.ContainsFunc(all, func(other constituent) bool { return other.uid == one.uid && other.cluster != one.cluster })
	if confirmed == string(one.cluster)+"/"+string(one.uid) || confirmed == string(one.uid) && !shared {
		return true
	}
	since, waited := k.takeovers.waiting[waiter{p.Process, key, of}]
	if p.TakeoverHold > 0 && waited && !p.Seen.View.Now.Before(since.Add(p.TakeoverHold)) {
		return true
	}
	return k.takeovers.deciders[decider{p.ID, key, of, one.created}] || k.takeovers.unread[unreadBefore{p.Process, key, one.cluster}]
}

// waits reports whether export i of all would change the import at the place that its
// age gives it. Further ports are no change.
func waits(all []constituent, i int) bool {
	at := slices.IndexFunc(all[:i], func(other constituent) bool { return older(all[i], other) < 0 })
	if at < 0 {
		return false
	}
	own := slices.Insert(slices.Delete(slices.Clone(all), i, i+1), at, all[i])
	before, after := expected(all), expected(own)
	if withoutPorts(before.Import) != withoutPorts(after.Import) {
		return true
	}
	ports := mergedPorts(own)
	return slices.ContainsFunc(mergedPorts(all), func(p corev1.ServicePort) bool { return !slices.Contains(ports, p) })
}

// withoutPorts leaves the ports out of what an import is in words.
func withoutPorts(text string) string {
	words := strings.Fields(text)
	return strings.Join(slices.DeleteFunc(words, func(word string) bool { return strings.HasPrefix(word, "ports=") }), " ")
}

// heldTakeover is the export that the condition TakeoverHeld tells an administrator to
// confirm; empty if none is held.
func (w *World) heldTakeover(c *Cluster, key types.NamespacedName) string {
	imported := find[mcsv1beta1.ServiceImport](c, "ServiceImport", key)
	if imported == nil || !model.IsManaged(imported) {
		return ""
	}
	held := apimeta.FindStatusCondition(imported.Status.Conditions, condition.TypeTakeoverHeld)
	if held == nil {
		return ""
	}
	_, export, named := strings.Cut(held.Message, model.AnnotationConfirmTakeover+"=")
	if !named {
		w.fail("condition TakeoverHeld of %s in cluster %s does not say how to confirm: %s", key, c.ID, held.Message)
	}
	export, _, _ = strings.Cut(export, " ")
	return export
}

// confirmTakeover annotates a ServiceImport as an administrator does, if it is there.
func (w *World) confirmTakeover(c *Cluster, key types.NamespacedName, export string) {
	imported := find[mcsv1beta1.ServiceImport](c, "ServiceImport", key)
	if imported == nil || !model.IsManaged(imported) {
		return
	}
	w.log("%s: the takeover of %s by %q is confirmed", c.ID, key, export)
	imported = imported.DeepCopy()
	if imported.Annotations == nil {
		imported.Annotations = map[string]string{}
	}
	imported.Annotations[model.AnnotationConfirmTakeover] = export
	if export == "" {
		delete(imported.Annotations, model.AnnotationConfirmTakeover)
	}
	w.put(c, imported)
}

// confirmSome is an administrator who confirms what is held, or, by mistake, a UID that
// nothing has, an export that is not held, or one that is still to come; or who takes a
// confirmation back.
func (w *World) confirmSome(c *Cluster) {
	key := w.key()
	switch w.n(6, "confirms") {
	case 0:
		w.confirmTakeover(c, key, "mistyped")
	case 1:
		w.confirmTakeover(c, key, "")
	case 2:
		w.confirmTakeover(c, key, string(forgedBy(w.cluster().ID)))
	case 3:
		if export := find[mcsv1beta1.ServiceExport](w.cluster(), "ServiceExport", key); export != nil {
			w.confirmTakeover(c, key, string(export.UID))
		}
	default:
		if held := w.heldTakeover(c, key); held != "" {
			w.confirmTakeover(c, key, held)
		}
	}
}

// maxConfirmed is how many takeovers may wait one after the other.
const maxConfirmed = 20

// endTakeovers lets administrators confirm what is held, one takeover after the other,
// or wait where a hold ends by itself, and reports whether any cluster holds takeovers.
func (w *World) endTakeovers() (holds bool) {
	for range maxConfirmed {
		waiting := false
		for _, id := range w.ids {
			c := w.clusters[id]
			holds = holds || c.TakeoverHold != 0
			for _, key := range w.opts.Keys {
				held := w.heldTakeover(c, key)
				waiting = waiting || held != ""
				if held != "" && (c.TakeoverHold < 0 || w.n(2, "waits") > 0) {
					w.confirmTakeover(c, key, held)
				}
			}
		}
		if !waiting {
			return holds
		}
		w.now = w.now.Add(shortHold)
		w.rounds()
	}
	w.fail("takeovers are still held after %d were confirmed", maxConfirmed)
	return true
}

// shortHold is the hold of those that end by themselves.
const shortHold = time.Minute

// TakeoverHolds are the holds of which each cluster of a random world has one.
func TakeoverHolds() []time.Duration {
	return []time.Duration{0, model.HoldUntilConfirmed, shortHold}
}

// holdNothing is KEP-1645 to the letter, in every cluster.
func (w *World) holdNothing() {
	for _, id := range w.ids {
		c := w.clusters[id]
		c.TakeoverHold = 0
		for _, p := range c.Agents {
			p.TakeoverHold = 0
		}
	}
	w.rounds()
}

// inOrder are the constituents of an import in the order that its ServiceImport states,
// in a cluster that holds takeovers; oldest first otherwise. None may wait: what is held
// was confirmed.
func (w *World) inOrder(c *Cluster, key types.NamespacedName) []constituent {
	all := w.constituents(c, key)
	imported := find[mcsv1beta1.ServiceImport](c, "ServiceImport", key)
	if c.TakeoverHold == 0 || imported == nil {
		return all
	}
	stored := model.ParseSourceExports(imported.Annotations[model.AnnotationExports])
	place := func(one constituent) int {
		if at := placeOf(stored, one); at >= 0 {
			return at
		}
		return len(stored)
	}
	slices.SortStableFunc(all, func(a, b constituent) int { return place(a) - place(b) })
	for i := range all {
		if waits(all, i) {
			w.fail("the export of cluster %s would change %s in cluster %s, and is not held: %s", all[i].cluster, key, c.ID, wordConstituents(all))
		}
	}
	return all
}
