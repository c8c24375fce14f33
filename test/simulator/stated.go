// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/simulator/apiserver"
)

// I5: no endpoint leaves an importer unless its exporter stated or changed it, or
// the importer's own administrator or policy said so. What an exporter stated is
// taken from its records as the process had read them, not from what decide made
// of them.

// exportedBy names an export of one cluster.
type exportedBy struct {
	cluster model.ClusterID
	key     types.NamespacedName
}

// gone notes when a record, or a copy of a slice, of a cluster vanished.
func (k *checker) gone(c *Cluster, write apiserver.Write) {
	if record, is := write.Before.(*exchangev1alpha1.ExportRecord); is && write.After == nil {
		name, namespace := splitRecord(record.Name)
		of := exportedBy{c.ID, types.NamespacedName{Namespace: namespace, Name: name}}
		k.vanished[of] = append(k.vanished[of], k.world.now)
	}
}

// mayLose says why a write of a slice takes endpoints that it may not take; empty
// if it may.
func (k *checker) mayLose(p process, write apiserver.Write, from *origin) string {
	before, _ := write.Before.(*discoveryv1.EndpointSlice)
	after, _ := write.After.(*discoveryv1.EndpointSlice)
	lost := k.lost(p, before, after, from)
	if len(lost) == 0 || p.cluster.Removed[from.cluster] || from.cluster == p.ID || from.key != p.Seen.Key || k.strays(p, before) {
		return ""
	}
	record := p.Seen.Records[from.cluster]
	switch {
	case verdictOn(p, from.cluster) == decision.Denied:
		return ""
	case k.confirmed(p, from), k.isOut(p, from.cluster):
		return ""
	case record == nil:
		return fmt.Sprintf("I5: endpoints %v of cluster %s go, of which no record is there", lost, from.cluster)
	case record.Spec.Withdrawn:
		return k.mayBeWithdrawn(p, record, from)
	}
	copies := slicesSeen(p, from.cluster)
	at := slices.IndexFunc(copies, func(s *discoveryv1.EndpointSlice) bool {
		return s.Annotations[model.AnnotationSourceSlice] == from.source
	})
	if k.keptWithout(p, record, from.cluster) {
		return ""
	}
	if at < 0 && k.servesIts(p, before) && carries(p, record, before) && slices.Contains(record.Spec.Slices, from.source) {
		return fmt.Sprintf("I5: endpoints %v of cluster %s go, whose record still names their slice %s", lost, from.cluster, from.source)
	}
	if at < 0 || copies[at].AddressType != before.AddressType {
		return ""
	}
	_, wanted := expected(seen(p)).Slices[fmt.Sprintf("%s/%s/%s", from.cluster, from.source, before.AddressType)]
	if published := addresses(copies[at]); wanted && slices.ContainsFunc(lost, func(a string) bool { return slices.Contains(published, a) }) {
		return fmt.Sprintf("I5: endpoints %v of cluster %s go, which publishes them", lost, from.cluster)
	}
	return ""
}

// renamesPorts reports whether a write of a slice changes nothing that clients reach: the
// name of an unnamed port in the Service depends on its number and on the other ports.
func renamesPorts(before *discoveryv1.EndpointSlice, object apiserver.Object) bool {
	after, is := object.(*discoveryv1.EndpointSlice)
	return is && wordEndpoints(before) == wordEndpoints(after) && len(before.Ports) == len(after.Ports)
}

// marksLost reports whether a write of a slice changes only whether endpoints of a lost
// cluster are ready.
func marksLost(p process, before *discoveryv1.EndpointSlice, object apiserver.Object) bool {
	after, is := object.(*discoveryv1.EndpointSlice)
	return is && slices.Contains(p.Lost, clusterOf(before)) && slices.Equal(addresses(before), addresses(after)) && len(before.Ports) == len(after.Ports)
}

// keptWithout reports whether the import, as its derived Service stands, has no port of an
// export as its exporter declares it now. While a cluster of which the import consists is
// unread or held, it keeps its ports, unless an export that comes before has another one of
// that name: the exporter changed its port meanwhile, or the write that would have added it
// failed after the slice was created. An export that decides loses nothing by that.
func (k *checker) keptWithout(p process, record *exchangev1alpha1.ExportRecord, of model.ClusterID) bool {
	imported := p.Seen.View.Current.Import
	if imported == nil || len(unread(p)) == 0 && !p.Seen.Frozen || decidesAlone(p, record, of) {
		return false
	}
	declares := func(name string, number int32) bool {
		return slices.ContainsFunc(record.Spec.Ports, func(d mcsv1beta1.ServicePort) bool { return d.Name == name && d.Port == number })
	}
	return !slices.ContainsFunc(k.standing(p).Ports, func(q corev1.ServicePort) bool { return declares(q.Name, q.Port) })
}

// decidesAlone reports whether an export is the first of which a ServiceImport consists.
func decidesAlone(p process, record *exchangev1alpha1.ExportRecord, of model.ClusterID) bool {
	stored, now := storedIn(p).Entries, p.Seen.List.Entries
	return len(stored) > 0 && stored[0].Cluster == of && stored[0].UID == record.Spec.ExportUID && len(now) > 0 && now[0].Cluster == stored[0].Cluster
}

// servesIts reports whether the Service of a slice is the import's own. A copy that is
// lost cannot be mirrored again for a Service of another name.
func (k *checker) servesIts(p process, s *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(p.Seen.View.Current.Services, func(o *corev1.Service) bool {
		from := k.origins[o.UID]
		return o.Name == s.Labels[discoveryv1.LabelServiceName] && from.ours && from.key == p.Seen.Key
	})
}

