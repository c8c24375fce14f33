// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Record is what is published of export. The cluster is left out: a reader
// knows it from the credential with which it reads.
func Record(export model.Export) exchangev1alpha1.ExportRecordSpec {
	return exchangev1alpha1.ExportRecordSpec{
		Service:               exchangev1alpha1.ServiceReference{Namespace: export.Key.Namespace, Name: export.Key.Name},
		ExportUID:             export.UID,
		ExportedAt:            metav1.NewTime(export.CreatedAt),
		Type:                  export.Type,
		Ports:                 export.Ports,
		IPFamilies:            export.IPFamilies,
		SessionAffinity:       export.SessionAffinity,
		SessionAffinityConfig: export.SessionAffinityConfig,
		InternalTrafficPolicy: export.InternalTrafficPolicy,
		TrafficDistribution:   export.TrafficDistribution,
		Labels:                export.Labels,
		Annotations:           export.Annotations,
	}
}

// FromRecord is what record, read from cluster, exports. The error names the
// record, the field, what was expected and who has to act. What the result
// refers to is shared with record.
func FromRecord(cluster model.ClusterID, record *exchangev1alpha1.ExportRecord) (model.Export, error) {
	if problem := checkRecord(record); problem != nil {
		return model.Export{}, fmt.Errorf("ExportRecord %s/%s of cluster %s: %s: %s; it is ignored until cluster %s publishes a valid one",
			quoteShort(record.Namespace), quoteShort(record.Name), cluster, problem.field, problem.message, cluster)
	}
	spec := &record.Spec
	ports := make([]mcsv1beta1.ServicePort, 0, len(spec.Ports))
	for _, port := range spec.Ports {
		port.Protocol = protocolOrTCP(port.Protocol)
		ports = append(ports, port)
	}
	return model.Export{
		Cluster:               cluster,
		Key:                   types.NamespacedName{Namespace: spec.Service.Namespace, Name: spec.Service.Name},
		UID:                   spec.ExportUID,
		CreatedAt:             spec.ExportedAt.UTC(),
		Type:                  spec.Type,
		Ports:                 ports,
		IPFamilies:            spec.IPFamilies,
		SessionAffinity:       affinityOrNone(spec.SessionAffinity),
		SessionAffinityConfig: spec.SessionAffinityConfig,
		InternalTrafficPolicy: spec.InternalTrafficPolicy,
		TrafficDistribution:   spec.TrafficDistribution,
		Labels:                spec.Labels,
		Annotations:           spec.Annotations,
	}, nil
}

func affinityOrNone(a corev1.ServiceAffinity) corev1.ServiceAffinity {
	if a == "" {
		return corev1.ServiceAffinityNone
	}
	return a
}
