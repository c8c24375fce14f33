// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Record returns the record to publish of export. It does not name the cluster,
// because readers know it from the Peer.
func Record(export model.Export) exchangev1alpha1.ExportRecordSpec {
	out := exchangev1alpha1.ExportRecordSpec{
		Service:           exchangev1alpha1.ServiceReference(export.Key),
		ExportUID:         export.UID,
		ExportedAt:        metav1.NewTime(export.CreatedAt),
		ServiceProperties: export.ServiceProperties,
		Slices:            export.Slices,
		Targets:           export.Targets,
	}
	if export.Identity != nil {
		out.Namespace = &exchangev1alpha1.NamespaceRecordSpec{Labels: export.Identity}
	}
	return out
}

// WithdrawnRecord returns the record that states the withdrawal of the export that
// record published, with what the statement says: Suspended, Narrowed and since when.
func WithdrawnRecord(record exchangev1alpha1.ExportRecordSpec, says model.Withdrawal, at *metav1.Time) exchangev1alpha1.ExportRecordSpec {
	return exchangev1alpha1.ExportRecordSpec{
		Service: record.Service, ExportUID: record.ExportUID, ExportedAt: record.ExportedAt, ExportVersion: record.ExportVersion,
		ServiceProperties: model.ServiceProperties{Type: mcsv1beta1.ClusterSetIP}, // which the schema requires
		Withdrawn:         true, Suspended: says.Suspended, Narrowed: says.Narrowed, WithdrawnAt: at,
	}
}

// CheckRecord says what is wrong with record, which was read from cluster; nil if it
// publishes or withdraws an export. The error names the record, the field, the expected
// value and who has to act.
func CheckRecord(cluster model.ClusterID, record *exchangev1alpha1.ExportRecord) error {
	problem := checkRecord(record)
	return problem.in("ExportRecord", cluster, record)
}

// FromRecord returns the export in record, which was read from cluster. The error is that
// of CheckRecord, or says that record publishes none. The result shares maps and slices
// with record.
//
// A peer can publish a false age of its exports, and so win conflicts with other
// exports (KEP-1645: the oldest wins). A reader cannot detect that. Comparing the
// age with the local clock would not help, and clusters would resolve the same
// records differently.
func FromRecord(cluster model.ClusterID, record *exchangev1alpha1.ExportRecord) (model.Export, error) {
	if err := CheckRecord(cluster, record); err != nil {
		return model.Export{}, err
	}
	if record.Spec.Withdrawn {
		return model.Export{}, errors.New("the record states that the export is withdrawn")
	}
	spec := &record.Spec
	out := model.Export{
		SourceExport: model.SourceExport{
			Cluster: cluster, UID: spec.ExportUID, CreatedAt: age(spec.ExportedAt.Time), Scoped: record.Namespace != model.ExchangeNamespace(cluster),
		},
		ServiceProperties: spec.ServiceProperties,
		Key:               types.NamespacedName(spec.Service),
		Targets:           slices.Clone(spec.Targets),
		Slices:            spec.Slices,
	}
	for i := range out.Targets {
		out.Targets[i].Protocol = cmp.Or(out.Targets[i].Protocol, corev1.ProtocolTCP)
	}
	out.Labels, out.Annotations = model.Unreserved(spec.Labels), model.Unreserved(spec.Annotations)
	if spec.Namespace != nil {
		if out.Identity = spec.Namespace.Labels; out.Identity == nil {
			out.Identity = map[string]string{} // no labels are an identity, too
		}
	}
	return out, nil
}

// isIdentified reports whether it is known which export a record is about.
func isIdentified(record *exchangev1alpha1.ExportRecord) bool {
	var p problem
	p.checkIdentity(record.Name, record.Spec.Service, record.Spec.ExportUID)
	return !p.found()
}

// Withdrawals returns what records, read from cluster, state. Nil records, and those
// that state no withdrawal or are not valid, are skipped.
func Withdrawals(cluster model.ClusterID, records ...*exchangev1alpha1.ExportRecord) (out []model.Withdrawal) {
	for _, record := range records {
		if record == nil || !record.Spec.Withdrawn || CheckRecord(cluster, record) != nil {
			continue
		}
		spec := &record.Spec
		out = append(out, model.Withdrawal{
			UID: spec.ExportUID, CreatedAt: spec.ExportedAt.UTC().Truncate(time.Second), Suspended: spec.Suspended,
			Narrowed: spec.Narrowed && record.Namespace == model.ExchangeNamespace(cluster),
		})
	}
	return out
}

// Refusal returns what to report to the publisher if FromRecord refuses record. Of the
// record it holds only the UID, because it is published in an object of this
// cluster. It is nil if record is valid, does not name its export, or is nil.
func Refusal(record *exchangev1alpha1.ExportRecord) *model.Refusal {
	if record == nil || record.Spec.Withdrawn || !isIdentified(record) {
		return nil
	}
	problem := checkRecord(record)
	if !problem.found() {
		return nil
	}
	return &model.Refusal{ExportUID: record.Spec.ExportUID, Field: problem.field}
}

var (
	// firstExport is before any ServiceExport can have been created: KEP-1645 is
	// of 2020.
	firstExport = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	// ageUnknown is after every other time.
	ageUnknown = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
)

// age is the creation time with which conflicts are resolved. A time before
// firstExport comes from a clock that was not set, or is forged. It must not win, so
// such an export counts as the youngest. A time in the future wins no conflict.
func age(created time.Time) time.Time {
	created = created.UTC().Truncate(time.Second)
	if created.Before(firstExport) || created.After(ageUnknown) {
		return ageUnknown
	}
	return created
}

