// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
)

// The list of an import stands on the derived Service, which is written first and outlives
// the definition of ServiceImports. The ServiceImport has a copy.

// StoredList is the list of the import called key: that of its derived Service; of the
// ServiceImport only where there is no derived Service with a list. The zero value if there
// is none, or none that can be read.
func StoredList(current Current, key types.NamespacedName) model.List {
	var holders []metav1.Object
	for _, s := range derivedServices(current, key) {
		if s.DeletionTimestamp == nil {
			holders = append(holders, s)
		}
	}
	if current.Import != nil {
		holders = append(holders, current.Import)
	}
	for _, o := range holders {
		if list, err := model.ParseList(o.GetAnnotations()[model.AnnotationList]); err == nil && model.IsManaged(o) {
			return list
		}
	}
	return model.List{}
}

// derivedServices are the derived Services of an import, whoever made them, preferred names
// first.
func derivedServices(current Current, key types.NamespacedName) []*corev1.Service {
	var out []*corev1.Service
	for _, name := range derivedNames(key, current.announced()) {
		out = append(out, model.Without(current.Services, func(s *corev1.Service) bool { return s.Name != name || !current.derives(s, key) })...)
	}
	return out
}

// derives reports whether a derived Service is that of the import called key, by its label,
// or, if a user removed that, by the annotation of the ServiceImport.
func (c Current) derives(s *corev1.Service, key types.NamespacedName) bool {
	label := s.Labels[model.LabelServiceName]
	return label == key.Name || c.announced() == s.Name && !canDerive(label, s.Name)
}

// announced is the name of the derived Service that the ServiceImport says; empty if none of
// Comity's does.
func (c Current) announced() string { return c.ImportAnnotations()[model.AnnotationDerivedName] }

// Standing is the import as it stands: the properties of what exists, with the exports
// that are used now. While the properties are frozen, it takes the place of what the
// exports are resolved to, which may be nil. It is resolved itself if nothing exists. Of the
// derived Service and the ServiceImport, the first is written first, and is what clients
// use; labels and annotations are those of the other one.
func Standing(current Current, key types.NamespacedName, resolved *model.Import) *model.Import {
	out := &model.Import{Key: key}
	if resolved != nil {
		out.Constituents, out.Tiers = resolved.Constituents, resolved.Tiers
	}
	own := current.Import
	hasOwn := own != nil && model.IsManaged(own)
	at := slices.IndexFunc(current.Services, func(s *corev1.Service) bool { return model.IsManaged(s) && current.derives(s, key) })
	if hasOwn {
		model.CopyFields(&out.ServiceProperties, &own.Spec)
		out.Labels, out.Annotations = model.Unreserved(own.Labels), model.Unreserved(own.Annotations)
	}
	if at >= 0 {
		standingService(out, current.Services[at])
	} else if !hasOwn {
		return resolved
	}
	return out
}

// standingService takes the properties of a derived Service.
func standingService(out *model.Import, s *corev1.Service) {
	model.CopyFields(&out.ServiceProperties, &s.Spec)
	out.Type, out.Ports, out.Tiers, out.Selector = model.ImportType(s), model.AllPorts().Exported(s), s.Annotations[model.AnnotationTiers], nil
	for n, p := range out.Ports {
		if p.Name == unnamed(p) { // a name that proxyName made
			out.Ports[n].Name = ""
		}
	}
	merge.ClearUnserved(&out.ServiceProperties)
}

// annotateService is annotateList of the derived Service.
func (p *importer) annotateService() []Action {
	return p.annotateList(&corev1.Service{TypeMeta: serviceKind}, p.existing)
}

// annotateList writes the list where nothing else of an object changes.
func (p *importer) annotateList(object Object, current metav1.Object) []Action {
	want := p.List.String()
	if current.GetAnnotations()[model.AnnotationList] == want || current.GetDeletionTimestamp() != nil || !model.IsManaged(current) {
		return nil // what is to be adopted is not Comity's yet
	}
	object.SetNamespace(current.GetNamespace())
	object.SetName(current.GetName())
	return []Action{{
		Verb: Annotate, Object: object, UID: current.GetUID(), ResourceVersion: current.GetResourceVersion(),
		Strip: mergePatch{"metadata": map[string]any{"annotations": map[string]any{model.AnnotationList: want}}},
	}}
}

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
		} else if p.Unsynced.Has(e.Cluster) {
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
			return p.owns(s) && ClusterOf(s) == cluster && slices.ContainsFunc(s.Ports, func(served discoveryv1.EndpointPort) bool {
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
	for i := range ports {
		served := idOf(ports[i])
		was, known := model.Find(own.Spec.Ports, func(p mcsv1beta1.ServicePort) bool { return served == portID{proxyName(p, own.Spec.Ports), p.Protocol} })
		is, stays := model.Find(p.ports, func(p mcsv1beta1.ServicePort) bool { return p.Name == was.Name && p.Protocol == was.Protocol })
		if name := proxyName(is, p.ports); known && stays && name != served.name {
			ports[i].Name, renamed = &name, true
		}
	}
	return ports, renamed
}

// isCarried reports whether the import would contain a derived slice if its source
// were not lost: one of a family or of ports that the import has not would be held
// for ever.
func (p *importer) isCarried(s *discoveryv1.EndpointSlice) bool {
	if p.Desired == nil || !p.possible() || !p.carries(s.AddressType) {
		return false
	}
	c, has := p.Desired.Constituent(ClusterOf(s))
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

// keptForm is what becomes of a slice that is kept: s itself, or s with the conditions that its
// cluster published, without the addresses that are not accepted any more, and with the names
// that its ports have now in the derived Service.
func (p *importer) keptForm(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	endpoints, changed := s.Endpoints, false
	if _, directed := s.Annotations[model.AnnotationPublished]; directed {
		endpoints, changed = Published(s), true
	}
	if filter, has := p.Accepted[ClusterOf(s)]; has {
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
	kept.Endpoints, kept.Ports = slices.Clone(endpoints), ports
	delete(kept.Annotations, model.AnnotationPublished)
	return kept
}
