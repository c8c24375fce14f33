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

	"github.com/comity-mcs/comity/sync/model"
)

var sliceKind = metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"}

// wanted is one slice as it should be, all but its name.
type wanted struct {
	source string // the name of the slice that it is made from
	slice  *discoveryv1.EndpointSlice
}

// slices plans the slices of all clusters that were read, and withdraws those
// of clusters that are lost. Each source slice is mirrored by one slice, so that
// one changed endpoint is one write.
func (p *importer) slices() changes {
	var plan changes
	named := map[string]*discoveryv1.EndpointSlice{}
	if p.Desired != nil && p.possible() {
		for _, c := range p.Desired.Constituents {
			bySelector := c.Cluster == p.Self && p.maintains()
			if !p.unsynced[c.Cluster] && !bySelector {
				plan.problems = append(plan.problems, p.nameSlices(c.Cluster, p.wantedSlices(c), named)...)
			}
		}
		p.adoptSelf(named)
	}
	p.markLostEndpoints(named)
	current := byName(p.Current.Slices)
	for _, name := range slices.Sorted(maps.Keys(named)) {
		desired, existing := named[name], current[name]
		if existing == nil {
			plan.apply = append(plan.apply, create(desired))
			continue
		}
		plan.apply = append(plan.apply, correct(desired, existing, sliceIsAsDesired(existing, desired), sliceDrift(existing, desired))...)
	}
	for _, name := range slices.Sorted(maps.Keys(current)) {
		if existing := current[name]; named[name] == nil && p.mayRemove(existing) {
			plan.remove = append(plan.remove, remove(existing, sliceKind)...)
		}
	}
	return plan
}

// asIs is an existing slice as one that is applied. Labels and annotations that
// a user added are applied with the rest: which are whose cannot be told here,
// and they remain the user's as well.
func asIs(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	c := &discoveryv1.EndpointSlice{
		TypeMeta: sliceKind,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: s.Name, Labels: maps.Clone(s.Labels), Annotations: maps.Clone(s.Annotations),
		},
		AddressType: s.AddressType, Endpoints: s.Endpoints, Ports: s.Ports,
	}
	delete(c.Annotations, model.AnnotationApplied)
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	return c
}

// adoptedFrom is the source cluster of a slice that the Sveltos pipeline made
// and that is to be taken over; empty for any other.
func (p *importer) adoptedFrom(s *discoveryv1.EndpointSlice) model.ClusterID {
	if !p.takesOver || model.IsManaged(s) {
		return ""
	}
	return sveltosSourceCluster(s, p.Key)
}

// adoptSelf takes over the pipeline's slice of this cluster where the selector
// takes its place: once it is Comity's, it is removed like any other.
func (p *importer) adoptSelf(named map[string]*discoveryv1.EndpointSlice) {
	for _, s := range p.Current.Slices {
		if !p.maintains() || p.adoptedFrom(s) != p.Self {
			continue
		}
		c := asIs(s)
		c.Labels[model.LabelSourceCluster], c.Labels[discoveryv1.LabelManagedBy] = string(p.Self), model.ManagedBy
		named[s.Name] = sign(c, nil)
	}
}

// isSelectors reports whether Kubernetes made a slice of the derived Service's
// selector.
func (p *importer) isSelectors(s *discoveryv1.EndpointSlice) bool {
	return !model.IsManaged(s) && s.Labels[discoveryv1.LabelServiceName] == p.name && s.Labels[discoveryv1.LabelManagedBy] == "endpointslice-controller.k8s.io"
}

// mayRemove reports whether a slice is ours and the cluster that it came from
// was read. One that no longer tells where it came from may go only when
// nothing is unread. Where no name is free for the derived Service, only what
// strays goes: a label that a user took off may be all that hides our Service.
func (p *importer) mayRemove(s *discoveryv1.EndpointSlice) bool {
	cluster := clusterOf(s)
	if p.Desired != nil && p.name == "" && !p.strays(s) {
		return false
	}
	if p.Desired != nil && cluster == p.Self && p.maintains() && p.possible() && !slices.ContainsFunc(p.Current.Slices, p.isSelectors) {
		return false // until Kubernetes has made slices of the selector
	}
	return p.owns(s) && !p.unsynced[cluster] && (cluster != "" || len(p.unsynced) == 0)
}

