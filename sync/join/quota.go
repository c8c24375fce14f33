// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// quotaName is the name of the ResourceQuota in every exchange namespace of a hub.
const quotaName = "comity-exchange"

// quota bounds what the member that writes an exchange namespace of a hub can store
// there, because all members depend on the hub's etcd. The numbers are those that
// the readers accept (budget.Limits); a clusterset of 30 members with 10,000 exports
// does not reach them, even if one member has all the exports. A member of its own
// API server needs no quota: it fills its own etcd.
//
// The hub's controller manager counts; until it has counted for the first time, some
// seconds after the namespace was created, the API server refuses what is counted.
func quota(namespace string) *corev1.ResourceQuota {
	hard := corev1.ResourceList{}
	for name, count := range map[corev1.ResourceName]int64{
		"count/exportrecords.exchange.comity.dev":    20_000,
		"count/endpointslices.discovery.k8s.io":      40_000,
		"count/namespacerecords.exchange.comity.dev": 20_000,
		"count/importrecords.exchange.comity.dev":    20_000,
		"count/memberrecords.exchange.comity.dev":    10,
		"count/leases.coordination.k8s.io":           10,
	} {
		hard[name] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	return &corev1.ResourceQuota{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"},
		ObjectMeta: meta(namespace, quotaName, nil),
		Spec:       corev1.ResourceQuotaSpec{Hard: hard},
	}
}
