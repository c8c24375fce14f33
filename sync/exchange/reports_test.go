// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

func aReport() model.Report {
	return model.Report{
		Cluster: "b", ExportUID: "u-1", Reason: model.ReasonNamespaceMissing,
		Message: "Namespace shop does not exist in cluster b; create it there", Since: created,
	}
}

func anImportRecord() *exchangev1alpha1.ImportRecord {
	return &exchangev1alpha1.ImportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: "comity-b-to-a", Name: "web.shop"}, Spec: ImportRecordSpec(web, aReport()),
	}
}

func TestAReportArrivesAsItWasSent(t *testing.T) {
	imported := aReport()
	imported.Imported, imported.Reason, imported.Message, imported.Decider = true, model.ReasonImported, "", "c"
	inPart := aReport()
	inPart.Imported, inPart.Reason, inPart.Message = true, model.ReasonAddressOverlap, "10.1.0.1 is left out"
	for _, want := range []model.Report{aReport(), imported, inPart} {
		record := anImportRecord()
		record.Spec = ImportRecordSpec(web, want)
		key, got, err := FromImportRecord("b", record)
		if err != nil || key != web {
			t.Fatalf("%v, %v", key, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestAnImportRecordIsNotBelieved(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*exchangev1alpha1.ImportRecord)
		field string
	}{
		{"another's name", func(r *exchangev1alpha1.ImportRecord) { r.Name = "other.shop" }, "metadata.name"},
		{"a namespace that is a path", func(r *exchangev1alpha1.ImportRecord) { r.Spec.Service.Namespace = "../shop" }, "spec.service.namespace"},
		{"a namespace of the cluster", func(r *exchangev1alpha1.ImportRecord) {
			r.Spec.Service.Namespace, r.Name = "kube-system", "web.kube-system"
		}, "spec.service.namespace"},
		{"a name with markup", func(r *exchangev1alpha1.ImportRecord) { r.Spec.Service.Name = "<b>" }, "spec.service.name"},
		{"no UID", func(r *exchangev1alpha1.ImportRecord) { r.Spec.ExportUID = "" }, "spec.exportUID"},
		{"no reason", func(r *exchangev1alpha1.ImportRecord) { r.Spec.Reason = "" }, "spec.reason"},
		{"a reason of two words", func(r *exchangev1alpha1.ImportRecord) { r.Spec.Reason = "All fine" }, "spec.reason"},
		{"a reason with a line break at its end", func(r *exchangev1alpha1.ImportRecord) { r.Spec.Reason = "Fine\n" }, "spec.reason"},
		{"a reason too long", func(r *exchangev1alpha1.ImportRecord) { r.Spec.Reason = strings.Repeat("x", 65) }, "spec.reason"},
		{"not imported and yet", func(r *exchangev1alpha1.ImportRecord) { r.Spec.Reason = model.ReasonImported }, "spec.reason"},
	} {
		t.Run(c.name, func(t *testing.T) {
			record := anImportRecord()
			c.spoil(record)
			_, _, err := FromImportRecord("b", record)
			if err == nil {
				t.Fatal("it is accepted")
			}
			for _, part := range []string{"ImportRecord", "cluster b", c.field + ": ", "expected"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the message %q lacks %q", err, part)
				}
			}
			fitForATerminal(t, err.Error(), 700)
		})
	}
}

// fitForATerminal fails if text holds more than one line of printable UTF-8.
func fitForATerminal(t testing.TB, text string, bytes int) {
	t.Helper()
	bad := func(r rune) bool { return !unicode.IsPrint(r) }
	if len(text) > bytes || !utf8.ValidString(text) || strings.ContainsFunc(text, bad) {
		t.Errorf("not fit to be shown, with %d bytes: %q", len(text), text)
	}
}

func TestAMessageIsMadeFit(t *testing.T) {
	for _, in := range []string{strings.Repeat("x", 5<<10), strings.Repeat("\xff\x00", 5<<10), strings.Repeat("ü", 1<<20), strings.Repeat("\u202e", 4<<10)} {
		record := anImportRecord()
		record.Spec.Message = in
		_, report, err := FromImportRecord("b", record)
		if err != nil {
			t.Fatal(err)
		}
		fitForATerminal(t, report.Message, 1024)
	}
}

func TestADeciderThatIsNoClusterIsNotKnown(t *testing.T) {
	for _, in := range []string{"", "a b", "\x1b[31m", strings.Repeat("x", 64)} {
		record := anImportRecord()
		record.Spec.Decider = in
		if _, report, err := FromImportRecord("b", record); err != nil || report.Decider != "" {
			t.Errorf("%q: got %q, %v", in, report.Decider, err)
		}
	}
}

func TestWhatAMemberSaysOfItsNamespaces(t *testing.T) {
	record := func(labels map[string]string) *exchangev1alpha1.NamespaceRecord {
		return &exchangev1alpha1.NamespaceRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: "comity-b", Name: "shop"}, Spec: exchangev1alpha1.NamespaceRecordSpec{Labels: labels},
		}
	}
	labels, err := FromNamespaceRecord("b", record(map[string]string{"example.com/team": "a"}))
	if err != nil || labels["example.com/team"] != "a" {
		t.Errorf("got %v, %v", labels, err)
	}
	if labels, err := FromNamespaceRecord("b", record(nil)); err != nil || len(labels) > 0 {
		t.Errorf("without labels: got %v, %v", labels, err)
	}
	many := map[string]string{}
	for i := range 10_000 {
		many[fmt.Sprint("label-", i)] = "x"
	}
	for name, bad := range map[string]map[string]string{
		"too many": many, "a bad key": {"a\x1b": "b"}, "a bad value": {"a": "b\nc"}, "a long value": {"a": strings.Repeat("x", 1<<20)},
	} {
		labels, err := FromNamespaceRecord("b", record(bad))
		if err == nil || labels != nil || !strings.Contains(err.Error(), `NamespaceRecord "comity-b"/"shop" of cluster b: spec.labels: `) {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		fitForATerminal(t, err.Error(), 700)
	}
}
