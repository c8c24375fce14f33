// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package withdraw decides whose endpoints are withdrawn, and withdraws them.
//
// It takes the clusters that are lost and do not answer, and the slices as they
// would stand here; it gives the clusters to withdraw. A withdrawn endpoint
// stays where it is and is marked not ready and not serving, so that neither
// kube-proxy nor DNS leads anybody to it. Nothing is ever deleted for it, and
// the last ready endpoints are withdrawn only where the user says so.
package withdraw

import (
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/comity-mcs/comity/sync/model"
)

// Choose gives those of lost whose endpoints are to be withdrawn, sorted. from
// holds all slices of the import by source cluster; serves says of a slice
// whether traffic can reach its endpoints at all.
func Choose(lost []model.ClusterID, policy model.OnLost, from map[model.ClusterID][]*discoveryv1.EndpointSlice,
	serves func(*discoveryv1.EndpointSlice) bool) []model.ClusterID {
	if policy == model.OnLostKeep {
		return nil
	}
	if policy != model.OnLostWithdraw && !remains(lost, from, serves) {
		return nil
	}
	chosen := map[model.ClusterID]bool{}
	for _, id := range lost {
		if slices.ContainsFunc(from[id], func(s *discoveryv1.EndpointSlice) bool { return len(s.Endpoints) > 0 }) {
			chosen[id] = true
		}
	}
	return slices.Sorted(maps.Keys(chosen))
}

// remains reports whether a cluster that is not lost has a ready endpoint.
func remains(lost []model.ClusterID, from map[model.ClusterID][]*discoveryv1.EndpointSlice, serves func(*discoveryv1.EndpointSlice) bool) bool {
	for id, list := range from {
		if slices.Contains(lost, id) {
			continue
		}
		for _, s := range list {
			if serves(s) && slices.ContainsFunc(s.Endpoints, isReady) {
				return true
			}
		}
	}
	return false
}

// isReady follows the API: unset means ready.
func isReady(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

// Mark withdraws all endpoints of a slice. It changes s itself but nothing that
// s points to.
func Mark(s *discoveryv1.EndpointSlice) {
	s.Endpoints = slices.Clone(s.Endpoints)
	for i := range s.Endpoints {
		no := false
		s.Endpoints[i].Conditions.Ready, s.Endpoints[i].Conditions.Serving = &no, &no
	}
}
