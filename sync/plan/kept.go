// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
)

// What is kept of clusters that contribute and were not read, or of which the export is
// held. Their endpoints stay in any case. The properties of the import stay only while
// the export that decides them is among these: any member can withhold its record, and
// must not stop by that what the others export from following their Services.

// importPorts are the ports of the import. Those that exist stay while the deciding
// export was not read. While another one was not read, they are merged as package merge
// does it, with its ports as far as they are known: those that exist and that its slices
// serve. The other ports that exist are last: they may be its, too. Those that exist stay
// in their order, because nothing says where the ports of a cluster come that has no slice.
func (p *importer) importPorts() []mcsv1beta1.ServicePort {
	own := p.own
	switch {
	case !p.kept || own == nil, p.Frozen && model.IsManaged(own): // then Desired is Standing
		return p.Desired.Ports
	case p.Frozen:
		return own.Spec.Ports
	}
	var all []mcsv1beta1.ServicePort
	for _, e := range p.List.Entries {
		at := slices.IndexFunc(p.Desired.Constituents, func(c model.Constituent) bool { return c.Cluster == e.Cluster })
		switch {
		case at >= 0:
			all = append(all, p.Desired.Constituents[at].Declared...)
		case p.unsynced.Has(e.Cluster):
			all = append(all, p.servedPorts(e.Cluster, own.Spec.Ports)...)
		}
	}
	ports := merge.UnionOfPorts(append(all, own.Spec.Ports...))
	slices.SortStableFunc(ports, func(a, b mcsv1beta1.ServicePort) int { return cmp.Compare(placeOf(a, own), placeOf(b, own)) })
	return ports
}

// placeOf is the place of a port among those of an import, and behind all for a new one.
func placeOf(port mcsv1beta1.ServicePort, in *mcsv1beta1.ServiceImport) int {
	at := slices.IndexFunc(in.Spec.Ports, func(p mcsv1beta1.ServicePort) bool { return p.Name == port.Name })
	if at < 0 {
		return len(in.Spec.Ports)
	}
	return at
}

// servedPorts are those of the existing ports that slices of a cluster serve.
func (p *importer) servedPorts(cluster model.ClusterID, existing []mcsv1beta1.ServicePort) []mcsv1beta1.ServicePort {
	return slices.DeleteFunc(slices.Clone(existing), func(port mcsv1beta1.ServicePort) bool {
		return !slices.ContainsFunc(p.Current.Slices, func(s *discoveryv1.EndpointSlice) bool {
			return p.owns(s) && clusterOf(s) == cluster && slices.ContainsFunc(s.Ports, func(served discoveryv1.EndpointPort) bool {
				return idOf(served) == portID{proxyName(port, existing), port.Protocol}
			})
		})
	})
}

func idOf(port discoveryv1.EndpointPort) portID {
	id := portID{protocol: corev1.ProtocolTCP}
	if port.Name != nil {
		id.name = *port.Name
	}
	if port.Protocol != nil {
		id.protocol = *port.Protocol
	}
	return id
}

// keptPorts are the ports of a kept slice, and whether they have other names than now.
// kube-proxy finds the endpoints of a port by its name in the derived Service, and the
// name of an unnamed port depends on its number and on the other ports.
func (p *importer) keptPorts(s *discoveryv1.EndpointSlice) ([]discoveryv1.EndpointPort, bool) {
	own := p.own
	if own == nil {
		return s.Ports, false
	}
	ports, renamed := slices.Clone(s.Ports), false
	for i, served := range ports {
		for _, was := range own.Spec.Ports {
			if idOf(served) != (portID{proxyName(was, own.Spec.Ports), was.Protocol}) {
				continue
			}
			for _, is := range p.ports {
				if name := proxyName(is, p.ports); is.Name == was.Name && is.Protocol == was.Protocol && name != idOf(served).name {
					ports[i].Name, renamed = &name, true
				}
			}
		}
	}
	return ports, renamed
}

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
	return slices.Contains(p.LostSlices[clusterOf(s)], sourceOf(s))
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
		if slices.ContainsFunc(s.Ports, func(port discoveryv1.EndpointPort) bool { return idOf(port) == portID{name, id.protocol} }) {
			return true
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
	p.withdrawnEndpoints = map[model.ClusterID]int{}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		s := named[name]
		if !p.isDown(s) || len(s.Endpoints) == 0 {
			continue
		}
		if slices.Contains(p.Lost, clusterOf(s)) {
			withdrawn[clusterOf(s)] = true
		}
		p.withdrawnEndpoints[clusterOf(s)] += len(s.Endpoints)
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
