// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// invalidType is the type of a record that BoundRecord reduced. No valid record has it.
const invalidType mcsv1beta1.ServiceImportType = "comity.dev/invalid"

// BoundRecord returns what a reader uses of a peer's record: of its metadata what
// identifies it; of one that states a withdrawal, that; of one that is not valid, the
// export and the first problem, which FromRecord and Refusal return for the result as for
// record. In memory, thousands of empty ports take many times as much as in a response.
func BoundRecord(record *exchangev1alpha1.ExportRecord) *exchangev1alpha1.ExportRecord {
	out := &exchangev1alpha1.ExportRecord{
		TypeMeta: record.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: record.Namespace, Name: record.Name, UID: record.UID, ResourceVersion: record.ResourceVersion,
			Generation: record.Generation, CreationTimestamp: record.CreationTimestamp, DeletionTimestamp: record.DeletionTimestamp,
		},
		Spec: record.Spec,
	}
	out.Spec.ExportVersion, out.Spec.Lost = "", false // the publisher's own
	if record.Spec.Withdrawn {
		out.Spec = WithdrawnRecord(out.Spec, model.Withdrawal{Suspended: record.Spec.Suspended, Narrowed: record.Spec.Narrowed}, nil)
		return out
	}
	problem := checkRecord(out) // without annotations, which may be those of a reduced record
	if !problem.found() {
		return out
	}
	out.Spec = exchangev1alpha1.ExportRecordSpec{Type: invalidType}
	if isIdentified(record) {
		out.Spec.Service, out.Spec.ExportUID = record.Spec.Service, record.Spec.ExportUID
	}
	out.Annotations = map[string]string{model.AnnotationInvalidRecord: problem.field + "\n" + problem.message}
	return out
}

// notedProblem is the problem of a record that BoundRecord reduced; none for another one.
func notedProblem(record *exchangev1alpha1.ExportRecord) (noted problem) {
	if record.Spec.Type == invalidType {
		noted.field, noted.message, _ = strings.Cut(record.Annotations[model.AnnotationInvalidRecord], "\n")
	}
	return noted
}
