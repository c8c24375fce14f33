// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/sync/model"
)

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

// newHintRule returns the rule of an import in a cluster whose nodes are in zones. served are
// the zones of the ready endpoints of a cluster.
func newHintRule(d *model.Import, traffic map[model.ClusterID]model.Traffic, zones []string, served func(model.ClusterID) sets.Set[string]) hintRule {
	r := hintRule{zones: zones, traffic: traffic, open: zones}
	preferred := slices.DeleteFunc(slices.Collect(maps.Keys(traffic)), func(id model.ClusterID) bool { return traffic[id] != model.Preferred })
	r.inTiers = len(preferred) > 0
	switch ptr.Deref(d.TrafficDistribution, "") {
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
		corev1.ServiceTrafficDistributionPreferSameNode: // Kubernetes allows the same zone in place of the same node
		r.sameZone = true
	}
	if r.inTiers && r.sameZone {
		closed := sets.Set[string]{}
		for _, id := range preferred {
			closed = closed.Union(served(id))
		}
		r.open = slices.DeleteFunc(slices.Clone(zones), closed.Has)
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
		sum := sha256.Sum256([]byte(zone))
		zone = hex.EncodeToString(sum[:8]) + ".clusterset.local"
	}
	return zone
}

func forZones(zones ...string) *discoveryv1.EndpointHints {
	hints := &discoveryv1.EndpointHints{}
	for _, z := range zones {
		hints.ForZones = append(hints.ForZones, discoveryv1.ForZone{Name: z})
	}
	return hints
}
