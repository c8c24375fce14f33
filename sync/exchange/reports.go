// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
		Message:   model.OneLine(report.Message, model.MaxEventNote),
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
	var p problem
	p.checkIdentity(record.Name, spec.Service, spec.ExportUID)
	p.check(reasonPattern.MatchString(spec.Reason), "spec.reason", "%s is not a reason; expected one word of 1 to 64 letters", spec.Reason)
	// An imported export can have another reason: some of its endpoints are left out.
	p.check(spec.Imported || spec.Reason != model.ReasonImported,
		"spec.reason", "is %s while spec.imported is false; expected why the export is not imported", spec.Reason)
	if p.found() {
		return types.NamespacedName{}, model.Report{}, recordError("ImportRecord", cluster, record, p)
	}
	report := model.Report{
		Cluster: cluster, ExportUID: spec.ExportUID, Imported: spec.Imported, Reason: spec.Reason,
		Message: model.OneLine(spec.Message, model.MaxEventNote), Since: plausible(spec.Since.Time),
	}
	if decider, err := model.ParseClusterID(spec.Decider); err == nil {
		report.Decider = decider
	}
	return types.NamespacedName{Namespace: spec.Service.Namespace, Name: spec.Service.Name}, report, nil
}

// recordError is the error of a peer's record that is not valid.
func recordError(kind string, cluster model.ClusterID, record metav1.Object, p problem) error {
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
	var p problem
	if p.checkLabels("spec.labels", record.Spec.Labels); p.found() {
		return nil, recordError("NamespaceRecord", cluster, record, p)
	}
	return record.Spec.Labels, nil
}
