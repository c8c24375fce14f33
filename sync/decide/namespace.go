// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Namespace is the report of cluster self on all exports of the namespace called name, which
// is nil if it does not exist there: why nothing can be imported into it. Its Reason is empty
// if something can. Reserved are the cluster's own, Comity's, which is called own, and the
// exchange namespaces.
func Namespace(self model.ClusterID, name string, namespace *corev1.Namespace, own string) model.Report {
	switch {
	case name == own || exchange.ReservedNamespace(name) || namespace != nil && metav1.HasLabel(namespace.ObjectMeta, model.LabelExchangeFrom):
		return notImported(model.ReasonNamespaceReserved, "namespace %s is reserved in cluster %s; export from another one", name, self)
	case namespace == nil:
		return notImported(model.ReasonNamespaceMissing, "cluster %s has no namespace %s; create it there", self, name)
	case namespace.DeletionTimestamp != nil:
		return notImported(model.ReasonNamespaceMissing, "namespace %s of cluster %s is being deleted; create it again there", name, self)
	}
	return model.Report{}
}

// NamespaceRecord is the record of cluster self of the namespace called name, with its identity labels; nil
// of one that cannot be imported into, and of one whose labels published does not select
// (nil selects all). Only the identity labels leave the cluster.
func NamespaceRecord(self model.ClusterID, name string, namespace *corev1.Namespace, own string, identityLabels []string, published labels.Selector) *exchangev1alpha1.NamespaceRecord {
	if Namespace(self, name, namespace, own).Reason != "" || published != nil && !published.Matches(labels.Set(namespace.Labels)) {
		return nil
	}
	return &exchangev1alpha1.NamespaceRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: model.ExchangeNamespace(self), Name: name},
		Spec:       exchangev1alpha1.NamespaceRecordSpec{Labels: identity(namespace, identityLabels)},
	}
}

// identity are the identity labels of a namespace, which may be none; nil if the
// namespace is not known.
func identity(namespace *corev1.Namespace, identityLabels []string) map[string]string {
	if namespace == nil {
		return nil
	}
	out := map[string]string{}
	for _, label := range identityLabels {
		if value, has := namespace.Labels[label]; has {
			out[label] = value
		}
	}
	return out
}

// maxCIDRs is how many ranges of a kind a MemberRecord may hold.
const maxCIDRs = 64

// Member is the MemberRecord of this cluster: known, with its address ranges. Current is that
// in the exchange; nil if there is none. Ranges that are not known yet stay as they were, so
// that a restart does not remove them for a moment.
func Member(self model.ClusterID, known exchangev1alpha1.MemberRecordSpec, local model.LocalCluster, current *exchangev1alpha1.MemberRecord) *exchangev1alpha1.MemberRecord {
	known.ClusterID, known.PodCIDRs, known.ServiceCIDRs = string(self), atMost(local.PodCIDRs), atMost(local.ServiceCIDRs)
	if current != nil && len(known.PodCIDRs)+len(known.ServiceCIDRs) == 0 {
		known.PodCIDRs, known.ServiceCIDRs = current.Spec.PodCIDRs, current.Spec.ServiceCIDRs
	}
	return &exchangev1alpha1.MemberRecord{ObjectMeta: metav1.ObjectMeta{Namespace: model.ExchangeNamespace(self), Name: string(self)}, Spec: known}
}

func atMost(prefixes []netip.Prefix) []string {
	return model.Map(prefixes[:min(len(prefixes), maxCIDRs)], netip.Prefix.String)
}
