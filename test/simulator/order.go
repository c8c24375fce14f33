// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// I7: the exports of which an import consists keep their order, and no other export comes
// before one of them, unless
//
//	an administrator confirmed the other one, by its cluster and UID
//	the list formed within the last two minutes, and the other one claims to be created no
//	earlier than two minutes before
//	it is in the place of an export of its cluster, and the import stays as it stands, or
//	is the same if it comes last
//	the one that it passed is another one than before, or is back after it was out
//
// As long as a list exists, the time when it formed is the same.
//
// While the export that decides is kept or missing, or out for less than a minute, the
// properties of the ServiceImport do not change; otherwise they are what the exports make
// in that order.

const (
	settling = 2 * time.Minute
	turnover = time.Minute
)

// written names an import that a process wrote.
type written struct {
	actor string
	key   types.NamespacedName
}

// writes notes a ServiceImport that an agent wrote.
func (k *checker) writes(write apiserver.Write) {
	after, is := write.After.(*mcsv1beta1.ServiceImport)
	if !is || write.Status {
		return
	}
	key := written{write.Actor, types.NamespacedName{Namespace: after.Namespace, Name: after.Name}}
	before := k.written[key][0]
	if k.written[key][1] == nil {
		before, _ = write.Before.(*mcsv1beta1.ServiceImport)
	}
	k.written[key] = [2]*mcsv1beta1.ServiceImport{before, after}
}

// decided is I7 of one decision, once it was written.
func (k *checker) decided(p process, err error) {
	wrote := k.written[written{p.Client.Actor, p.Seen.Key}]
	delete(k.written, written{p.Client.Actor, p.Seen.Key})
	if !p.Seen.List.Exists() {
		return
	}
	all, stored := seen(p), storedIn(p)
	by := k.freezes(p)
	if stored.Exists() {
		k.keepOrder(p, stored, all, by != "")
	}
	if wrote[1] == nil || err != nil {
		return
	}
	switch want := expected(all); {
	case by != "" && wrote[0] != nil && wordImport(wrote[0]) != wordImport(wrote[1]) && !k.followsService(p, wrote):
		k.world.fail("I7: cluster %s made ServiceImport %s %s, which was %s, though cluster %s freezes it: %s", p.ID, p.Seen.Key, wordImport(wrote[1]), wordImport(wrote[0]), by, p.Seen.List)
	case by == "" && want != nil && len(unread(p)) == 0 && wordImport(wrote[1]) != want.Import:
		k.world.fail("I7: cluster %s made ServiceImport %s %s, but its exports make it %s: %s", p.ID, p.Seen.Key, wordImport(wrote[1]), want.Import, wordConstituents(all))
	}
}

// followsService reports whether a ServiceImport becomes what its derived Service was
// before: the process that changed that one stopped before it changed the other.
func (k *checker) followsService(p process, wrote [2]*mcsv1beta1.ServiceImport) bool {
	s := k.standing(p)
	return s != nil && strings.Replace(wordImport(wrote[1]), fmt.Sprintf(" team=%q", wrote[1].Labels["team"]), "", 1) == wordService(&corev1.Service{Spec: *s})
}

// freezes is the cluster whose export freezes the import; empty if none does.
func (k *checker) freezes(p process) model.ClusterID {
	kept, used := unread(p), exportsSeen(p)
	for _, e := range p.Seen.List.Entries {
		switch {
		case slices.Contains(kept, e.Cluster), e.Absent.IsOut() && p.Seen.View.Now.Before(e.Since.Add(turnover)):
			return e.Cluster
		case slices.ContainsFunc(used, func(x model.Export) bool { return x.Cluster == e.Cluster }):
			return ""
		}
	}
	return ""
}

