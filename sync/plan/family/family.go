// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package family decides which IP families a derived Service has.
//
// It takes the families of the import, those that this cluster supports and
// those that the Service has already, and gives the Service's. It knows what
// Kubernetes lets change: a second family may come and go, the first may not,
// because it is that of the first cluster IP. It follows KEP-1645, "ClusterSet
// VIP": the exact families of an import are the implementation's to choose.
package family

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Resolve gives the families of the import that this cluster supports, in the
// import's order, but with the family first that existing has first, if it is
// among them: so the first clusterset IP stays. It gives nil if the families of
// the import or of the cluster are not known, which leaves the choice to the API
// server, and an empty list if none is supported.
func Resolve(wanted, supported, existing []corev1.IPFamily) []corev1.IPFamily {
	if len(wanted) == 0 || len(supported) == 0 {
		return nil
	}
	families := []corev1.IPFamily{}
	for _, f := range wanted {
		if slices.Contains(supported, f) {
			families = append(families, f)
		}
	}
	if len(families) == 2 && len(existing) > 0 && families[1] == existing[0] {
		slices.Reverse(families)
	}
	return families
}

// Policy is the ipFamilyPolicy that goes with resolved, or with wanted if the
// cluster's families are not known. PreferDualStack and RequireDualStack give
// the same once both families are named; the former also survives a cluster
// that loses one of them.
func Policy(resolved, wanted []corev1.IPFamily) corev1.IPFamilyPolicy {
	if resolved == nil {
		resolved = wanted
	}
	if len(resolved) > 1 {
		return corev1.IPFamilyPolicyPreferDualStack
	}
	return corev1.IPFamilyPolicySingleStack
}

// Moves reports whether a Service with a cluster IP of the existing families
// has to be made anew to have the resolved ones.
func Moves(existing, resolved []corev1.IPFamily) bool {
	return len(existing) > 0 && len(resolved) > 0 && !slices.Contains(resolved, existing[0])
}
