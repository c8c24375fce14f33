// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// verdictsOf are verdicts by source cluster: the letter a, d or n, for Allowed, Denied
// and NotEvaluated, after each id.
func verdictsOf(text string) map[model.ClusterID]decision.Verdict {
	out := map[model.ClusterID]decision.Verdict{}
	for _, item := range strings.Fields(text) {
		verdict := decision.Verdict{Outcome: decision.Allowed}
		switch item[1] {
		case 'd':
			verdict = decision.Verdict{Outcome: decision.Denied, Violations: []decision.Violation{{Policy: "p", Message: "no imports from " + item[:1], Remedy: "Ask."}}}
		case 'n':
			verdict = decision.Verdict{Problem: "policy p cannot be used as it is stored"}
		}
		out[model.ClusterID(item[:1])] = verdict
	}
	return out
}

// What policies of the importer say of two sources: c, whose export was read, and d,
// which contributes.
func TestBothSidesMustAllowAnImport(t *testing.T) {
	c, d := publishedBy("c", 10, "http"), publishedBy("d", 20, "http")
	held := func(v *ImportView) { unread("d")(v); v.Members[2].Synced, v.Held = true, []model.Hold{{Cluster: "d"}} }
	for name, tc := range map[string]struct {
		verdicts string // nil map if empty
		from     string // comity.dev/import-from; not set if empty
		change   func(*ImportView)
		resolved string
		kept     string
		problems string
	}{
		"there are no policies":                      {resolved: "c d"},
		"both are allowed":                           {verdicts: "ca da", resolved: "c d"},
		"the new one is denied":                      {verdicts: "cd da", resolved: "d", problems: "PolicyDenied c"},
		"the one that stands is denied":              {verdicts: "ca dd", resolved: "c", problems: "PolicyDenied d"},
		"both are denied":                            {verdicts: "cd dd", problems: "PolicyDenied c, PolicyDenied d"},
		"the new one is not evaluated":               {verdicts: "cn da", resolved: "d", problems: "NotEvaluated c"},
		"the one that stands is not evaluated":       {verdicts: "ca dn", resolved: "c", kept: "d", problems: "NotEvaluated d"},
		"nobody asked":                               {verdicts: "ca", resolved: "c", kept: "d", problems: "NotEvaluated d"},
		"it stands, was not read, and is denied":     {verdicts: "ca dd", change: unread("d"), resolved: "c", problems: "PolicyDenied d"},
		"it stands, was not read, and is allowed":    {verdicts: "ca da", change: unread("d"), resolved: "c", kept: "d"},
		"it stands, was not read nor evaluated":      {verdicts: "ca dn", change: unread("d"), resolved: "c", kept: "d"},
		"it is held, and denied":                     {verdicts: "ca dd", change: held, resolved: "c", problems: "PolicyDenied d"},
		"it is held, and not evaluated":              {verdicts: "ca dn", change: held, resolved: "c", kept: "d"},
		"the annotation lists both":                  {from: "c, d", resolved: "c d"},
		"the annotation lists the new one":           {from: "c", resolved: "c", problems: "PolicyDenied d"},
		"the annotation lists the other":             {from: "d", resolved: "d", problems: "PolicyDenied c"},
		"the annotation lists neither":               {from: "x", problems: "PolicyDenied c, PolicyDenied d"},
		"it lists one that was not read":             {from: "c", change: unread("d"), resolved: "c", problems: "PolicyDenied d"},
		"it cannot be read":                          {from: "c,,d", kept: "d", problems: "NotEvaluated c, NotEvaluated d"},
		"it cannot be read, and a policy denies":     {from: "c,,d", verdicts: "cd da", kept: "d", problems: "PolicyDenied c, NotEvaluated d"},
		"it is empty":                                {from: " ", kept: "d", problems: "NotEvaluated c, NotEvaluated d"},
		"annotation and policy must both allow":      {from: "c", verdicts: "cd da", problems: "PolicyDenied c, PolicyDenied d"},
		"another implementation imports":             {from: "x", verdicts: "cd dd", change: func(v *ImportView) { v.ImportDisabled = true }, resolved: "c d"},
		"what is not accepted is said by the report": {verdicts: "cd da", change: func(v *ImportView) { v.NotAccepted = []model.ClusterID{"c"} }, resolved: "d"},
	} {
		t.Run(name, func(t *testing.T) {
			v := takeoverView(importedFrom(d), c, d)
			v.TakeoverHold = 0
			if tc.verdicts != "" {
				v.Verdicts = verdictsOf(tc.verdicts)
			}
			if tc.from != "" {
				v.Local.Namespace.Annotations = map[string]string{model.AnnotationImportFrom: tc.from}
			}
			if tc.change != nil {
				tc.change(&v)
			}
			got := Import(v)
			var resolved, kept, problems []string
			if got.Finding.Resolved != nil {
				for _, c := range got.Finding.Resolved.Constituents {
					resolved = append(resolved, string(c.Cluster))
				}
			}
			for _, id := range got.Plan.Unsynced {
				kept = append(kept, string(id))
			}
			for _, p := range got.Finding.Problems {
				problems = append(problems, p.Reason+" "+string(p.Cluster))
			}
			want := []string{tc.resolved, tc.kept, tc.problems}
			if diff := cmp.Diff(want, []string{strings.Join(resolved, " "), strings.Join(kept, " "), strings.Join(problems, ", ")}); diff != "" {
				t.Errorf("resolved, kept, problems (-want +got):\n%s", diff)
			}
			if retry := got.Again(v.Now); (retry > 0) != strings.Contains(tc.problems, "NotEvaluated") || retry > time.Minute {
				t.Errorf("decided again after %s", retry)
			}
		})
	}
}

