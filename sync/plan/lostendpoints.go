// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/comity-mcs/comity/sync/model"
)

// Endpoints of lost clusters. They stay in their slices and are marked not
// ready and not serving, so that neither kube-proxy nor DNS uses them. Nothing
// is deleted, and the last ready endpoints of an import are marked only if the
// user chose model.OnLostWithdraw.

// markLostEndpoints marks the endpoints of lost clusters in named, the desired
// slices by name. The slices of a cluster that is lost and was not read since
// the start are not among them: their existing slices are added to named as
// they are, but for the marks.
func (p *importer) markLostEndpoints(named map[string]*discoveryv1.EndpointSlice) {
	if len(p.Lost) == 0 {
		return
	}
	from, existing := map[model.ClusterID][]*discoveryv1.EndpointSlice{}, map[string]*discoveryv1.EndpointSlice{}
	for _, s := range named {
		from[clusterOf(s)] = append(from[clusterOf(s)], s)
	}
	for _, s := range p.Current.Slices {
		switch {
		case p.isSelectors(s):
			from[p.Self] = append(from[p.Self], s)
		case p.owns(s) && p.unsynced[clusterOf(s)]:
			from[clusterOf(s)] = append(from[clusterOf(s)], s)
			existing[s.Name] = s
		}
	}
	p.withdrawn = p.clustersToMark(from)
	for _, id := range p.withdrawn {
		for _, s := range from[id] {
			if existing[s.Name] == s {
				s = sign(applied(s), nil)
				named[s.Name] = s
			}
			markNotReady(s)
		}
	}
}

// clustersToMark returns those of the lost clusters whose endpoints are to be
// marked, sorted. from holds all slices of the import by source cluster.
func (p *importer) clustersToMark(from map[model.ClusterID][]*discoveryv1.EndpointSlice) []model.ClusterID {
	if p.OnLost == model.OnLostKeep || p.OnLost != model.OnLostWithdraw && !p.anotherClusterServes(from) {
		return nil
	}
	chosen := map[model.ClusterID]bool{}
	for _, id := range p.Lost {
		if slices.ContainsFunc(from[id], func(s *discoveryv1.EndpointSlice) bool { return len(s.Endpoints) > 0 }) {
			chosen[id] = true
		}
	}
	return slices.Sorted(maps.Keys(chosen))
}

// anotherClusterServes reports whether a cluster that is not lost has a ready
// endpoint that traffic can reach.
func (p *importer) anotherClusterServes(from map[model.ClusterID][]*discoveryv1.EndpointSlice) bool {
	for id, list := range from {
		if slices.Contains(p.Lost, id) {
			continue
		}
		for _, s := range list {
			if p.serves(s) && slices.ContainsFunc(s.Endpoints, isReady) {
				return true
			}
		}
	}
	return false
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

// markNotReady marks all endpoints of s. It replaces the list of endpoints and
// leaves the old list unchanged, because it belongs to a cache.
func markNotReady(s *discoveryv1.EndpointSlice) {
	s.Endpoints = slices.Clone(s.Endpoints)
	for i := range s.Endpoints {
		no := false
		s.Endpoints[i].Conditions.Ready, s.Endpoints[i].Conditions.Serving = &no, &no
	}
}
