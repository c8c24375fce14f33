// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
)

var sliceKind = metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"}

// slices plans the slices of all clusters that were read, keeps those that were not,
// and directs the traffic. Each source slice is mirrored by one slice, so that
// one changed endpoint is one write.
func (p *importer) slices() changes {
	var plan changes
	p.currentSlices = make(map[string]*discoveryv1.EndpointSlice, len(p.Current.Slices))
	for _, s := range p.Current.Slices {
		p.currentSlices[s.Name] = s
	}
	p.desiredSlices = map[string]*discoveryv1.EndpointSlice{}
	for _, s := range p.Current.Slices { // those of clusters that were not read or are held, and those that their publisher lost
		if p.owns(s) && (p.Unsynced.Has(ClusterOf(s)) || slices.Contains(p.LostSlices[ClusterOf(s)], SourceOf(s)) && p.isCarried(s)) {
			p.desiredSlices[s.Name] = p.keptForm(s)
		}
	}
	if p.Desired != nil && p.possible() {
		for _, c := range p.Desired.Constituents {
			bySelector := c.Cluster == p.Self && p.maintains()
			if !p.Unsynced.Has(c.Cluster) && !bySelector {
				plan.problems = append(plan.problems, p.nameSlices(c.Cluster, p.wantedSlices(c))...)
			}
		}
		p.adoptSelf()
	}
	p.direct()
	for _, name := range slices.Sorted(maps.Keys(p.desiredSlices)) {
		desired, existing := p.desiredSlices[name], p.currentSlices[name]
		if desired == existing { // kept as it is
			continue
		}
		sign(desired)
		actions := []Action{create(desired)}
		if existing != nil {
			actions = updateSlice(desired, existing)
		}
		plan.apply = append(plan.apply, from(ClusterOf(desired), actions)...)
	}
	for _, name := range slices.Sorted(maps.Keys(p.currentSlices)) {
		if existing := p.currentSlices[name]; p.desiredSlices[name] == nil && p.mayRemove(existing) {
			plan.remove = append(plan.remove, from(ClusterOf(existing), remove(existing, sliceKind))...)
		}
	}
	return plan
}

// from marks actions as those on slices of one source cluster.
func from(source model.ClusterID, actions []Action) []Action {
	return each(actions, func(a *Action) { a.Source = source })
}

// changeable is the desired slice called name, as a copy if it is an existing one, which may be
// of a cache.
func (p *importer) changeable(name string) *discoveryv1.EndpointSlice {
	if p.desiredSlices[name] == p.currentSlices[name] {
		p.desiredSlices[name] = applied(p.desiredSlices[name])
	}
	return p.desiredSlices[name]
}

// applied is a copy of an existing slice in the form of one to apply. It includes the labels
// and annotations that a user added, because the slice does not show who added
// which. The user's field manager keeps owning them, too.
func applied(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	c := &discoveryv1.EndpointSlice{
		TypeMeta: sliceKind, ObjectMeta: objectMeta(s.Namespace, s.Name, s.Labels, s.Annotations),
		AddressType: s.AddressType, Endpoints: slices.Clone(s.Endpoints), Ports: s.Ports,
	}
	delete(c.Annotations, model.AnnotationApplied)
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	return c
}

// adoptedFrom is the source cluster of a slice that the Sveltos pipeline created
// and that is to be adopted; empty for any other slice.
func (p *importer) adoptedFrom(s *discoveryv1.EndpointSlice) model.ClusterID {
	if !p.takesOver {
		return ""
	}
	return AdoptableFrom(s, p.Key)
}

// adoptSelf adopts the pipeline's slice of this cluster if the derived Service has
// a selector. The slice is not desired then: once Comity manages it, the next
// plans remove it like any other.
func (p *importer) adoptSelf() {
	for _, s := range p.Current.Slices {
		if p.maintains() && p.adoptedFrom(s) == p.Self {
			c := applied(s)
			c.Labels[model.LabelSourceCluster], c.Labels[discoveryv1.LabelManagedBy] = string(p.Self), model.ManagedBy
			p.desiredSlices[s.Name] = c
		}
	}
}

// isSelectors reports whether Kubernetes created a slice for the selector of the
// derived Service.
func (p *importer) isSelectors(s *discoveryv1.EndpointSlice) bool {
	return !model.IsManaged(s) && s.Labels[discoveryv1.LabelServiceName] == p.name && s.Labels[discoveryv1.LabelManagedBy] == "endpointslice-controller.k8s.io"
}

