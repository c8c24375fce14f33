// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

// ExportInput is all that the status of a ServiceExport depends on. Nothing in
// it is changed.
type ExportInput struct {
	// Export is the object with the status that it has; never nil.
	Export *mcsv1beta1.ServiceExport
	// Service is the Service of its name; nil if there is none.
	Service *corev1.Service
	// Observation is what the sync loop found; nil before its first result.
	Observation *model.Observation
	// Verdict is the answer of the policies on the export as it is stored.
	Verdict decision.Verdict
	// Destinations are what the clusters in scope, without this one, report about importing
	// it; DestinationsKnown is false as long as it is not known where the export goes.
	Destinations      []model.Report
	DestinationsKnown bool
}

// Export is the conditions that Comity owns on a ServiceExport, as they should
// be: Valid, Ready, Conflict, Admitted, Available, in this order. For Available
// see availability.
//
//	                    Valid      Ready            Conflict      Admitted
//	no Service          NoService  Pending          NoConflicts   by verdict
//	ExternalName        Invalid…   Failed           NoConflicts   by verdict
//	itself an import    Invalid…   Failed           NoConflicts   by verdict
//	policy withholds it Valid      Failed           NoConflicts   PolicyDenied
//	policy will, later  Valid      Exported         by conflicts  PolicyDenied
//	published           Valid      Exported         by conflicts  Admitted…
//	not observed yet    by Service as it is         as it is      by verdict
//
// An export that is not valid, or withheld, is no constituent of any import: it
// conflicts with none, and Conflict=False says so. A condition about which nothing
// is known yet is left out, or stays as it is stored.
func Export(in ExportInput, now metav1.Time) []metav1.Condition {
	old := in.Export.Status.Conditions
	key := types.NamespacedName{Namespace: in.Export.Namespace, Name: in.Export.Name}
	valid := validity(key, in.Service)
	conditions := []metav1.Condition{valid}
	if in.Observation == nil {
		conditions = append(conditions, present(old, condition.TypeReady, condition.TypeConflict)...)
	} else {
		conditions = append(conditions, hold(old, readiness(key, in.Export.UID, valid, in.Observation), in.readinessIsSettled))
		conditions = append(conditions, hold(old, conflict(in.Observation), in.conflictIsSettled))
	}
	conditions = append(conditions, hold(old, admission(in), in.admissionIsSettled))
	conditions = append(conditions, availability(in)...)
	for i := range conditions {
		stamp(&conditions[i], old, in.Export.Generation, now)
	}
	return conditions
}

func validity(key types.NamespacedName, service *corev1.Service) metav1.Condition {
	if refused := model.CheckExportable(key, service); refused != nil {
		return condition.Valid(string(refused.Reason), refused.Message)
	}
	return condition.Valid(condition.ReasonValid, fmt.Sprintf("Service %s exists and can be exported", key))
}

func readiness(key types.NamespacedName, uid types.UID, valid metav1.Condition, seen *model.Observation) metav1.Condition {
	switch seen.Publication {
	case model.Published:
		return condition.Ready(condition.ReasonExported, published(seen.Scope)+troubles("; in this cluster: ", append(waits(key, uid, seen), seen.Problems...)))
	case model.PublicationWithheld:
		return condition.Ready(condition.ReasonFailed, cmp.Or(seen.Detail,
			"policy does not let this export be published; see condition Admitted"))
	case model.PublicationFailed:
		return condition.Ready(condition.ReasonFailed, cmp.Or(seen.Detail,
			"this export could not be published; the log of Comity's leader says why"))
	case model.PublicationNone:
		if valid.Reason == condition.ReasonInvalidServiceType {
			return condition.Ready(condition.ReasonFailed, fmt.Sprintf("Service %s cannot be exported; see condition Valid", key))
		}
	}
	if valid.Status != metav1.ConditionTrue {
		return condition.Ready(model.ReasonPending, fmt.Sprintf("waiting for Service %s; see condition Valid", key))
	}
	return condition.Ready(model.ReasonPending, cmp.Or(seen.Detail, "not published yet; Comity is working on it"))
}

// waits is the problem that the import of this cluster does not follow the export, because
// another one freezes it.
func waits(key types.NamespacedName, uid types.UID, seen *model.Observation) []model.Problem {
	f := seen.Freeze
	if !f.IsAwaited() || f.By.UID == uid {
		return nil
	}
	if by, _ := seen.Source(f.By.Cluster); by.Starting {
		return nil
	}
	return []model.Problem{{Reason: model.ReasonFrozen, Message: fmt.Sprintf(
		"the export of cluster %s decides the import, and is not read or missing; condition Frozen of ServiceImport %s has the command that ends it", f.By.Cluster, key)}}
}

func published(scope model.Scope) string {
	switch {
	case scope.All():
		return "published for every cluster of the clusterset"
	case scope.Empty():
		return fmt.Sprintf("published for no other cluster: %s on this ServiceExport and on its Namespace have none in common; widen one of them",
			model.AnnotationExportTo)
	}
	return "published for " + decision.Clusters(scope.Clusters())
}

// takesNoPart reports whether no import consists of the export.
func takesNoPart(seen *model.Observation) bool {
	return seen.Publication == model.PublicationNone || seen.Publication == model.PublicationWithheld
}

func conflict(seen *model.Observation) metav1.Condition {
	switch {
	case takesNoPart(seen):
		return condition.NoConflicts("this export is not part of any import, because it is not published")
	case len(seen.Conflicts) == 0:
		return condition.NoConflicts("all clusters that export this Service agree")
	}
	return condition.Conflict(seen.Conflicts)
}

func admission(in ExportInput) metav1.Condition {
	verdict, excluded := in.Verdict, decision.Clusters(in.Verdict.Excluded)
	denied, narrowed := "policy forbids this export: ", "this export is not published to "+excluded+", because policy forbids that: "
	if in.Observation != nil && !in.Observation.WithdrawnAt.IsZero() {
		until := moment(in.Observation.WithdrawnAt) + " unless it is corrected by then: "
		denied = "policy forbids this export, which will be withdrawn at " + until
		narrowed = "policy forbids this export to " + excluded + "; clusters that still read it lose it at " + until
	}
	switch {
	case verdict.Outcome == decision.Denied:
		return condition.Admitted(model.ReasonPolicyDenied, complaints(denied, verdict.Violations))
	case verdict.Outcome != decision.Allowed:
		return condition.Admitted(model.ReasonNotEvaluated,
			"the policies could not be evaluated, so nothing new is published: "+cmp.Or(verdict.Problem, "no policy engine answered"))
	case len(verdict.Excluded) > 0:
		return condition.Admitted(condition.ReasonClustersExcluded, complaints(narrowed, slices.Concat(verdict.Violations, verdict.Warnings)))
	case len(verdict.Warnings) > 0:
		return condition.Admitted(condition.ReasonAdmittedWithWarnings, complaints("", verdict.Warnings))
	}
	return condition.Admitted(condition.ReasonAdmitted, "every policy lets this export be published")
}

// complaints lists violations as far as they fit, and counts the rest.
func complaints(intro string, violations []decision.Violation) string {
	parts := make([]part, len(violations))
	for i, violation := range violations {
		parts[i] = part{intro + violation.String(), 1}
		intro = ""
	}
	return fit(intro, parts)
}