// strays reports whether a slice leads the clients of a Service that is not this
// import's to endpoints that are not its own.
func (p *importer) strays(s *discoveryv1.EndpointSlice) bool {
	name := s.Labels[discoveryv1.LabelServiceName]
	occupier := p.occupier(name)
	return slices.Contains(p.Taken, name) || occupier != nil && (!model.IsManaged(occupier) || mayDerive(occupier.Labels[model.LabelServiceName], name))
}

// owns reports whether a slice is Comity's and of this import. One whose label
// was taken off or changed to nonsense is recognized by having the name of one
// of this import's; only an import whose name collides in adler32 has such, too.
func (p *importer) owns(s *discoveryv1.EndpointSlice) bool {
	service := s.Labels[model.LabelServiceName]
	another := service != "" && service != p.Key.Name && model.DerivedName(service) == model.DerivedName(p.Key.Name)
	return model.IsManaged(s) && !another
}

// clusterOf is the cluster that a derived slice came from; empty if it does
// not tell.
func clusterOf(s *discoveryv1.EndpointSlice) model.ClusterID {
	return model.ClusterID(s.Labels[model.LabelSourceCluster])
}

func byName(list []*discoveryv1.EndpointSlice) map[string]*discoveryv1.EndpointSlice {
	index := make(map[string]*discoveryv1.EndpointSlice, len(list))
	for _, s := range list {
		index[s.Name] = s
	}
	return index
}

// nameSlices adds the wanted slices of one cluster to named, under the names
// that they have already or, if they are new, under free ones.
func (p *importer) nameSlices(cluster model.ClusterID, want []wanted, named map[string]*discoveryv1.EndpointSlice) []model.Problem {
	assigned := p.assigned(cluster)
	var unnamed []wanted
	for _, w := range want {
		name, has := assigned[w.source]
		if !has || named[name] != nil || !p.fits(name, cluster, w) {
			unnamed = append(unnamed, w)
			continue
		}
		named[name] = p.finish(w, name)
	}
	var problems []model.Problem
	for _, w := range unnamed {
		plain, dotted := model.SliceName(p.name, true, cluster, w.source), model.SliceName(p.name, false, cluster, w.source)
		switch {
		case named[plain] == nil && p.fits(plain, cluster, w):
			named[plain] = p.finish(w, plain)
		case named[dotted] == nil && p.fits(dotted, cluster, w):
			named[dotted] = p.finish(w, dotted)
		case p.foreignSlice(dotted):
			problems = append(problems, nameTaken("EndpointSlice", p.Key.Namespace, dotted, ""))
		}
		// Otherwise the name is that of a slice of ours whose address type,
		// which cannot be changed, is another: it goes now, this one comes next.
	}
	return problems
}

// assigned gives the names of the slices that exist for one cluster, by the
// slices that they were made from. Of two for the same, the first by name.
func (p *importer) assigned(cluster model.ClusterID) map[string]string {
	names := map[string]string{}
	for _, s := range p.Current.Slices {
		source, has := s.Annotations[model.AnnotationSourceSlice]
		if !has || clusterOf(s) != cluster || !p.owns(s) {
			continue
		}
		if name, has := names[source]; !has || s.Name < name {
			names[source] = s.Name
		}
	}
	return names
}

// fits reports whether name is free for w, or that of a slice which may become
// w: ours, of the same cluster (or of none, if a user took its label off), of
// the same address type.
func (p *importer) fits(name string, cluster model.ClusterID, w wanted) bool {
	for _, s := range p.Current.Slices {
		if s.Name == name {
			fits := p.owns(s) && (clusterOf(s) == cluster || clusterOf(s) == "") || p.adoptedFrom(s) == cluster
			return fits && s.AddressType == w.slice.AddressType
		}
	}
	return true
}

func (p *importer) foreignSlice(name string) bool {
	return slices.ContainsFunc(p.Current.Slices, func(s *discoveryv1.EndpointSlice) bool {
		return s.Name == name && !p.owns(s) && p.adoptedFrom(s) == ""
	})
}

func (p *importer) finish(w wanted, name string) *discoveryv1.EndpointSlice {
	w.slice.Name = name
	return w.slice
}

