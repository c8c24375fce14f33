// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/sync/model"
)

// direct applies Traffic to the desired slices, which have the conditions that their
// clusters published.
func (p *importer) direct() {
	p.unready = map[model.ClusterID]int{}
	var unready []string
	for name, s := range p.desiredSlices {
		switch t := p.Traffic[ClusterOf(s)]; {
		case t == model.Omitted:
			delete(p.desiredSlices, name)
		case len(s.Endpoints) == 0:
		case t == model.Withheld, t >= model.LastResort && p.servesBefore(t):
			unready = append(unready, name)
		}
	}
	p.hint()
	for _, name := range unready { // not before all are known: each was compared with what is published
		s := p.changeable(name)
		p.unready[ClusterOf(s)] += len(s.Endpoints)
		withhold(s, p.Traffic[ClusterOf(s)])
	}
}

// hint gives the endpoints their zone hints, those of kept slices too: kube-proxy uses hints
// only if every ready endpoint has one.
func (p *importer) hint() {
	if p.Desired == nil {
		return
	}
	preferred := sets.Set[string]{}
	for _, s := range p.desiredSlices {
		for _, e := range s.Endpoints {
			if p.Traffic[ClusterOf(s)] == model.Preferred && p.serves(s) && model.IsReady(e) {
				preferred.Insert(ptr.Deref(e.Zone, ""))
			}
		}
	}
	p.hints = newHintRule(p.Desired, p.Traffic, p.LocalCluster.Zones, preferred)
	for name, s := range p.desiredSlices {
		for i, e := range s.Endpoints {
			if hints := p.hints.hints(ClusterOf(s), e.Zone); !equality.Semantic.DeepEqual(hints, e.Hints) {
				p.changeable(name).Endpoints[i].Hints = hints
			}
		}
	}
}

// servesBefore reports whether an endpoint is ready that is used before those of traffic t.
func (p *importer) servesBefore(t model.Traffic) bool {
	serves := func(s *discoveryv1.EndpointSlice) bool {
		return p.serves(s) && slices.ContainsFunc(s.Endpoints, model.IsReady)
	}
	for _, s := range p.desiredSlices {
		if p.Traffic[ClusterOf(s)] < t && serves(s) {
			return true
		}
	}
	return slices.ContainsFunc(p.Current.Slices, func(s *discoveryv1.EndpointSlice) bool { return p.isSelectors(s) && serves(s) })
}

// serves reports whether traffic can reach the endpoints of a derived slice.
func (p *importer) serves(s *discoveryv1.EndpointSlice) bool {
	known := p.existing != nil && len(p.existing.Spec.IPFamilies) > 0
	if known && !slices.Contains(p.existing.Spec.IPFamilies, corev1.IPFamily(s.AddressType)) {
		return false
	}
	return len(s.Ports) > 0 || len(p.ports) == 0
}

// withhold makes the endpoints of s not ready, and adds an annotation with the conditions that
// its cluster published.
func withhold(s *discoveryv1.EndpointSlice, t model.Traffic) {
	digits := make([]byte, len(s.Endpoints))
	for i := range s.Endpoints {
		wasReady, conditions := model.IsReady(s.Endpoints[i]), &s.Endpoints[i].Conditions
		digits[i] = digitOf(*conditions)
		switch {
		case t == model.Withheld:
			conditions.Ready, conditions.Serving = ptr.To(false), ptr.To(false)
		case wasReady:
			conditions.Ready, conditions.Serving, conditions.Terminating = ptr.To(false), ptr.To(true), ptr.To(true)
		}
	}
	s.Annotations[model.AnnotationPublished] = string(digits)
}

// Published are the endpoints of s with the conditions that their cluster published. What
// is kept has no source any more that would say it.
func Published(s *discoveryv1.EndpointSlice) []discoveryv1.Endpoint {
	endpoints, digits := slices.Clone(s.Endpoints), s.Annotations[model.AnnotationPublished]
	for i := range min(len(endpoints), len(digits)) {
		is := func(bit byte) *bool { return ptr.To((digits[i]-'0')&bit != 0) }
		endpoints[i].Conditions = discoveryv1.EndpointConditions{Ready: is(ready), Serving: is(serving), Terminating: is(terminating)}
	}
	return endpoints
}