// reasonPattern matches one word, which every reason of Comity is.
var reasonPattern = regexp.MustCompile(`^[A-Za-z]{1,64}$`)

// ImportRecordSpec returns the record to publish of report, which is about the
// export key.
func ImportRecordSpec(key types.NamespacedName, report model.Report) exchangev1alpha1.ImportRecordSpec {
	return exchangev1alpha1.ImportRecordSpec{
		Service:   exchangev1alpha1.ServiceReference(key),
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
	if err := p.in("ImportRecord", cluster, record); err != nil {
		return types.NamespacedName{}, model.Report{}, err
	}
	report := model.Report{
		Cluster: cluster, ExportUID: spec.ExportUID, Imported: spec.Imported, Reason: spec.Reason,
		Message: model.OneLine(spec.Message, model.MaxEventNote), Since: spec.Since.UTC().Truncate(time.Second),
	}
	if decider, err := model.ParseClusterID(spec.Decider); err == nil {
		report.Decider = decider
	}
	return types.NamespacedName(spec.Service), report, nil
}

// FromNamespaceRecord returns the identity labels of a namespace in record, which
// was read from cluster. The error names the record, the field, the expected value
// and who has to act.
func FromNamespaceRecord(cluster model.ClusterID, record *exchangev1alpha1.NamespaceRecord) (map[string]string, error) {
	var p problem
	p.checkMap("spec.labels", record.Spec.Labels, true)
	if err := p.in("NamespaceRecord", cluster, record); err != nil {
		return nil, err
	}
	return record.Spec.Labels, nil
}

// LocalExport returns the export of cluster self that results from export and its
// Service, nil if there is none, with the ports that export selects; withSelector also with
// the selector of the Service, if it has one, and the targets of these ports, which importers
// that maintain selectors need. The error is what model.NotExportable says, or that of Ports.
func LocalExport(self model.ClusterID, export *mcsv1beta1.ServiceExport, service *corev1.Service, withSelector bool) (model.Export, error) {
	key := types.NamespacedName{Namespace: export.Namespace, Name: export.Name}
	if _, refused := model.NotExportable(key, service); refused != "" {
		return model.Export{}, errors.New(refused)
	}
	ports, _, err := Ports(export, service)
	if err != nil {
		return model.Export{}, err
	}
	spec := &service.Spec
	out := model.Export{
		SourceExport:      model.SourceExport{Cluster: self, UID: export.UID, CreatedAt: age(export.CreationTimestamp.Time)},
		Key:               key,
		ServiceProperties: *model.CopyFields(&model.ServiceProperties{}, spec),
	}
	out.Type, out.Ports, out.Selector = model.ImportType(service), ports.Exported(service), nil
	out.Labels, out.Annotations = model.Unreserved(export.Spec.ExportedLabels), model.Unreserved(export.Spec.ExportedAnnotations)
	// A value that is too long stays invalid when it is shortened.
	out.Tiers = model.OneLine(export.Annotations[model.AnnotationTiers], model.MaxTiersBytes+len("…"))
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		out.SessionAffinityConfig = nil
	}
	if withSelector && len(spec.Selector) > 0 {
		out.Selector, out.Targets = spec.Selector, targetsOf(service, out)
	}
	return out, nil
}

// Ports are those of service that export shares (model.AnnotationExportPorts). It
// fails if the annotation cannot be read, or names no port that the Service has: then
// nothing may be exported, because what is not named is never shared. missing says
// which of the names no port has.
func Ports(export *mcsv1beta1.ServiceExport, service *corev1.Service) (selection model.PortSelection, missing string, err error) {
	const consequence = "; it is exported nowhere until that is corrected"
	if selection, err = model.PortsOfExport(export); err != nil {
		return model.PortSelection{}, "", fmt.Errorf("%w"+consequence, err)
	}
	missing = selection.Missing(types.NamespacedName{Namespace: export.Namespace, Name: export.Name}, service)
	if missing != "" && len(selection.Exported(service)) == 0 {
		return model.PortSelection{}, "", errors.New(missing + consequence)
	}
	return selection, missing, nil
}

// targetsOf are the targets of those ports of service that export shares.
func targetsOf(service *corev1.Service, export model.Export) (out []model.Target) {
	for _, port := range service.Spec.Ports {
		if slices.ContainsFunc(export.Ports, func(p mcsv1beta1.ServicePort) bool { return p.Name == port.Name }) {
			out = append(out, model.Target{ // with the API's defaults
				Port: port.Port, Protocol: cmp.Or(port.Protocol, corev1.ProtocolTCP), TargetPort: cmp.Or(port.TargetPort, intstr.FromInt32(port.Port)),
			})
		}
	}
	return out
}

// NamespaceProblem says why self cannot publish in the exchange namespace called
// name, nil if it does not exist; "" if it can. The agent may not create it:
// kubectl comity join does, together with its Roles.
func NamespaceProblem(self model.ClusterID, name string, namespace *corev1.Namespace) string {
	switch {
	case namespace == nil:
		return fmt.Sprintf("exchange namespace %s does not exist; run kubectl comity join", name)
	case namespace.DeletionTimestamp != nil:
		return fmt.Sprintf("exchange namespace %s is being deleted; run kubectl comity join once it is gone", name)
	case namespace.Labels[model.LabelExchangeFrom] != string(self):
		return fmt.Sprintf("namespace %s, label %s: is %q; expected %q; run kubectl comity join, or remove the namespace",
			name, model.LabelExchangeFrom, namespace.Labels[model.LabelExchangeFrom], self)
	}
	return ""
}

// ReservedNamespace reports whether nothing is imported into the namespace,
// whatever a peer publishes: it is one of Kubernetes' own.
func ReservedNamespace(name string) bool { return strings.HasPrefix(name, "kube-") }
