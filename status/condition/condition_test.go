// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package condition

import (
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/model"
)

func TestConstructorsGiveWhatTheTableSays(t *testing.T) {
	made := []metav1.Condition{
		Valid(ReasonValid, ""), Valid(ReasonNoService, ""), Valid(ReasonInvalidServiceType, ""),
		Ready(ReasonExported, ""), Ready(model.ReasonPending, ""), Ready(ReasonFailed, ""),
	}
	for _, reason := range conflicts {
		made = append(made, Conflict(reason, ""))
	}
	made = append(made,
		Conflict("NoConflicts", ""),
		Admitted(ReasonAdmitted, ""), Admitted(ReasonAdmittedWithWarnings, ""), Admitted(ReasonClustersExcluded, ""),
		Admitted(model.ReasonPolicyDenied, ""), Admitted(model.ReasonNotEvaluated, ""),
		Available(model.ReasonImported, ""), Available(ReasonDecidersDiffer, ""), Available(model.ReasonPending, ""),
		Available(ReasonNotPublished, ""), Available(ReasonNoDestinations, ""),
	)
	for _, reason := range []string{
		"NamespaceMissing", "PolicyDenied", "NotEvaluated", "NamespaceMismatch", "NamespaceUnknown", "NamespaceNotAccepted", "NameTaken", "ForeignImport", "AddressOverlap", "AddressNotAccepted",
		"IPFamilyNotSupported", "Refused", "LimitExceeded", "ImportDisabled", "InvalidRecord", "Unreachable", "Lost", "UnknownCluster",
		"NamespaceReserved", "TypeChanged", "InvalidEndpoints", "Contested", "InvalidAnnotation", "TooManyZones", "TakeoverHeld", "SliceMissing", "Frozen", "NotImported",
	} {
		made = append(made, Available(reason, ""))
	}
	made = append(made,
		ImportReady(ReasonImportReady, ""), ImportReady(model.ReasonPending, ""),
		ImportReady(model.ReasonNamespaceMismatch, ""), ImportReady(model.ReasonNameTaken, ""), ImportReady(model.ReasonForeignImport, ""), ImportReady(model.ReasonAddressOverlap, ""),
		ImportReady(model.ReasonAddressNotAccepted, ""), ImportReady(model.ReasonIPFamilyNotSupported, ""), ImportReady(model.ReasonRefused, ""), ImportReady(model.ReasonLimitExceeded, ""),
		ImportReady(model.ReasonTypeChanged, ""), ImportReady(model.ReasonInvalidEndpoints, ""), ImportReady(model.ReasonContested, ""),
		ImportReady(model.ReasonInvalidAnnotation, ""), ImportReady(model.ReasonTooManyZones, ""),
		ImportReady(model.ReasonSliceMissing, ""),
		SourcesAvailable(ReasonConnected, ""), SourcesAvailable(ReasonLaterTier, ""), SourcesAvailable(ReasonDrained, ""), SourcesAvailable(model.ReasonPending, ""),
		SourcesAvailable(ReasonLost, ""), SourcesAvailable(ReasonWithdrawn, ""),
		SourceMissing(model.ReasonMissing, ""), Frozen(string(model.SourceNotRead), ""), Frozen(string(model.SourceMissing), ""), Frozen(string(model.SourceEnded), ""),
		Frozen(string(model.SourceSuspended), ""), Frozen(string(model.SourceRefused), ""), TakeoverHeld(model.ReasonTakeoverHeld, ""),
	)
	var want []metav1.Condition
	for _, r := range table {
		for _, reason := range r.reasons {
			want = append(want, metav1.Condition{Type: r.typ, Status: r.status, Reason: reason})
		}
	}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Error(diff)
	}
}

func TestAReasonOfAnotherVersionIsNoReasonOfOurs(t *testing.T) {
	for _, reason := range []string{"", "SolarFlare", "no word at all\n", "Connected"} {
		if got := Available(reason, "m"); got.Reason != "NotImported" || got.Status != metav1.ConditionFalse {
			t.Errorf("%q became %s/%s", reason, got.Status, got.Reason)
		}
	}
}

func TestMessagesAreBoundAndStayText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 2000, -1).Draw(t, "text")
		got := Valid(ReasonValid, text).Message
		switch {
		case len(got) > MaxMessage:
			t.Errorf("%d bytes", len(got))
		case utf8.ValidString(text) && !utf8.ValidString(got):
			t.Errorf("cut within a rune: %q", got)
		case len(text) <= MaxMessage && got != text:
			t.Errorf("%q became %q", text, got)
		}
	})
}

func TestQuietStatesAreNeitherNewsNorWarnings(t *testing.T) {
	cases := []struct {
		name      string
		kind      string
		condition metav1.Condition
		want      bool
	}{
		{"an export without conflicts", kindExport, Conflict("NoConflicts", "m"), true},
		{"an export on its way", kindExport, Ready(model.ReasonPending, "m"), true},
		{"an export that is out", kindExport, Ready(ReasonExported, "m"), false},
		{"a missing Service", kindExport, Valid(ReasonNoService, "m"), false},
		{"an import that works", kindImport, ImportReady(ReasonImportReady, "m"), true},
		{"somebody else's condition", kindExport, metav1.Condition{Type: "Other", Status: metav1.ConditionTrue, Reason: "Valid"}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := Quiet(c.kind, c.condition); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}

func TestReasonsInMetricsAreThoseOfTheTable(t *testing.T) {
	for _, test := range []struct {
		kind string
		c    metav1.Condition
		want []string
	}{
		{kindExport, Valid(ReasonNoService, ""), []string{ReasonNoService}},
		{kindExport, Conflict("PortConflict,TypeConflict", ""), []string{"PortConflict", "TypeConflict"}},
		{kindImport, Frozen(string(model.SourceMissing), ""), []string{"Missing"}},
		{kindExport, metav1.Condition{Type: TypeReady, Status: no, Reason: "HitAnIceberg"}, []string{otherReason}},
		{kindExport, metav1.Condition{Type: TypeConflict, Status: yes, Reason: "A,B,PortConflict"}, []string{otherReason, "PortConflict"}},
		{kindExport, metav1.Condition{Type: TypeReady, Status: no, Reason: ReasonExported}, []string{otherReason}},
		{kindExport, metav1.Condition{Type: "example.com/Audited", Status: yes, Reason: "Done"}, nil},
		{kindImport, Valid(ReasonValid, ""), nil},
	} {
		if diff := cmp.Diff(test.want, Reasons(test.kind, test.c)); diff != "" {
			t.Errorf("%s %+v (-want +got):\n%s", test.kind, test.c, diff)
		}
	}
}
