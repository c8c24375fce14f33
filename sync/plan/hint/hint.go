// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package hint gives the topology hints of mirrored endpoints.
//
// It takes what the import asks for and the zones of this cluster's nodes, and
// gives the hints of one endpoint. It looks at no other endpoint: whether hints
// are honored at all, kube-proxy decides from all endpoints that are ready.
//
// What kube-proxy 1.36 does (pkg/proxy/topology.go): it uses only the ready
// endpoints hinted to its node's zone if *every* ready endpoint has a zone hint
// and at least one is for that zone; otherwise it uses all ready ones. Neither
// trafficDistribution nor an annotation of the Service is asked for; with
// internalTrafficPolicy Local hints mean nothing. So unready endpoints never
// stand in the way, and where no endpoint is hinted to a zone all are used:
// that is the spill-over of "prefer: local", and it needs no write of ours.
package hint

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/comity-mcs/comity/sync/model"
)

// MaxZones is how many zones one endpoint may be hinted to.
const MaxZones = 8

// Rule says how the endpoints of one import are hinted. The zero value hints
// none.
type Rule struct {
	self     model.ClusterID
	zones    []string
	local    bool
	sameZone bool
}

// New is the rule of an import in a cluster with nodes in zones. To prefer
// local endpoints takes zones: without, no hint can tell a node from another.
func New(d *model.Import, self model.ClusterID, zones []string) Rule {
	r := Rule{self: self, zones: zones, local: d.PreferLocal && len(zones) > 0}
	if d.TrafficDistribution != nil && !d.PreferLocal {
		switch *d.TrafficDistribution {
		case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
			corev1.ServiceTrafficDistributionPreferSameNode: // which Kubernetes lets fall back to the zone
			r.sameZone = true
		}
	}
	return r
}

// TooManyZones reports whether some zones of this cluster get no hint.
func (r Rule) TooManyZones() bool { return r.local && len(r.zones) > MaxZones }

// Of gives the hints of an endpoint of cluster in zone; nil for none.
func (r Rule) Of(cluster model.ClusterID, zone *string) *discoveryv1.EndpointHints {
	switch {
	case r.local && cluster == r.self:
		return forZones(r.zones[:min(MaxZones, len(r.zones))]...)
	case r.local:
		return forZones(r.nowhere(cluster))
	case r.sameZone && zone != nil && *zone != "" && len(validation.IsValidLabelValue(*zone)) == 0:
		return forZones(*zone)
	}
	return nil
}

// nowhere is a zone that no node of this cluster is in, and a legal one
// however long the id is.
func (r Rule) nowhere(cluster model.ClusterID) string {
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
