// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
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
		if c, has := p.Desired.Constituent(e.Cluster); has {
			all = append(all, c.Declared...)
		} else if p.unsynced.Has(e.Cluster) {
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
	return model.Without(existing, func(port mcsv1beta1.ServicePort) bool {
		return !slices.ContainsFunc(p.Current.Slices, func(s *discoveryv1.EndpointSlice) bool {
			return p.owns(s) && clusterOf(s) == cluster && slices.ContainsFunc(s.Ports, func(served discoveryv1.EndpointPort) bool {
				return idOf(served) == portID{proxyName(port, existing), port.Protocol}
			})
		})
	})
}

func idOf(port discoveryv1.EndpointPort) portID {
	return portID{ptr.Deref(port.Name, ""), ptr.Deref(port.Protocol, corev1.ProtocolTCP)}
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

// keepSlices adds to named the existing slices that stay as they are: those of the
// clusters that were not read or are held, and those that their publisher lost. From
// them go only the addresses that are not accepted any more; their ports keep to the
// names of those of the derived Service.
func (p *importer) keepSlices(named map[string]*discoveryv1.EndpointSlice) {
	for _, s := range p.Current.Slices {
		if p.owns(s) && (p.unsynced.Has(clusterOf(s)) || slices.Contains(p.LostSlices[clusterOf(s)], sourceOf(s)) && p.isCarried(s)) {
			named[s.Name] = p.keptForm(s)
		}
	}
}

// isCarried reports whether the import would contain a derived slice if its source
// were not lost: one of a family or of ports that the import has not would be held
// for ever.
func (p *importer) isCarried(s *discoveryv1.EndpointSlice) bool {
	if p.Desired == nil || !p.possible() || !p.carries(s.AddressType) {
		return false
	}
	c, has := p.Desired.Constituent(clusterOf(s))
	if !has || len(s.Ports) == 0 {
		return has
	}
	for id, name := range p.allowedPorts(c) {
		if slices.ContainsFunc(s.Ports, func(port discoveryv1.EndpointPort) bool { return idOf(port) == portID{name, id.protocol} }) {
			return true
		}
	}
	return false
}

// keptForm is s itself, or what it is to become: with the conditions that its cluster
// published, and without the addresses that are not accepted.
func (p *importer) keptForm(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	endpoints, changed := s.Endpoints, false
	if _, directed := s.Annotations[model.AnnotationPublished]; directed {
		endpoints, changed = Published(s), true
	}
	if filter, has := p.Accepted[clusterOf(s)]; has {
		var accepted []discoveryv1.Endpoint
		for _, e := range endpoints {
			addresses := model.Without(e.Addresses, func(a string) bool { return filter.CheckAddress(s.AddressType, a) != "" })
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
	delete(kept.Annotations, model.AnnotationPublished)
	return sign(kept, nil)
}
