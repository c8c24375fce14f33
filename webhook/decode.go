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
		return json.Unmarshal(raw, &struct {
			*metav1.PartialObjectMetadata
			Metadata metadata `json:"metadata"`
		}{into, metadata{ObjectMeta: &into.ObjectMeta}})
	case *mcsv1beta1.ServiceExport:
		return json.Unmarshal(raw, &struct {
			*mcsv1beta1.ServiceExport
			Metadata metadata `json:"metadata"`
		}{into, metadata{ObjectMeta: &into.ObjectMeta}})
	case *corev1.Service:
		return json.Unmarshal(raw, &struct {
			*corev1.Service
			Metadata metadata `json:"metadata"`
		}{into, metadata{ObjectMeta: &into.ObjectMeta}})
	case *policyv1alpha1.ExportPolicy:
		return json.Unmarshal(raw, &struct {
			*policyv1alpha1.ExportPolicy
			Metadata metadata `json:"metadata"`
			Status   skipped  `json:"status"`
		}{into, metadata{ObjectMeta: &into.ObjectMeta}, skipped{}})
	default:
		return json.Unmarshal(raw, into)
	}
}

// metadata hides the metadata of the object beside which it is embedded.
type metadata struct {
	*metav1.ObjectMeta
	ManagedFields skipped `json:"managedFields"` // hides that of ObjectMeta
}

// skipped is a field that is not read.
type skipped struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*skipped) UnmarshalJSON([]byte) error { return nil }