// The conditions of an endpoint are one digit: the sum of these.
const (
	terminating byte = 1 << iota
	serving
	ready
)

// digitOf follows the API: unset means ready, serving like ready, and not terminating.
func digitOf(c discoveryv1.EndpointConditions) byte {
	digit, isReady := byte('0'), ptr.Deref(c.Ready, true)
	for bit, is := range map[byte]bool{ready: isReady, serving: ptr.Deref(c.Serving, isReady), terminating: ptr.Deref(c.Terminating, false)} {
		if is {
			digit += bit
		}
	}
	return digit
}

// Zone hints of mirrored endpoints. kube-proxy 1.36 (pkg/proxy/topology.go) reads
// them as follows. If every ready endpoint of a Service has a zone hint, and at
// least one is for the zone of the node, it uses only the endpoints hinted to
// that zone. Otherwise it uses all ready endpoints. It reads neither
// trafficDistribution nor an annotation of the Service for this, and ignores
// hints if internalTrafficPolicy is Local.
//
// Tiers build on that: Preferred endpoints are hinted to the zones of this cluster and
// others to a zone that does not exist. When no Preferred endpoint is ready, no hint
// matches and all ready endpoints are used, before Comity writes anything but that.

// maxHintedZones is how many zones the API allows in the hints of one endpoint.
const maxHintedZones = 8

// hintRule computes the hints of the endpoints of one import, each endpoint by
// itself. The zero value gives no hints.
type hintRule struct {
	zones   []string // of this cluster
	traffic map[model.ClusterID]model.Traffic
	// inTiers is true if some cluster is Preferred, sameZone if trafficDistribution asks for
	// endpoints of the own zone.
	inTiers, sameZone bool
	// open are those of zones in which no Preferred endpoint is ready.
	open []string
}

// newHintRule returns the rule of an import in a cluster whose nodes are in zones. preferred are
// the zones of the Preferred endpoints that are ready.
func newHintRule(d *model.Import, traffic map[model.ClusterID]model.Traffic, zones []string, preferred sets.Set[string]) hintRule {
	r := hintRule{zones: zones, traffic: traffic, open: zones}
	switch ptr.Deref(d.TrafficDistribution, "") {
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
		corev1.ServiceTrafficDistributionPreferSameNode: // Kubernetes allows the same zone in place of the same node
		r.sameZone, r.open = true, model.Without(zones, preferred.Has)
	}
	for _, t := range traffic {
		r.inTiers = r.inTiers || t == model.Preferred
	}
	return r
}

// tooManyZones reports whether some zones of this cluster get no hint.
func (r hintRule) tooManyZones() bool { return r.inTiers && len(r.zones) > maxHintedZones }

// hints returns the hints of an endpoint of cluster in zone; nil for none. Within a tier,
// trafficDistribution gives each zone its own endpoints, and all of the tier to a zone
// without a ready one.
func (r hintRule) hints(cluster model.ClusterID, zone *string) *discoveryv1.EndpointHints {
	switch {
	case r.inTiers && r.traffic[cluster] != model.Preferred:
		return forZones(r.unusedZone(cluster))
	case r.inTiers:
		to := r.open
		if r.sameZone && zone != nil && slices.Contains(r.zones, *zone) && !slices.Contains(to, *zone) {
			to = slices.Concat([]string{*zone}, to)
		}
		if len(to) == 0 { // the nodes of its zone are elsewhere
			to = []string{r.unusedZone(cluster)}
		}
		return forZones(to[:min(maxHintedZones, len(to))]...)
	case r.sameZone && zone != nil && *zone != "" && len(validation.IsValidLabelValue(*zone)) == 0:
		return forZones(*zone)
	}
	return nil
}

// unusedZone returns a valid zone name that no node of this cluster has. A
// cluster ID can be too long to be part of one; then its digest is used.
func (r hintRule) unusedZone(cluster model.ClusterID) string {
	zone := string(cluster) + ".clusterset.local"
	for len(zone) > validation.LabelValueMaxLength || slices.Contains(r.zones, zone) {
		zone = model.Hash(zone, 8) + ".clusterset.local"
	}
	return zone
}

func forZones(zones ...string) *discoveryv1.EndpointHints {
	return &discoveryv1.EndpointHints{ForZones: model.Map(zones, func(z string) discoveryv1.ForZone { return discoveryv1.ForZone{Name: z} })}
}
