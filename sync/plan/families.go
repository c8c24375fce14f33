// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Which IP families a derived Service gets. KEP-1645, "ClusterSet VIP", leaves
// the choice to the implementation. Kubernetes lets the second family of a
// Service be added and removed. The first family cannot change, because it is
// the family of the first cluster IP.

// supportedFamilies returns the families of the import (wanted) that this
// cluster supports, in the import's order. If both are supported and an existing
// Service has them in the other order, that order stays, and so does the first
// clusterset IP. The result is nil if the families of the import or of the
// cluster are unknown: then the API server chooses. It is empty, but not nil, if
// no family is supported.
func supportedFamilies(wanted, supported, existing []corev1.IPFamily) []corev1.IPFamily {
	if len(wanted) == 0 || len(supported) == 0 {
		return nil
	}
	families := slices.DeleteFunc(slices.Clone(wanted), func(f corev1.IPFamily) bool { return !slices.Contains(supported, f) })
	if len(families) == 2 && len(existing) > 0 && families[1] == existing[0] {
		slices.Reverse(families)
	}
	return families
}

// familyPolicy returns the ipFamilyPolicy for the supported families, or for
// the wanted ones if the families of the cluster are unknown. PreferDualStack
// has the same effect as RequireDualStack when both families are named, and
// stays valid if the cluster loses one of them.
func familyPolicy(supported, wanted []corev1.IPFamily) corev1.IPFamilyPolicy {
	if supported == nil {
		supported = wanted
	}
	if len(supported) > 1 {
		return corev1.IPFamilyPolicyPreferDualStack
	}
	return corev1.IPFamilyPolicySingleStack
}

// losesFirstFamily reports whether the first of the existing families is not
// among the desired ones. A Service with a cluster IP then has to be replaced.
func losesFirstFamily(existing, desired []corev1.IPFamily) bool {
	return len(existing) > 0 && len(desired) > 0 && !slices.Contains(desired, existing[0])
}
