// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// NotExportableError says why a ServiceExport exports nothing. Reason is one of
// those that KEP-1645 defines for Valid=False.
type NotExportableError struct {
	Reason  mcsv1beta1.ServiceExportConditionReason
	Message string
}

// Error is the message, which names the Service and what to do.
func (e *NotExportableError) Error() string { return e.Message }

// CheckExportable reports why the Service of ServiceExport key, nil if there is
// none, cannot be exported; nil if it can. The sync loop and the condition Valid
// both follow it (KEP-1645, "Service Types").
func CheckExportable(key types.NamespacedName, service *corev1.Service) *NotExportableError {
	refuse := func(reason mcsv1beta1.ServiceExportConditionReason, format string, args ...any) *NotExportableError {
		return &NotExportableError{reason, fmt.Sprintf("Service %s ", key) + fmt.Sprintf(format, args...)}
	}
	switch {
	case service == nil:
		return refuse(mcsv1beta1.ServiceExportReasonNoService, "does not exist in this cluster; create it or delete this ServiceExport")
	case service.DeletionTimestamp != nil:
		return refuse(mcsv1beta1.ServiceExportReasonNoService, "is being deleted; create it again or delete this ServiceExport")
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return refuse(mcsv1beta1.ServiceExportReasonInvalidServiceType,
			"has spec.type ExternalName, which cannot be exported; make it ClusterIP, NodePort or LoadBalancer, or delete this ServiceExport")
	case service.Labels[LabelServiceImported] == "true":
		return refuse(mcsv1beta1.ServiceExportReasonInvalidServiceType,
			"has the label %s, so it is the import of another Service; export the original Service, or delete this ServiceExport", LabelServiceImported)
	}
	return nil
}