// carries reports whether the import still has a port of a slice, as its exporter
// declares it now, and its family.
func carries(p process, record *exchangev1alpha1.ExportRecord, s *discoveryv1.EndpointSlice) bool {
	all := seen(p)
	ports := mergedPorts(all)
	if len(all) > 0 && all[0].service.Spec.ClusterIP == corev1.ClusterIPNone && !slices.Contains(mergedFamilies(all), corev1.IPFamily(s.AddressType)) {
		return false
	}
	for _, q := range ports {
		declared := slices.ContainsFunc(record.Spec.Ports, func(d mcsv1beta1.ServicePort) bool { return d.Name == q.Name && d.Port == q.Port })
		has := slices.ContainsFunc(s.Ports, func(o discoveryv1.EndpointPort) bool { return *o.Name == proxied(q, ports) })
		if declared && has {
			return true
		}
	}
	return false
}

// mayBeWithdrawn compares the withdrawal with the export of which the import consists.
func (k *checker) mayBeWithdrawn(p process, record *exchangev1alpha1.ExportRecord, from *origin) string {
	for _, s := range storedIn(p).Entries {
		if s.Cluster == from.cluster && s.UID != "" && s.UID != record.Spec.ExportUID && !record.Spec.ExportedAt.After(s.CreatedAt) {
			return fmt.Sprintf("I5: cluster %s withdrew %s, not the later %s that was imported", from.cluster, record.Spec.ExportUID, s.UID)
		}
		if s.Cluster == from.cluster && s.UID == record.Spec.ExportUID && s.Scoped && record.Spec.Narrowed && record.Namespace == model.ExchangeNamespace(s.Cluster) {
			return fmt.Sprintf("I5: cluster %s withdrew %s from others, and it was imported from where only this cluster reads", from.cluster, s.UID)
		}
	}
	return ""
}

// lost are the addresses that no slice of the import has after the write.
func (k *checker) lost(p process, before, after *discoveryv1.EndpointSlice, from *origin) (out []string) {
	var left []string
	for _, o := range p.cluster.Server.List("EndpointSlice", from.key.Namespace) {
		s, is := o.(*discoveryv1.EndpointSlice)
		if other := k.origins[o.GetUID()]; is && s.UID != before.UID && other.ours && other.key == from.key && other.cluster == from.cluster {
			left = append(left, addresses(s)...)
		}
	}
	if after != nil {
		left = append(left, addresses(after)...)
	}
	for _, a := range addresses(before) {
		if !slices.Contains(left, a) {
			out = append(out, a)
		}
	}
	return out
}

func addresses(s *discoveryv1.EndpointSlice) (out []string) {
	for _, e := range s.Endpoints {
		out = append(out, e.Addresses...)
	}
	return out
}

// sourceOf names a source of an import in one cluster.
type sourceOf struct {
	in     model.ClusterID
	key    types.NamespacedName
	source model.ClusterID
}

// isOut reports whether a process that read that a source was withdrawn or refused wrote so
// into the list, which has it like that, or has dropped it since.
func (k *checker) isOut(p process, id model.ClusterID) bool {
	entry, listed := storedIn(p).Find(id)
	return (!listed || entry.Absent.IsOut()) && k.out[sourceOf{p.ID, p.Seen.Key, id}]
}

// lists notes which sources a process wrote to be out, and read to be out. It asks that a list
// keeps the time when it formed.
func (k *checker) lists(p process, write apiserver.Write) {
	if write.After == nil || strings.HasPrefix(write.Ref.Namespace, "comity-") {
		return
	}
	before, _ := model.ParseList(annotation(write.Before, model.AnnotationList))
	after, _ := model.ParseList(annotation(write.After, model.AnnotationList))
	if _, isService := write.After.(*corev1.Service); isService && before.Exists() && !after.Formed.Equal(before.Formed) {
		k.world.fail("I7: %s wrote that the list of %s formed at %s, and it did at %s", write.Actor, p.Seen.Key, after.Formed, before.Formed)
	}
	for _, e := range after.Entries {
		source := sourceOf{p.ID, p.Seen.Key, e.Cluster}
		was, _ := before.Find(e.Cluster)
		switch {
		case !e.Absent.IsOut():
			delete(k.out, source)
		case before.Exists() && !was.Absent.IsOut():
			v := peerSeen(p, e.Cluster)
			k.out[source] = k.out[source] || verdictOn(p, e.Cluster) == decision.Denied || v != nil && isWithdrawn(v)
		}
	}
}

// annotation is one of an object; empty if there is none.
func annotation(o apiserver.Object, key string) string {
	if o == nil {
		return ""
	}
	return o.GetAnnotations()[key]
}

// confirmed reports whether the administrator confirmed that what is missing of the
// exporter may go, after it vanished, or by the clock of the process for a time that is
// still to come: what goes missing until then is confirmed beforehand.
func (k *checker) confirmed(p process, from *origin) bool {
	if !p.Seen.View.Now.After(p.cluster.Confirmed[from.cluster]) {
		return true
	}
	at, has := p.cluster.ConfirmedAt[from.cluster]
	return has && (k.world.restored[from.cluster] || slices.ContainsFunc(k.vanished[exportedBy{from.cluster, from.key}], func(then time.Time) bool { return !then.After(at) }))
}