// keepOrder asks that no export came before one that was before it.
func (k *checker) keepOrder(p process, stored model.List, all []constituent, frozen bool) {
	before := slices.DeleteFunc(slices.Clone(all), func(one constituent) bool { return placeOf(stored, one.cluster) < 0 })
	for i, e := range p.Seen.List.Entries {
		was, listed := stored.Find(e.Cluster)
		for _, behind := range p.Seen.List.Entries[i+1:] {
			then, had := stored.Find(behind.Cluster)
			isSame := had && then.UID == behind.UID && (!then.Absent.IsOut() || behind.Absent != "")
			passed := !listed || placeOf(stored, e.Cluster) > placeOf(stored, behind.Cluster)
			replaced := listed && was.UID != e.UID && was.UID != ""
			if isSame && !confirms(p, e) && (passed && !k.mayPass(p, stored, e) || !passed && replaced && !k.mayReplace(p, before, e, frozen)) {
				k.world.fail("I7: cluster %s lets the export %s of %s come before that of %s: it was %s, and is %s: %s",
					p.ID, e.UID, p.Seen.Key, behind.Cluster, stored, p.Seen.List, wordConstituents(before))
			}
		}
	}
}

func placeOf(l model.List, id model.ClusterID) int {
	return slices.IndexFunc(l.Entries, func(e model.Entry) bool { return e.Cluster == id })
}

// confirms reports whether an administrator confirmed that an export comes first.
func confirms(p process, e model.Entry) bool {
	i := p.Seen.Import
	return i != nil && i.Annotations[model.AnnotationConfirmTakeover] == e.ID()
}

// mayPass reports whether an export may come before others that were before it.
func (k *checker) mayPass(p process, stored model.List, e model.Entry) bool {
	_, listed := stored.Find(e.Cluster)
	return !listed && p.Seen.View.Now.Before(stored.Formed.Add(settling)) && !e.CreatedAt.Before(stored.Formed.Add(-settling))
}

// mayReplace reports whether an export that replaced another one may keep its place.
func (k *checker) mayReplace(p process, all []constituent, e model.Entry, frozen bool) bool {
	at := slices.IndexFunc(all, func(one constituent) bool { return one.cluster == e.Cluster })
	if at < 0 || frozen {
		return true
	}
	last := append(slices.Delete(slices.Clone(all), at, at+1), all[at])
	if !changes(last, all) {
		return true
	}
	i := k.standing(p)
	return i != nil && standsAs(i, all)
}

// standing is the import as it stood: the derived Service, else the ServiceImport; nil if
// there is neither.
func (k *checker) standing(p process) *corev1.ServiceSpec {
	for _, s := range p.Seen.View.Current.Services {
		if from := k.origins[s.UID]; from.ours && from.key == p.Seen.Key {
			out := s.Spec.DeepCopy()
			for i := range out.Ports { // beside others, one without a name has one that Comity made
				if port := &out.Ports[i]; port.Name == fmt.Sprintf("unnamed-%d", port.Port) {
					port.Name = ""
				}
			}
			return out
		}
	}
	i := p.Seen.Import
	if i == nil {
		return nil
	}
	out := &corev1.ServiceSpec{SessionAffinity: i.Spec.SessionAffinity}
	if i.Spec.Type == mcsv1beta1.Headless {
		out.ClusterIP = corev1.ClusterIPNone
	}
	for _, port := range i.Spec.Ports {
		out.Ports = append(out.Ports, corev1.ServicePort{Name: port.Name, Port: port.Port})
	}
	return out
}

// standsAs reports whether an import has the type and the affinity that exports make, and
// none of its ports becomes another one. Further ports are no change.
func standsAs(i *corev1.ServiceSpec, all []constituent) bool {
	first, headless := all[0].service.Spec, i.ClusterIP == corev1.ClusterIPNone
	if (first.ClusterIP == corev1.ClusterIPNone) != headless || !headless && first.SessionAffinity != i.SessionAffinity {
		return false
	}
	for _, p := range mergedPorts(all) {
		if slices.ContainsFunc(i.Ports, func(q corev1.ServicePort) bool { return (q.Name == p.Name) != (q.Port == p.Port) }) {
			return false
		}
	}
	return true
}

// inOrderOf sorts what a list has by it; what it has not comes last, as it was.
func inOrderOf(list model.List, all []constituent) {
	place := func(one constituent) int {
		if at := placeOf(list, one.cluster); at >= 0 {
			return at
		}
		return len(list.Entries)
	}
	slices.SortStableFunc(all, func(a, b constituent) int { return place(a) - place(b) })
}