func TestTheOwnExportIsLimitedByNoImportPolicy(t *testing.T) {
	v := exportedHere()
	v.Verdicts = verdictsOf("bd")
	v.Local.Namespace.Annotations = map[string]string{model.AnnotationImportFrom: "x"}
	d := Import(v)
	if d.Finding.Resolved == nil || len(d.Finding.Resolved.Constituents) != 1 || d.Finding.Resolved.Constituents[0].Cluster != "a" || len(d.Finding.Problems) != 1 {
		t.Errorf("%+v", d.Finding)
	}
}

func TestADeniedExportThatIsMissingIsNotHeld(t *testing.T) {
	d := publishedBy("d", 20, "http")
	v := takeoverView(importedFrom(d))
	v.Verdicts = verdictsOf("da")
	standing := Standing(v.Current, v.Self)
	if got := Missing(standing, nil, nil, v.Members, v.Refused()); len(got) != 1 {
		t.Errorf("allowed: %v is missing", got)
	}
	v.Verdicts = verdictsOf("dd")
	if got := Missing(standing, nil, nil, v.Members, v.Refused()); len(got) != 0 {
		t.Errorf("denied: %v is missing", got)
	}
}

// What the exporter reads of it.
func TestWhatPoliciesKeepOutIsReported(t *testing.T) {
	c, d := publishedBy("c", 10, "http"), publishedBy("d", 20, "http")
	for name, tc := range map[string]struct {
		verdicts, from, source string
		imported               bool
		reason, message        string
	}{
		"denied":                          {verdicts: "cd da", source: "c", reason: "PolicyDenied", message: "the export of cluster c is not imported: [p] no imports from c. Remedy: Ask."},
		"denied, though it stands":        {verdicts: "ca dd", source: "d", reason: "PolicyDenied", message: "[p] no imports from d. Remedy: Ask."},
		"not listed":                      {from: "d", source: "c", reason: "PolicyDenied", message: "Namespace shop, annotation comity.dev/import-from: it does not list cluster c; to import from there, add it"},
		"not evaluated":                   {verdicts: "cn da", source: "c", reason: "NotEvaluated", message: "cluster b could not evaluate whether it may import the export"},
		"not evaluated, and it stands":    {verdicts: "ca dn", source: "d", imported: true, reason: "NotEvaluated", message: "what it imported before stays"},
		"the annotation cannot be read":   {from: "c,,d", source: "c", reason: "NotEvaluated", message: "annotation comity.dev/import-from of Namespace shop there"},
		"another is denied":               {verdicts: "cd da", source: "d", imported: true, reason: "Imported"},
		"a policy warns: nothing to tell": {verdicts: "cw da", source: "c", imported: true, reason: "Imported"},
	} {
		t.Run(name, func(t *testing.T) {
			v := takeoverView(importedFrom(d), c, d)
			if tc.verdicts != "" {
				v.Verdicts = verdictsOf(tc.verdicts)
			}
			if tc.from != "" {
				v.Local.Namespace.Annotations = map[string]string{model.AnnotationImportFrom: tc.from}
			}
			if strings.Contains(tc.verdicts, "w") {
				v.Verdicts["c"] = decision.Verdict{Outcome: decision.Allowed, Warnings: []decision.Violation{{Policy: "p", Message: "old"}}}
			}
			found := Import(v).Finding
			seen := &model.Observation{Import: found.Resolved, Problems: found.Problems, Sources: found.Sources}
			got := Report(ReportView{
				Key: web, Self: "b", Namespace: NamespaceReady, Members: v.Members, Exports: v.Exports, Observation: seen,
				PartlyImported: map[model.ClusterID]bool{"c": true, "d": true},
			}).Desired[fmt.Sprintf("comity-b-to-%s", tc.source)]
			if got.Imported != tc.imported || got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) || strings.Contains(got.Message, "c,,d") {
				t.Errorf("reported %+v", got)
			}
		})
	}
}

