// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
)

// unmarshal reads an object without its managedFields: they are most of it, and no
// policy sees them.
func unmarshal(raw []byte, into any) error {
	switch into := into.(type) {
	case *metav1.PartialObjectMetadata:
		given, err := read[skipped, skipped](raw)
		into.TypeMeta, into.ObjectMeta = given.TypeMeta, given.Metadata.ObjectMeta
		return err
	case *mcsv1beta1.ServiceExport:
		given, err := read[mcsv1beta1.ServiceExportSpec, mcsv1beta1.ServiceExportStatus](raw)
		*into = mcsv1beta1.ServiceExport{TypeMeta: given.TypeMeta, ObjectMeta: given.Metadata.ObjectMeta, Spec: given.Spec, Status: given.Status}
		return err
	case *corev1.Service:
		given, err := read[corev1.ServiceSpec, corev1.ServiceStatus](raw)
		*into = corev1.Service{TypeMeta: given.TypeMeta, ObjectMeta: given.Metadata.ObjectMeta, Spec: given.Spec, Status: given.Status}
		return err
	case *policyv1alpha1.ExportPolicy:
		given, err := read[policyv1alpha1.ExportPolicySpec, skipped](raw)
		*into = policyv1alpha1.ExportPolicy{TypeMeta: given.TypeMeta, ObjectMeta: given.Metadata.ObjectMeta, Spec: given.Spec}
		return err
	default:
		return json.Unmarshal(raw, into)
	}
}

// trimmed is an object without its managedFields.
type trimmed[Spec, Status any] struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		metav1.ObjectMeta
		ManagedFields skipped `json:"managedFields"` // hides that of ObjectMeta
	} `json:"metadata"`
	Spec   Spec   `json:"spec"`
	Status Status `json:"status"`
}

func read[Spec, Status any](raw []byte) (given trimmed[Spec, Status], err error) {
	err = json.Unmarshal(raw, &given)
	return given, err
}

// skipped is a field that is not read.
type skipped struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*skipped) UnmarshalJSON([]byte) error { return nil }

// typeOfService is as much of a Service as decides whether it is reviewed.
type typeOfService struct {
	Spec struct {
		Type corev1.ServiceType `json:"type"`
	} `json:"spec"`
}