// inOrder are the constituents of an import in the order of the list that is stored. One
// that would change the import at the place of its age is said to wait.
func (w *World) inOrder(c *Cluster, key types.NamespacedName) []constituent {
	all := w.constituents(c, key)
	inOrderOf(w.stored(c, key), all)
	for i := range all {
		if waits(all, i) && w.heldTakeover(c, key) == "" {
			w.fail("the export of cluster %s would change %s in cluster %s, and nothing says that it waits: %s", all[i].cluster, key, c.ID, wordConstituents(all))
		}
	}
	return all
}

// stored is the list of an import.
func (w *World) stored(c *Cluster, key types.NamespacedName) model.List {
	current := plan.Current{Import: find[mcsv1beta1.ServiceImport](c, "ServiceImport", key)}
	for _, o := range c.Server.List("Service", key.Namespace) {
		current.Services = append(current.Services, asService(o))
	}
	return plan.StoredList(current, key)
}

// waits reports whether export i of all would change the import at the place that its
// age gives it.
func waits(all []constituent, i int) bool {
	at := slices.IndexFunc(all[:i], func(other constituent) bool { return older(all[i], other) < 0 })
	if at < 0 {
		return false
	}
	own := slices.Insert(slices.Delete(slices.Clone(all), i, i+1), at, all[i])
	return changes(all, own)
}

// changes reports whether exports in another order make another import. Further ports are
// no change.
func changes(before, after []constituent) bool {
	ports := mergedPorts(after)
	return withoutPorts(expected(before).Import) != withoutPorts(expected(after).Import) ||
		slices.ContainsFunc(mergedPorts(before), func(p corev1.ServicePort) bool { return !slices.Contains(ports, p) })
}

// withoutPorts leaves the ports out of what an import is in words.
func withoutPorts(text string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(text), func(word string) bool { return strings.HasPrefix(word, "ports=") }), " ")
}

// heldTakeover is the cluster whose takeover the condition TakeoverHeld says how to confirm
// first; empty if none is held.
func (w *World) heldTakeover(c *Cluster, key types.NamespacedName) model.ClusterID {
	imported := find[mcsv1beta1.ServiceImport](c, "ServiceImport", key)
	if imported == nil || !model.IsManaged(imported) {
		return ""
	}
	held := apimeta.FindStatusCondition(imported.Status.Conditions, condition.TypeTakeoverHeld)
	if held == nil {
		return ""
	}
	_, from, named := strings.Cut(held.Message, "kubectl comity confirm takeover "+key.String()+" --from ")
	if !named {
		w.fail("condition TakeoverHeld of %s in cluster %s does not say how to confirm: %s", key, c.ID, held.Message)
	}
	from, _, _ = strings.Cut(from, ";")
	return model.ClusterID(strings.TrimSpace(from))
}

// confirmTakeover annotates a ServiceImport as the command does, if it is there.
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

// confirmSome is an administrator who confirms an export of the list, or, by mistake, one
// that nothing has, or who takes a confirmation back.
func (w *World) confirmSome(c *Cluster) {
	key := w.key()
	list := w.stored(c, key).Entries
	switch w.n(5, "confirms") {
	case 0:
		w.confirmTakeover(c, key, "mistyped")
	case 1:
		w.confirmTakeover(c, key, "")
	default:
		if len(list) > 0 {
			w.confirmTakeover(c, key, list[w.n(len(list), "export")].ID())
		}
	}
}

// endTakeovers lets administrators confirm the first takeover of each import that is held,
// and asks that it decides then.
func (w *World) endTakeovers() {
	confirmed := map[model.ClusterID]map[types.NamespacedName]model.ClusterID{}
	for _, id := range w.ids {
		confirmed[id] = map[types.NamespacedName]model.ClusterID{}
		for _, key := range w.opts.Keys {
			if held := w.heldTakeover(w.clusters[id], key); held != "" {
				e, _ := w.stored(w.clusters[id], key).Find(held)
				w.confirmTakeover(w.clusters[id], key, e.ID())
				confirmed[id][key] = held
			}
		}
	}
	w.rounds()
	for _, id := range w.ids {
		for key, held := range confirmed[id] {
			if list := w.stored(w.clusters[id], key).Entries; len(list) > 0 && list[0].Cluster != held {
				w.fail("the takeover of %s by cluster %s was confirmed in cluster %s, and the first export is that of %s", key, held, id, list[0].Cluster)
			}
		}
	}
}
