// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// addLost adds what is kept of lost slices, what does not answer, and what is to be probed:
// the endpoints of the sources that are lost, missing, or down as far as is known after a
// restart; of others, those of lost slices.
func (i *importing) addLost(d *ImportDecision) {
	in := &d.Plan
	var problems []model.Problem
	in.OnLost, problems = onLost(in.Key, i.Current, i.Local.Namespace)
	in.LostSlices, in.Accepted, d.Probe = i.lostSlices(), map[model.ClusterID]exchange.Filter{}, map[model.ClusterID][]netip.AddrPort{}
	d.Finding.Problems = slices.Concat(d.Finding.Problems, problems, lostSliceProblems(in))
	for n := range i.Peers {
		p := &i.Peers[n]
		if p.Accepted != nil {
			in.Accepted[p.ID] = *p.Accepted
		}
		s, derived, lost := i.sources[p.ID], i.derivedOf(p.ID), in.LostSlices[p.ID]
		isPresumed := !s.Liveness.Seen && areMarked(derived)
		isDoubtful := s.State.IsServed() && (s.Liveness.State == model.Lost || s.State == model.SourceMissing || isPresumed)
		switch {
		case isDoubtful && len(in.Sources[p.ID]) > 0: // says which endpoints were ready before any was withdrawn here
			d.Probe[p.ID] = targetsIn(in.Sources[p.ID])
		case isDoubtful:
			d.Probe[p.ID] = targetsIn(derived)
		case len(lost) > 0:
			d.Probe[p.ID] = targetsIn(slices.DeleteFunc(derived, func(s *discoveryv1.EndpointSlice) bool {
				return !slices.Contains(lost, s.Annotations[model.AnnotationSourceSlice])
			}))
		}
		switch {
		case p.Probed == Answers:
			in.Answers = append(in.Answers, p.ID)
		case isDoubtful && (isPresumed || p.Probed == Silent):
			in.Lost = append(in.Lost, p.ID)
		case p.Probed == Silent && len(lost) > 0:
			in.LostSlicesDown = append(in.LostSlicesDown, p.ID)
		}
	}
}

// areMarked reports whether the slices of a source say that it is down: of one that lost
// some of its slices, only these are marked.
func areMarked(derived []*discoveryv1.EndpointSlice) bool {
	isDown := false
	for _, s := range derived {
		_, marked := s.Annotations[model.AnnotationWithdrawn]
		if !marked && len(s.Endpoints) > 0 {
			return false
		}
		isDown = isDown || marked
	}
	return isDown
}

// derivedOf are the slices that Comity made of those of cluster.
func (i *importing) derivedOf(cluster model.ClusterID) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(slices.Clone(i.Current.Slices), func(s *discoveryv1.EndpointSlice) bool {
		return !model.IsManaged(s) || s.Labels[model.LabelSourceCluster] != string(cluster)
	})
}

// targetsIn are the TCP addresses of the ready endpoints, or of all if none is ready.
func targetsIn(published []*discoveryv1.EndpointSlice) []netip.AddrPort {
	var ready, others []netip.AddrPort
	for _, s := range published {
		port := tcpPort(s)
		if port == 0 {
			continue
		}
		for _, e := range s.Endpoints {
			for _, text := range e.Addresses {
				address, err := netip.ParseAddr(text)
				if err != nil {
					continue
				}
				if e.Conditions.Ready == nil || *e.Conditions.Ready {
					ready = append(ready, netip.AddrPortFrom(address, port))
				} else {
					others = append(others, netip.AddrPortFrom(address, port))
				}
			}
		}
	}
	if len(ready) > 0 {
		return ready
	}
	return others
}

// tcpPort is a port on which endpoints of the slice accept connections; 0 if
// none is known.
func tcpPort(s *discoveryv1.EndpointSlice) uint16 {
	for _, p := range s.Ports {
		isTCP := p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP
		if isTCP && p.Port != nil && *p.Port > 0 && *p.Port <= 65535 {
			return uint16(*p.Port)
		}
	}
	return 0
}

// onLost is what happens to the endpoints of lost clusters: the annotation of
// the ServiceImport says it, else that of its Namespace.
func onLost(key types.NamespacedName, current plan.Current, namespace *corev1.Namespace) (model.OnLost, []model.Problem) {
	where, text := "Namespace "+namespace.Name, namespace.Annotations[model.AnnotationOnLost]
	if current.Import != nil {
		if value, set := current.Import.Annotations[model.AnnotationOnLost]; set {
			where, text = "ServiceImport "+key.String(), value
		}
	}
	value, err := model.ParseOnLost(text)
	if err != nil {
		return value, []model.Problem{{Reason: model.ReasonInvalidAnnotation, Message: fmt.Sprintf(
			"%s, annotation %s: %v; %s applies until that is corrected", where, model.AnnotationOnLost, err, value)}}
	}
	return value, nil
}

// lostSlices are, by cluster, the source slices that exports name and of which no
// copy is published any more, although something was imported of them: their
// publisher lost the copies. One that is new is named before it can be read, and is
// not among them. A copy of which nothing is accepted was read, and is not lost.
func (i *importing) lostSlices() map[model.ClusterID][]string {
	out := map[model.ClusterID][]string{}
	for n := range i.Peers {
		p := &i.Peers[n]
		if !i.sources[p.ID].State.IsRead() || !p.Synced {
			continue
		}
		published := map[string]bool{}
		for _, s := range p.Slices {
			published[s.Annotations[model.AnnotationSourceSlice]] = true
		}
		for _, s := range i.derivedOf(p.ID) {
			source := s.Annotations[model.AnnotationSourceSlice]
			if !published[source] && slices.Contains(p.Export.Slices, source) && !slices.Contains(out[p.ID], source) {
				out[p.ID] = append(out[p.ID], source)
			}
		}
		slices.Sort(out[p.ID])
	}
	return out
}

func lostSliceProblems(in *plan.ImportInput) []model.Problem {
	var out []model.Problem
	for _, id := range slices.Sorted(maps.Keys(in.LostSlices)) {
		names := in.LostSlices[id]
		others := ""
		if len(names) > 1 {
			others = fmt.Sprintf(" and those of %d more", len(names)-1)
		}
		out = append(out, model.Problem{Reason: model.ReasonSliceMissing, Cluster: id, Message: fmt.Sprintf(
			"the copy of EndpointSlice %s/%s%s that cluster %s published is gone without a statement, so its endpoints are kept; check Comity there, and its exchange namespaces",
			in.Key.Namespace, names[0], others, id)})
	}
	return out
}