// mayRemove reports whether Comity manages a slice and its source cluster was
// read, or is Omitted. A slice without the label of its source cluster is removed only if every
// cluster was read. If the derived Service has no name, only slices that serve
// another Service are removed: the derived Service may exist, but without the
// label by which it is found, because a user removed it.
func (p *importer) mayRemove(s *discoveryv1.EndpointSlice) bool {
	cluster := ClusterOf(s)
	if p.Desired != nil && p.name == "" && !p.servesAnother(s) {
		return false
	}
	if p.Desired != nil && cluster == p.Self && p.maintains() && p.possible() && !slices.ContainsFunc(p.Current.Slices, p.isSelectors) {
		return false // until Kubernetes has created slices for the selector
	}
	return p.owns(s) && (!p.Unsynced.Has(cluster) || p.Traffic[cluster] == model.Omitted) && (cluster != "" || len(p.Unsynced) == 0)
}

// servesAnother reports whether a slice belongs to a Service that is not this
// import's, so that clients of that Service reach endpoints of this import.
func (p *importer) servesAnother(s *discoveryv1.EndpointSlice) bool {
	name := s.Labels[discoveryv1.LabelServiceName]
	occupier := p.occupier(name)
	return occupier != nil && (!model.IsManaged(occupier) || canDerive(occupier.Labels[model.LabelServiceName], name))
}

// owns reports whether Comity manages a slice for this import. The slices that are
// read have the label or a name of this import. So a slice with another value of
// the label is this import's slice, which a user changed, unless the value is the
// name of an import whose adler32 sum is the same.
func (p *importer) owns(s *discoveryv1.EndpointSlice) bool {
	service := s.Labels[model.LabelServiceName]
	another := service != "" && service != p.Key.Name && model.DerivedName(service) == model.DerivedName(p.Key.Name)
	return model.IsManaged(s) && !another
}

// ClusterOf is the source cluster of a derived slice; empty without the label.
func ClusterOf(s *discoveryv1.EndpointSlice) model.ClusterID {
	return model.ClusterID(s.Labels[model.LabelSourceCluster])
}

// SourceOf is the name of the slice that a slice mirrors, or is a copy of.
func SourceOf(s *discoveryv1.EndpointSlice) string { return s.Annotations[model.AnnotationSourceSlice] }

// nameSlices adds the wanted slices of one cluster to the desired ones: under the names of
// the existing slices of the same sources, or, if they are new, under free names.
func (p *importer) nameSlices(cluster model.ClusterID, want []*discoveryv1.EndpointSlice) (problems []model.Problem) {
	takes := func(name string, w *discoveryv1.EndpointSlice) bool {
		if name == "" || p.desiredSlices[name] != nil || !p.fits(name, cluster, w) {
			return false
		}
		w.Name, p.desiredSlices[name] = name, w
		return true
	}
	assigned := p.assigned(cluster)
	var unnamed []*discoveryv1.EndpointSlice
	for _, w := range want {
		if !takes(assigned[SourceOf(w)], w) {
			unnamed = append(unnamed, w)
		}
	}
	for _, w := range unnamed {
		_ = slices.ContainsFunc(p.sliceNames(cluster, w), func(name string) bool { return takes(name, w) })
		// If none, Comity's slice of that name has another address type, which
		// cannot be changed: it is deleted now, and created by the next plan.
	}
	for n, w := range want {
		names := p.sliceNames(cluster, w)
		for i, name := range names {
			if name == w.Name {
				break // the other name was not needed
			}
			if n > 0 && i < len(names)-1 {
				continue // one slice alone can have the plain name
			}
			if s := p.currentSlices[name]; s != nil && !model.IsManaged(s) && p.adoptedFrom(s) == "" {
				problem := p.nameTaken("EndpointSlice", name, w.Name)
				if w.Name == "" { // which cluster is without its endpoints
					problem.Cluster = cluster
				}
				problems = append(problems, problem)
			}
		}
	}
	return problems
}

// sliceNames are the names that a new slice of a cluster may have, the preferred one first.
func (p *importer) sliceNames(cluster model.ClusterID, w *discoveryv1.EndpointSlice) []string {
	return slices.Compact([]string{model.SliceName(p.name, true, cluster, SourceOf(w)), model.SliceName(p.name, false, cluster, SourceOf(w))})
}

// assigned returns the names of the existing slices of one cluster, by the slices
// that they mirror. Of two for the same source, the first by name counts.
func (p *importer) assigned(cluster model.ClusterID) map[string]string {
	names := map[string]string{}
	for _, s := range p.Current.Slices {
		source, has := s.Annotations[model.AnnotationSourceSlice]
		if !has || ClusterOf(s) != cluster || !p.owns(s) {
			continue
		}
		if name, has := names[source]; !has || s.Name < name {
			names[source] = s.Name
		}
	}
	return names
}