// wantedSlices are the slices that one constituent contributes, by source name.
func (p *importer) wantedSlices(c model.Constituent) []wanted {
	allowed := p.allowedPorts(c)
	var list []wanted
	for _, source := range p.Sources[c.Cluster] {
		if !p.carries(source.AddressType) {
			continue
		}
		ports := strictPorts(source.Ports, allowed)
		if len(source.Ports) > 0 && len(ports) == 0 {
			continue
		}
		list = append(list, wanted{source: p.sourceName(c.Cluster, source), slice: p.mirror(c.Cluster, source, ports)})
	}
	slices.SortStableFunc(list, func(a, b wanted) int { return cmp.Compare(a.source, b.source) })
	// While an export moves between audiences its copies are there twice.
	return slices.CompactFunc(list, func(a, b wanted) bool { return a.source == b.source })
}

// carries reports whether slices of the type belong to the import. A headless
// import has no address of its own to choose the family, so endpoints of a
// family that is not the import's would show in DNS.
func (p *importer) carries(t discoveryv1.AddressType) bool {
	switch t {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
		families := p.families
		if families == nil {
			families = p.Desired.IPFamilies
		}
		headless := p.Desired.Type == mcsv1beta1.Headless
		if p.kept && p.existing != nil { // what stands counts, not what can be read
			headless = p.existing.Spec.ClusterIP == corev1.ClusterIPNone
		}
		return !headless || len(families) == 0 || slices.Contains(families, corev1.IPFamily(t))
	}
	return false // FQDN: kube-proxy serves none
}

// sourceName is the name of the slice in the cluster that it came from.
func (p *importer) sourceName(cluster model.ClusterID, s *discoveryv1.EndpointSlice) string {
	if name := s.Annotations[model.AnnotationSourceSlice]; name != "" && cluster != p.Self {
		return name
	}
	return s.Name
}

// portID is what a port of a slice and one of a Service have in common.
type portID struct {
	name     string
	protocol corev1.Protocol
}

// allowedPorts are the ports to which traffic may reach this constituent, with
// the name under which they stand in the derived Service.
func (p *importer) allowedPorts(c model.Constituent) map[portID]string {
	allowed := map[portID]string{}
	for _, declared := range c.Declared {
		for _, port := range p.ports {
			if port.Name == declared.Name && port.Port == declared.Port && port.Protocol == declared.Protocol {
				allowed[portID{port.Name, port.Protocol}] = proxyName(port, p.ports)
			}
		}
	}
	return allowed
}

// strictPorts keeps the allowed ports, under the derived Service's names. What
// the API server defaults is written out, so that it never shows as a change.
func strictPorts(source []discoveryv1.EndpointPort, allowed map[portID]string) []discoveryv1.EndpointPort {
	kept := []discoveryv1.EndpointPort{}
	for _, port := range source {
		id := portID{protocol: corev1.ProtocolTCP}
		if port.Name != nil {
			id.name = *port.Name
		}
		if port.Protocol != nil {
			id.protocol = *port.Protocol
		}
		if name, is := allowed[id]; is {
			port.Name, port.Protocol = &name, &id.protocol
			kept = append(kept, port)
		}
	}
	return kept
}

// mirror is the derived slice, without its name. Nodes, pods and hints of
// another cluster mean nothing here; hostnames, zones and conditions do. The
// nodes of this cluster stay: internalTrafficPolicy Local goes by them.
func (p *importer) mirror(cluster model.ClusterID, source *discoveryv1.EndpointSlice, ports []discoveryv1.EndpointPort) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		TypeMeta:    sliceKind,
		ObjectMeta:  p.meta(""),
		AddressType: source.AddressType,
		Endpoints:   make([]discoveryv1.Endpoint, len(source.Endpoints)),
		Ports:       ports,
	}
	for i, e := range source.Endpoints {
		s.Endpoints[i] = discoveryv1.Endpoint{
			Addresses: e.Addresses, Conditions: e.Conditions, Hostname: e.Hostname, Zone: e.Zone, Hints: p.hints.hints(cluster, e.Zone),
		}
		if cluster == p.Self {
			s.Endpoints[i].NodeName = e.NodeName
		}
	}
	for key, value := range source.Labels {
		if !model.ReservedLabel(key) {
			s.Labels[key] = value
		}
	}
	s.Labels[model.LabelServiceName] = p.Key.Name
	s.Labels[model.LabelSourceCluster] = string(cluster)
	s.Labels[discoveryv1.LabelServiceName] = p.name
	s.Labels[discoveryv1.LabelManagedBy] = model.ManagedBy
	s.Annotations[model.AnnotationSourceSlice] = p.sourceName(cluster, source)
	return sign(s, nil)
}
