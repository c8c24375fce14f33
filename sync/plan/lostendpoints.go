// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/comity-mcs/comity/sync/model"
)

// Endpoints of lost clusters, and of slices that their publisher lost. They stay in
// their slices and are marked not ready and not serving, so that neither kube-proxy
// nor DNS uses them. Nothing is deleted, and the last ready endpoints of an import
// are marked only if the user chose model.OnLostWithdraw.

// keepSlices adds to named the existing slices that stay as they are: those of the
// clusters that were not read or are held, and those that their publisher lost. From
// them go only the addresses that are not accepted any more, and marks; their ports
// keep to the names of those of the derived Service.
func (p *importer) keepSlices(named map[string]*discoveryv1.EndpointSlice) {
	for _, s := range p.Current.Slices {
		if p.owns(s) && (p.unsynced.Has(clusterOf(s)) || p.isLostSlice(s) && p.isCarried(s)) {
			named[s.Name] = p.keptForm(s)
		}
	}
}

// isLostSlice reports whether a derived slice is of a source that its publisher lost.
func (p *importer) isLostSlice(s *discoveryv1.EndpointSlice) bool {
	return slices.Contains(p.LostSlices[clusterOf(s)], s.Annotations[model.AnnotationSourceSlice])
}

// isCarried reports whether the import would contain a derived slice if its source
// were not lost: one of a family or of ports that the import has not would be held
// for ever.
func (p *importer) isCarried(s *discoveryv1.EndpointSlice) bool {
	if p.Desired == nil || !p.possible() || !p.carries(s.AddressType) {
		return false
	}
	at := slices.IndexFunc(p.Desired.Constituents, func(c model.Constituent) bool { return c.Cluster == clusterOf(s) })
	if at < 0 || len(s.Ports) == 0 {
		return at >= 0
	}
	for id, name := range p.allowedPorts(p.Desired.Constituents[at]) {
		for _, port := range s.Ports {
			if port.Name != nil && *port.Name == name && (port.Protocol == nil || *port.Protocol == id.protocol) {
				return true
			}
		}
	}
	return false
}

// keptForm is s itself, or what it is to become: without the marks of an earlier
// plan, and without the addresses that are not accepted.
func (p *importer) keptForm(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	endpoints, changed := s.Endpoints, false
	_, isMarked := s.Annotations[model.AnnotationWithdrawn]
	// What is down is marked again, unless nothing else serves.
	if isMarked && (slices.Contains(p.Answers, clusterOf(s)) || p.isDown(s)) {
		endpoints, changed, isMarked = unmarked(s), true, false
	}
	if filter, has := p.Accepted[clusterOf(s)]; has {
		var accepted []discoveryv1.Endpoint
		for _, e := range endpoints {
			addresses := slices.DeleteFunc(slices.Clone(e.Addresses), func(a string) bool { return filter.CheckAddress(s.AddressType, a) != "" })
			changed = changed || len(addresses) < len(e.Addresses)
			if e.Addresses = addresses; len(addresses) > 0 {
				accepted = append(accepted, e)
			}
		}
		endpoints = accepted
	}
	ports, renamed := p.keptPorts(s)
	if !changed && !renamed {
		return s
	}
	kept := applied(s)
	kept.Endpoints, kept.Ports = endpoints, ports
	if changed {
		delete(kept.Annotations, model.AnnotationWithdrawn)
	}
	if changed && isMarked {
		kept.Annotations[model.AnnotationWithdrawn] = "" // positions have changed
	}
	return sign(kept, nil)
}

// markLostEndpoints marks the endpoints of lost clusters and lost slices in named,
// the desired slices by name.
func (p *importer) markLostEndpoints(named map[string]*discoveryv1.EndpointSlice) {
	if len(p.Lost)+len(p.LostSlicesDown) == 0 || p.OnLost == model.OnLostKeep || p.OnLost != model.OnLostWithdraw && !p.othersServe(named) {
		return
	}
	withdrawn := map[model.ClusterID]bool{}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		s := named[name]
		if !p.isDown(s) || len(s.Endpoints) == 0 {
			continue
		}
		if slices.Contains(p.Lost, clusterOf(s)) {
			withdrawn[clusterOf(s)] = true
		}
		named[name] = marked(s)
	}
	p.withdrawn = slices.Sorted(maps.Keys(withdrawn))
}

// isDown reports whether the endpoints of a derived slice do not answer.
func (p *importer) isDown(s *discoveryv1.EndpointSlice) bool {
	return slices.Contains(p.Lost, clusterOf(s)) || slices.Contains(p.LostSlicesDown, clusterOf(s)) && p.isLostSlice(s)
}

// othersServe reports whether traffic can reach a ready endpoint that is not to be
// marked.
func (p *importer) othersServe(named map[string]*discoveryv1.EndpointSlice) bool {
	serves := func(s *discoveryv1.EndpointSlice) bool {
		return !p.isDown(s) && p.serves(s) && slices.ContainsFunc(s.Endpoints, isReady)
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(named)), serves) ||
		slices.ContainsFunc(p.Current.Slices, func(s *discoveryv1.EndpointSlice) bool { return p.isSelectors(s) && serves(s) })
}

// serves reports whether traffic can reach the endpoints of a derived slice.
func (p *importer) serves(s *discoveryv1.EndpointSlice) bool {
	known := p.existing != nil && len(p.existing.Spec.IPFamilies) > 0
	if known && !slices.Contains(p.existing.Spec.IPFamilies, corev1.IPFamily(s.AddressType)) {
		return false
	}
	return len(s.Ports) > 0 || len(p.ports) == 0
}

// isReady follows the API: unset means ready.
func isReady(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

// marked is s with all endpoints marked, and an annotation with the positions of
// those that were not ready before. s, which may be of a cache, stays unchanged.
func marked(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	if _, already := s.Annotations[model.AnnotationWithdrawn]; already {
		return s
	}
	c := applied(s)
	c.Endpoints = slices.Clone(s.Endpoints)
	var before []string
	for i := range c.Endpoints {
		if !isReady(c.Endpoints[i]) {
			before = append(before, strconv.Itoa(i))
		}
		no := false
		c.Endpoints[i].Conditions.Ready, c.Endpoints[i].Conditions.Serving = &no, &no
	}
	c.Annotations[model.AnnotationWithdrawn] = strings.Join(before, ",")
	return sign(c, nil)
}

// unmarked are the endpoints of s as they were before they were marked. What is kept
// has no source any more that would say it.
func unmarked(s *discoveryv1.EndpointSlice) []discoveryv1.Endpoint {
	notReady := strings.Split(s.Annotations[model.AnnotationWithdrawn], ",")
	endpoints := slices.Clone(s.Endpoints)
	for i := range endpoints {
		ready := !slices.Contains(notReady, strconv.Itoa(i))
		endpoints[i].Conditions.Ready, endpoints[i].Conditions.Serving = &ready, &ready
	}
	return endpoints
}