// fits reports whether name is free, or is that of a slice that can be updated to
// w: managed by Comity or to be adopted, of the same cluster (or of none, if a
// user removed the label), and of the same address type.
func (p *importer) fits(name string, cluster model.ClusterID, w *discoveryv1.EndpointSlice) bool {
	s := p.currentSlices[name]
	if s == nil {
		return true
	}
	fits := p.owns(s) && (ClusterOf(s) == cluster || ClusterOf(s) == "") || p.adoptedFrom(s) == cluster
	return fits && s.AddressType == w.AddressType
}

// wantedSlices are the slices that one constituent contributes, by source name.
func (p *importer) wantedSlices(c model.Constituent) []*discoveryv1.EndpointSlice {
	allowed := p.allowedPorts(c)
	var list []*discoveryv1.EndpointSlice
	for _, source := range p.Sources[c.Cluster] {
		if !p.carries(source.AddressType) {
			continue
		}
		ports := []discoveryv1.EndpointPort{}
		for _, port := range source.Ports {
			id := idOf(port)
			if name, is := allowed[id]; is { // with what the API server would default, so that the defaults do not differ from what is desired
				port.Name, port.Protocol = &name, &id.protocol
				ports = append(ports, port)
			}
		}
		if len(source.Ports) > 0 && len(ports) == 0 {
			continue
		}
		list = append(list, p.mirror(c.Cluster, source, ports))
	}
	slices.SortStableFunc(list, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(SourceOf(a), SourceOf(b)) })
	// While the audience of an export changes, there are two copies of a source.
	return slices.CompactFunc(list, func(a, b *discoveryv1.EndpointSlice) bool { return SourceOf(a) == SourceOf(b) })
}

// carries reports whether slices of the address type are part of the import. A
// headless import has no clusterset IP that decides the family, so DNS would also
// return endpoints of a family that is not the import's.
func (p *importer) carries(t discoveryv1.AddressType) bool {
	if t != discoveryv1.AddressTypeIPv4 && t != discoveryv1.AddressTypeIPv6 { // FQDN: kube-proxy serves none
		return false
	}
	families, kind := p.families, p.Desired.Type
	if families == nil {
		families = p.Desired.IPFamilies
	}
	if p.Frozen && p.existing != nil { // the existing Service is not changed
		kind = model.ImportType(p.existing)
	}
	return kind != mcsv1beta1.Headless || len(families) == 0 || slices.Contains(families, corev1.IPFamily(t))
}

// portID identifies a port both in a slice and in a Service.
type portID struct {
	name     string
	protocol corev1.Protocol
}

// allowedPorts are the ports on which this constituent may receive traffic, with
// their names in the derived Service.
func (p *importer) allowedPorts(c model.Constituent) map[portID]string {
	allowed := map[portID]string{}
	for _, port := range merge.StrictPorts(c.Declared, p.ports) {
		allowed[portID{port.Name, port.Protocol}] = proxyName(port, p.ports)
	}
	return allowed
}

// mirror is the derived slice without its name. It has the hostnames, zones and
// conditions of the endpoints, but no references to nodes and pods, which do not
// exist here. Endpoints of this cluster keep their nodes, which kube-proxy needs
// for internalTrafficPolicy Local.
func (p *importer) mirror(cluster model.ClusterID, source *discoveryv1.EndpointSlice, ports []discoveryv1.EndpointPort) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		TypeMeta: sliceKind, ObjectMeta: p.meta(""),
		AddressType: source.AddressType, Endpoints: exchange.Portable(source.Endpoints), Ports: ports,
	}
	for i := range s.Endpoints {
		if cluster == p.Self {
			s.Endpoints[i].NodeName = source.Endpoints[i].NodeName
		}
	}
	maps.Copy(s.Labels, model.Unreserved(source.Labels))
	s.Labels[model.LabelServiceName] = p.Key.Name
	s.Labels[model.LabelSourceCluster] = string(cluster)
	s.Labels[discoveryv1.LabelServiceName] = p.name
	s.Labels[discoveryv1.LabelManagedBy] = model.ManagedBy
	s.Annotations[model.AnnotationSourceSlice] = source.Name
	if name := SourceOf(source); name != "" && cluster != p.Self { // that of a copy is another one
		s.Annotations[model.AnnotationSourceSlice] = name
	}
	return s
}
