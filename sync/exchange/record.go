// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"maps"
	"time"

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
		PreferLocal:           export.PreferLocal,
		Selector:              export.Selector,
		Targets:               recordTargets(export.Targets),
	}
}

func recordTargets(targets []model.Target) []exchangev1alpha1.Target {
	var out []exchangev1alpha1.Target
	for _, t := range targets {
		out = append(out, exchangev1alpha1.Target{Port: t.Port, Protocol: t.Protocol, TargetPort: t.Target})
	}
	return out
}

// FromRecord is what record, read from cluster, exports. The error names the
// record, the field, what was expected and who has to act. What the result
// refers to is shared with record.
//
// A peer may lie about the age of its exports, as it may about everything else
// that it exports: KEP-1645 lets the oldest win, and no reader can know better.
// Every member reaches the same verdict from the same record, which no
// comparison with a local clock could give.
func FromRecord(cluster model.ClusterID, record *exchangev1alpha1.ExportRecord) (model.Export, error) {
	if problem := checkRecord(record); problem != nil {
		return model.Export{}, recordError("ExportRecord", cluster, record, problem)
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
		CreatedAt:             age(spec.ExportedAt.Time),
		Type:                  spec.Type,
		Ports:                 ports,
		IPFamilies:            spec.IPFamilies,
		SessionAffinity:       affinityOrNone(spec.SessionAffinity),
		SessionAffinityConfig: spec.SessionAffinityConfig,
		InternalTrafficPolicy: spec.InternalTrafficPolicy,
		TrafficDistribution:   spec.TrafficDistribution,
		Labels:                unreserved(spec.Labels),
		Annotations:           unreserved(spec.Annotations),
		PreferLocal:           spec.PreferLocal,
		Selector:              spec.Selector,
		Targets:               targets(spec.Targets),
	}, nil
}

// Refusal is what to tell cluster of record, if FromRecord refuses it. It holds
// nothing of what the record says but the UID, because it comes to stand in an
// object of ours. False for a valid record, and for one of which it cannot be
// told what it is about.
func Refusal(cluster model.ClusterID, record *exchangev1alpha1.ExportRecord) (model.Refusal, bool) {
	problem := checkRecord(record)
	if problem == nil || checkReference(record.Name, record.Spec.Service) != nil || checkUID("", record.Spec.ExportUID) != nil {
		return model.Refusal{}, false
	}
	return model.Refusal{Cluster: cluster, ExportUID: record.Spec.ExportUID, Field: problem.field}, true
}

func affinityOrNone(a corev1.ServiceAffinity) corev1.ServiceAffinity {
	if a == "" {
		return corev1.ServiceAffinityNone
	}
	return a
}

func targets(in []exchangev1alpha1.Target) []model.Target {
	var out []model.Target
	for _, t := range in {
		out = append(out, model.Target{Port: t.Port, Protocol: protocolOrTCP(t.Protocol), Target: t.TargetPort})
	}
	return out
}

var (
	// firstExport is before the first ServiceExport that ever was (KEP-1645 is
	// of 2020).
	firstExport = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	// ageUnknown is younger than every other.
	ageUnknown = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
)

// age is the creation time by which conflicts are resolved. A time before there
// were ServiceExports is that of a clock that was not set, or forged, and must
// not win: such an export counts as the youngest. A time in the future needs no
// such rule, for it wins against nobody.
func age(created time.Time) time.Time {
	created = created.UTC().Truncate(time.Second)
	if created.Before(firstExport) || created.After(ageUnknown) {
		return ageUnknown
	}
	return created
}

// unreserved leaves out the exported labels or annotations that would speak to
// Kubernetes, to the MCS API or to Comity in the importing cluster: only that
// cluster's administrator says how it treats an import.
func unreserved(in map[string]string) map[string]string {
	reserved := func(key, _ string) bool { return model.ReservedLabel(key) }
	for key := range in {
		if model.ReservedLabel(key) {
			out := maps.Clone(in)
			maps.DeleteFunc(out, reserved)
			return out
		}
	}
	return in
}
