// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
)

func TestWhatSomebodyShouldLookAtIsAWarning(t *testing.T) {
	conflict := condition.Conflict([]mcsv1beta1.ServiceExportConditionReason{mcsv1beta1.ServiceExportReasonPortConflict}, "m")
	cases := []struct {
		name      string
		condition metav1.Condition
		want      string
	}{
		{"a valid export", condition.Valid(condition.ReasonValid, "m"), corev1.EventTypeNormal},
		{"a missing Service", condition.Valid(condition.ReasonNoService, "m"), corev1.EventTypeWarning},
		{"an export on its way", condition.Ready(condition.ReasonPending, "m"), corev1.EventTypeNormal},
		{"a failed export", condition.Ready(condition.ReasonFailed, "m"), corev1.EventTypeWarning},
		{"a conflict", conflict, corev1.EventTypeWarning},
		{"the end of a conflict", condition.NoConflicts("m"), corev1.EventTypeNormal},
		{"a refusal", condition.Admitted(condition.ReasonPolicyDenied, "m"), corev1.EventTypeWarning},
		{"warnings", condition.Admitted(condition.ReasonAdmittedWithWarnings, "m"), corev1.EventTypeWarning},
		{"no answer", condition.Admitted(condition.ReasonNotEvaluated, "m"), corev1.EventTypeWarning},
		{"a working import", condition.ImportReady(condition.ReasonImportReady, "m"), corev1.EventTypeNormal},
		{"an import that cannot be", condition.ImportReady(condition.ReasonNameTaken, "m"), corev1.EventTypeWarning},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := eventType(c.condition); got != c.want {
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
