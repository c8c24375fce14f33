// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

func TestWhatSomebodyShouldLookAtIsAWarning(t *testing.T) {
	conflict := condition.Conflict("PortConflict", "m")
	cases := []struct {
		name, kind string
		condition  metav1.Condition
		want       string
	}{
		{"a valid export", "ServiceExport", condition.Valid(condition.ReasonValid, "m"), corev1.EventTypeNormal},
		{"a missing Service", "ServiceExport", condition.Valid(condition.ReasonNoService, "m"), corev1.EventTypeWarning},
		{"an export on its way", "ServiceExport", condition.Ready(model.ReasonPending, "m"), corev1.EventTypeNormal},
		{"a failed export", "ServiceExport", condition.Ready(condition.ReasonFailed, "m"), corev1.EventTypeWarning},
		{"a conflict", "ServiceExport", conflict, corev1.EventTypeWarning},
		{"the end of a conflict", "ServiceExport", condition.Conflict("NoConflicts", "m"), corev1.EventTypeNormal},
		{"a refusal", "ServiceExport", condition.Admitted(model.ReasonPolicyDenied, "m"), corev1.EventTypeWarning},
		{"a cluster that loses an export", "ServiceExport", condition.Admitted(condition.ReasonClustersExcluded, "m"), corev1.EventTypeWarning},
		{"warnings", "ServiceExport", condition.Admitted(condition.ReasonAdmittedWithWarnings, "m"), corev1.EventTypeWarning},
		{"no answer", "ServiceExport", condition.Admitted(model.ReasonNotEvaluated, "m"), corev1.EventTypeWarning},
		{"an export that all import", "ServiceExport", condition.Available(model.ReasonImported, "m"), corev1.EventTypeNormal},
		{"an export of which not all have reported", "ServiceExport", condition.Available(model.ReasonPending, "m"), corev1.EventTypeNormal},
		{"an export that is not published, as Ready says", "ServiceExport", condition.Available(condition.ReasonNotPublished, "m"), corev1.EventTypeNormal},
		{"an export that a cluster does not import", "ServiceExport", condition.Available("NamespaceMissing", "m"), corev1.EventTypeWarning},
		{"an import of which a cluster is lost", "ServiceImport", condition.SourcesAvailable(condition.ReasonLost, "m"), corev1.EventTypeWarning},
		{"an import of which all are back", "ServiceImport", condition.SourcesAvailable(condition.ReasonConnected, "m"), corev1.EventTypeNormal},
		{"an export that is missing", "ServiceImport", condition.SourceMissing(model.ReasonMissing, "m"), corev1.EventTypeWarning},
		{"a takeover that waits", "ServiceImport", condition.TakeoverHeld(model.ReasonTakeoverHeld, "m"), corev1.EventTypeWarning},
		{"an import that is frozen", "ServiceImport", condition.Frozen(string(model.SourceNotRead), "m"), corev1.EventTypeWarning},
		{"one that is for a minute", "ServiceImport", condition.Frozen(string(model.SourceEnded), "m"), corev1.EventTypeNormal},
		{"a working import", "ServiceImport", condition.ImportReady(condition.ReasonImportReady, "m"), corev1.EventTypeNormal},
		{"an import that cannot be", "ServiceImport", condition.ImportReady(model.ReasonNameTaken, "m"), corev1.EventTypeWarning},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := eventType(c.kind, c.condition); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestTheReasonOfAnEventIsCutBetweenReasons(t *testing.T) {
	long := strings.Repeat("x", 200)
	cases := []struct{ name, reason, want string }{
		{"one that fits", "PortConflict,TypeConflict", "PortConflict,TypeConflict"},
		{
			"more than fits",
			"PortConflict,TypeConflict,SessionAffinityConflict,SessionAffinityConfigConflict,LabelsConflict,AnnotationsConflict,InternalTrafficPolicyConflict",
			"PortConflict,TypeConflict,SessionAffinityConflict,SessionAffinityConfigConflict,LabelsConflict,AnnotationsConflict",
		},
		{"one word that is too long", long, long[:128]},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := eventReason(c.reason); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