func TestAWarningIsAProblemOfTheImport(t *testing.T) {
	c := publishedBy("c", 10, "http")
	v := takeoverView(importedFrom(c), c)
	v.Verdicts = map[model.ClusterID]decision.Verdict{"c": {Outcome: decision.Allowed, Warnings: []decision.Violation{{Policy: "p", Message: "old", Softening: decision.ByImported}}}}
	got := Import(v).Finding.Problems
	want := []model.Problem{{Reason: "PolicyWarning", Message: "the export of cluster c: [p] would be refused if it were not imported already: old."}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A policy may quote what another cluster wrote, and object a thousand times.
func TestTheMessageOfAPolicyIsBound(t *testing.T) {
	v := takeoverView(nil, publishedBy("c", 10, "http"))
	verdict := decision.Verdict{Outcome: decision.Denied}
	for n := range 1000 {
		verdict.Violations = append(verdict.Violations, decision.Violation{Policy: "p", Message: fmt.Sprintf("no %d \x1b[2J\nnow", n)})
	}
	v.Verdicts = map[model.ClusterID]decision.Verdict{"c": verdict}
	got := Import(v).Finding.Problems
	if len(got) != 1 || len(got[0].Message) > 1024 || strings.ContainsAny(got[0].Message, "\x1b\n") {
		t.Errorf("%q", got)
	}
}

// exportedHere is the view of cluster a, which exports the Service, and of cluster b,
// which does so too.
func exportedHere() ImportView {
	return ImportView{
		Self: "a", ComityNamespace: "comity-system", Members: []model.Member{{ID: "b", Synced: true}}, Exports: []model.Export{publishedBy("b", 10, "http")},
		Local: LocalExport{
			Key:       web,
			Export:    &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}},
			Service:   &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
			Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
			Slices:    []*discoveryv1.EndpointSlice{{AddressType: "IPv4"}},
			Verdict:   decision.Verdict{Outcome: decision.Allowed},
		},
	}
}
