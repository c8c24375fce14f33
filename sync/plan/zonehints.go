// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/comity-mcs/comity/sync/model"
)

// Zone hints of mirrored endpoints. kube-proxy 1.36 (pkg/proxy/topology.go) reads
// them as follows. If every ready endpoint of a Service has a zone hint, and at
// least one is for the zone of the node, it uses only the endpoints hinted to
// that zone. Otherwise it uses all ready endpoints. It reads neither
// trafficDistribution nor an annotation of the Service for this, and ignores
// hints if internalTrafficPolicy is Local.
//
// "prefer: local" builds on that: local endpoints are hinted to the zones of
// this cluster and remote ones to a zone that does not exist. When no local
// endpoint is ready, no hint matches and all endpoints are used, without a
// write by Comity.

// maxHintedZones is how many zones the API allows in the hints of one endpoint.
const maxHintedZones = 8

// hintRule computes the hints of the endpoints of one import, each endpoint by
// itself. The zero value gives no hints.
type hintRule struct {
	self     model.ClusterID
	zones    []string
	local    bool
	sameZone bool
}

// newHintRule returns the rule of an import in the cluster self, whose nodes
// are in zones. Without zones local endpoints cannot be preferred, because then
// no hint matches any node.
func newHintRule(d *model.Import, self model.ClusterID, zones []string) hintRule {
	r := hintRule{self: self, zones: zones, local: d.PreferLocal && len(zones) > 0}
	if d.TrafficDistribution != nil && !d.PreferLocal {
		switch *d.TrafficDistribution {
		case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
			corev1.ServiceTrafficDistributionPreferSameNode: // Kubernetes allows the same zone in place of the same node
			r.sameZone = true
		}
	}
	return r
}

// tooManyZones reports whether some zones of this cluster get no hint.
func (r hintRule) tooManyZones() bool { return r.local && len(r.zones) > maxHintedZones }

// hints returns the hints of an endpoint of cluster in zone; nil for none.
func (r hintRule) hints(cluster model.ClusterID, zone *string) *discoveryv1.EndpointHints {
	switch {
	case r.local && cluster == r.self:
		return forZones(r.zones[:min(maxHintedZones, len(r.zones))]...)
	case r.local:
		return forZones(r.unusedZone(cluster))
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
