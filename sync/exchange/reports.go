// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// reasonPattern matches one word, which every reason of Comity is.
var reasonPattern = regexp.MustCompile(`^[A-Za-z]{1,64}$`)

// ImportRecordSpec returns the record to publish of report, which is about the
// export key.
func ImportRecordSpec(key types.NamespacedName, report model.Report) exchangev1alpha1.ImportRecordSpec {
	return exchangev1alpha1.ImportRecordSpec{
		Service:   exchangev1alpha1.ServiceReference{Namespace: key.Namespace, Name: key.Name},
		ExportUID: report.ExportUID,
		Imported:  report.Imported,
		Reason:    report.Reason,
		Message:   model.OneLine(report.Message, maxMessage),
		Since:     metav1.NewTime(report.Since.UTC().Truncate(time.Second)),
		Decider:   string(report.Decider),
	}
}

// FromImportRecord returns the report in record, which was read from cluster, and
// the export of this cluster that it is about. The error names the record, the
// field, the expected value and who has to act. The message of the report is the
// peer's text, made safe to show (model.OneLine); whether it is true is unknown.
func FromImportRecord(cluster model.ClusterID, record *exchangev1alpha1.ImportRecord) (types.NamespacedName, model.Report, error) {
	spec := &record.Spec
	problem := checkReference(record.Name, spec.Service)
	if problem == nil {
		problem = checkUID("spec.exportUID", spec.ExportUID)
	}
	if problem == nil {
		problem = checkReason(spec)
	}
	if problem != nil {
		return types.NamespacedName{}, model.Report{}, recordError("ImportRecord", cluster, record, problem)
	}
	report := model.Report{
		Cluster: cluster, ExportUID: spec.ExportUID, Imported: spec.Imported, Reason: spec.Reason,
		Message: model.OneLine(spec.Message, maxMessage), Since: plausible(spec.Since.Time),
	}
	if decider, err := model.ParseClusterID(spec.Decider); err == nil {
		report.Decider = decider
	}
	return types.NamespacedName{Namespace: spec.Service.Namespace, Name: spec.Service.Name}, report, nil
}

func checkReason(spec *exchangev1alpha1.ImportRecordSpec) *problem {
	if !reasonPattern.MatchString(spec.Reason) {
		return problemf("spec.reason", "%s is not a reason; expected one word of 1 to 64 letters", model.Quote(spec.Reason))
	}
	// An imported export can have another reason: some of its endpoints are left
	// out.
	if !spec.Imported && spec.Reason == model.ReasonImported {
		return problemf("spec.reason", "is %s while spec.imported is false; expected why the export is not imported", spec.Reason)
	}
	return nil
}

// recordError is the error of a peer's record that is not valid.
func recordError(kind string, cluster model.ClusterID, record metav1.Object, p *problem) error {
	return fmt.Errorf("%s %s/%s of cluster %s: %s: %s; it is ignored until cluster %s publishes a valid one",
		kind, model.Quote(record.GetNamespace()), model.Quote(record.GetName()), cluster, p.field, p.message, cluster)
}

// plausible returns the zero time for a time at which Comity cannot have run. The
// time is only shown, never compared.
func plausible(t time.Time) time.Time {
	if y := t.UTC().Year(); y < 2000 || y > 2098 {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Second)
}

// FromNamespaceRecord returns the identity labels of a namespace in record, which
// was read from cluster. The error names the record, the field, the expected value
// and who has to act.
func FromNamespaceRecord(cluster model.ClusterID, record *exchangev1alpha1.NamespaceRecord) (map[string]string, error) {
	labels := record.Spec.Labels
	if p := checkMap("spec.labels", labels, validation.IsQualifiedName, validation.IsValidLabelValue); p != nil {
		return nil, recordError("NamespaceRecord", cluster, record, p)
	}
	return labels, nil
}
