// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// Resolve gives the import that the exports of one Service make, and what they
// disagree about. The import is nil if there is no export. The messages of all
// conflicts together have at most MaxMessages bytes.
func Resolve(exports []model.Export) (*model.Import, []model.Conflict) {
	if len(exports) == 0 {
		return nil, nil
	}
	ordered := oldestFirst(exports)
	oldest := ordered[0]
	resolved := &model.Import{
		Key:         oldest.Key,
		Type:        oldest.Type,
		Ports:       unionOfPorts(ordered),
		IPFamilies:  firstFamilies(ordered),
		Labels:      oldest.Labels,
		Annotations: oldest.Annotations,
		// Not of KEP-1645, so no conflict of it either; where exports differ,
		// the oldest decides as of all else.
		PreferLocal: oldest.PreferLocal,
		Selector:    oldest.Selector,
		Targets:     oldest.Targets,
	}
	// A headless Service has no address for a proxy to serve, so nothing that
	// tells a proxy how to serve it belongs to its import.
	if resolved.Type != mcsv1beta1.Headless {
		resolved.SessionAffinity = oldest.SessionAffinity
		resolved.SessionAffinityConfig = oldest.SessionAffinityConfig
		resolved.InternalTrafficPolicy = oldest.InternalTrafficPolicy
		resolved.TrafficDistribution = oldest.TrafficDistribution
	}
	for _, e := range ordered {
		resolved.Constituents = append(resolved.Constituents, model.Constituent{
			Cluster: e.Cluster, Ports: strictPorts(e.Ports, resolved.Ports), Declared: e.Ports,
		})
	}
	return resolved, conflicts(ordered, resolved)
}

// oldestFirst orders the exports by precedence, with defaults filled in, one
// per cluster. A cluster shows twice only while its export moves from one
// audience to another; the two are the same export, so either will do, but it
// has to be the same one every time.
func oldestFirst(exports []model.Export) []model.Export {
	ordered := make([]model.Export, len(exports))
	for i, e := range exports {
		ordered[i] = withDefaults(e)
	}
	slices.SortFunc(ordered, func(a, b model.Export) int {
		return cmp.Or(
			// ServiceExports and their records have one second granularity.
			cmp.Compare(a.CreatedAt.Unix(), b.CreatedAt.Unix()),
			cmp.Compare(a.Cluster, b.Cluster),
			cmp.Compare(a.UID, b.UID),
			compareContent(a, b),
		)
	})
	seen := make(map[model.ClusterID]bool, len(ordered))
	return slices.DeleteFunc(ordered, func(e model.Export) bool {
		repeated := seen[e.Cluster]
		seen[e.Cluster] = true
		return repeated
	})
}

// compareContent is a total order over exports of equal identity.
func compareContent(a, b model.Export) int {
	left, _ := json.Marshal(a)  // an Export holds no value that JSON cannot
	right, _ := json.Marshal(b) // express, so there is no error to handle
	return slices.Compare(left, right)
}

// withDefaults fills in what the API server would, so that a value that is
// written out never differs from the same value left out.
func withDefaults(e model.Export) model.Export {
	e.Ports = slices.Clone(e.Ports)
	for i := range e.Ports {
		e.Ports[i].Protocol = cmp.Or(e.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	if e.Type == mcsv1beta1.Headless {
		return e
	}
	e.SessionAffinity = cmp.Or(e.SessionAffinity, corev1.ServiceAffinityNone)
	if e.SessionAffinity == corev1.ServiceAffinityNone {
		e.SessionAffinityConfig = nil // means nothing without an affinity
	} else if timeout(e.SessionAffinityConfig) == nil {
		seconds := corev1.DefaultClientIPServiceAffinitySeconds
		e.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	if e.InternalTrafficPolicy == nil {
		policy := corev1.ServiceInternalTrafficPolicyCluster
		e.InternalTrafficPolicy = &policy
	}
	return e
}

// timeout is the affinity timeout in seconds; nil if none is set.
func timeout(config *corev1.SessionAffinityConfig) *int32 {
	if config == nil || config.ClientIP == nil {
		return nil
	}
	return config.ClientIP.TimeoutSeconds
}

// firstFamilies are the IP families of the oldest export that tells any,
// without repetition (KEP-1645: ipFamilies must not have duplicates).
//
// KEP-1645 leaves the choice to implementations. What all exports have in
// common would reach every cluster, but then a younger export could take an
// address away from clients that use it; a conflict must leave traffic as it
// is. So the oldest decides here too, and IPFamilyConflict says where traffic
// of one of its families does not reach everybody.
func firstFamilies(ordered []model.Export) []corev1.IPFamily {
	for _, e := range ordered {
		var families []corev1.IPFamily
		for _, family := range e.IPFamilies {
			if !slices.Contains(families, family) {
				families = append(families, family)
			}
		}
		if len(families) > 0 {
			return families
		}
	}
	return nil
}
