// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/exchange"
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

// cAndD is the story in which d is imported, and c joins.
func cAndD(t *testing.T) *story {
	s := newStory(t, "c", "d")
	s.publishes("d", at(-20))
	s.step()
	s.after(time.Hour)
	s.publishes("c", at(-10))
	return s
}

// verdicts are those of policies: see verdictsOf. There are none if text is empty.
func (s *story) verdicts(text string) {
	verdicts := verdictsOf(text)
	for i := range s.v.Peers {
		if verdict := verdicts[s.v.Peers[i].ID]; text != "" {
			s.v.Peers[i].Verdict = &verdict
		}
	}
}

// What policies of the importer say of two sources: c, whose export was read, and d,
// which contributes.
func TestBothSidesMustAllowAnImport(t *testing.T) {
	unread := func(s *story) { s.unread("d") }
	missing := func(s *story) { s.loses("d") }
	for name, tc := range map[string]struct {
		verdicts string // nil map if empty
		from     string // comity.dev/import-from; not set if empty
		change   func(*story)
		resolved string
		kept     string
		problems string
	}{
		"there are no policies":                        {resolved: "c d"},
		"both are allowed":                             {verdicts: "ca da", resolved: "c d"},
		"the new one is denied":                        {verdicts: "cd da", resolved: "d", problems: "PolicyDenied c"},
		"the one that stands is denied":                {verdicts: "ca dd", resolved: "c", problems: "PolicyDenied d"},
		"both are denied":                              {verdicts: "cd dd", problems: "PolicyDenied c, PolicyDenied d"},
		"the new one is not evaluated":                 {verdicts: "cn da", resolved: "d", problems: "NotEvaluated c"},
		"the one that stands is not evaluated":         {verdicts: "ca dn", resolved: "c", kept: "d", problems: "NotEvaluated d"},
		"nobody asked":                                 {verdicts: "ca", resolved: "c", kept: "d", problems: "NotEvaluated d"},
		"it stands, was not read, and is denied":       {verdicts: "ca dd", change: unread, resolved: "c", problems: "PolicyDenied d"},
		"it stands, was not read, and is allowed":      {verdicts: "ca da", change: unread, resolved: "c", kept: "d"},
		"it stands, was not read nor evaluated":        {verdicts: "ca dn", change: unread, resolved: "c", kept: "d"},
		"it is missing, and denied":                    {verdicts: "ca dd", change: missing, resolved: "c", problems: "PolicyDenied d"},
		"it is missing, and not evaluated":             {verdicts: "ca dn", change: missing, resolved: "c", kept: "d"},
		"the annotation lists both":                    {from: "c, d", resolved: "c d"},
		"the annotation lists the new one":             {from: "c", resolved: "c", problems: "PolicyDenied d"},
		"the annotation lists the other":               {from: "d", resolved: "d", problems: "PolicyDenied c"},
		"the annotation lists neither":                 {from: "x", problems: "PolicyDenied c, PolicyDenied d"},
		"it lists one that was not read":               {from: "c", change: unread, resolved: "c", problems: "PolicyDenied d"},
		"it cannot be read":                            {from: "c,,d", kept: "d", problems: "NotEvaluated c, NotEvaluated d"},
		"it cannot be read, and a policy denies":       {from: "c,,d", verdicts: "cd da", kept: "d", problems: "PolicyDenied c, NotEvaluated d"},
		"it is empty":                                  {from: " ", kept: "d", problems: "NotEvaluated c, NotEvaluated d"},
		"annotation and policy must both allow":        {from: "c", verdicts: "cd da", problems: "PolicyDenied c, PolicyDenied d"},
		"another implementation imports":               {from: "x", verdicts: "cd dd", change: func(s *story) { s.v.ImportDisabled = true }, resolved: "c d"},
		"a namespace that is not accepted comes first": {verdicts: "ca dd", change: func(s *story) { s.peer("d").NotAccepted = true }, resolved: "c", problems: "NamespaceNotAccepted d"},
	} {
		t.Run(name, func(t *testing.T) {
			s := cAndD(t)
			s.verdicts(tc.verdicts)
			if tc.from != "" {
				s.v.Local.Namespace.Annotations = map[string]string{model.AnnotationImportFrom: tc.from}
			}
			if tc.change != nil {
				tc.change(s)
			}
			got := Import(s.view())
			var resolved, kept, problems []string
			if got.Finding.Import != nil {
				for _, c := range got.Finding.Import.Constituents {
					resolved = append(resolved, string(c.Cluster))
				}
			}
			slices.Sort(resolved)
			for _, id := range sets.List(got.Plan.Unsynced) {
				kept = append(kept, string(id))
			}
			for _, p := range got.Finding.Problems {
				problems = append(problems, p.Reason+" "+string(p.Cluster))
			}
			want := []string{tc.resolved, tc.kept, tc.problems}
			if diff := cmp.Diff(want, []string{strings.Join(resolved, " "), strings.Join(kept, " "), strings.Join(problems, ", ")}); diff != "" {
				t.Errorf("resolved, kept, problems (-want +got):\n%s", diff)
			}
			if got.Again > time.Minute || got.Again == 0 && strings.Contains(tc.verdicts, "n") {
				t.Errorf("decided again after %s", got.Again)
			}
		})
	}
}

// What the exporter reads of it.
func TestWhatPoliciesKeepOutIsReported(t *testing.T) {
	for name, tc := range map[string]struct {
		verdicts, from, source string
		imported               bool
		reason, message        string
	}{
		"denied":                          {verdicts: "cd da", source: "c", reason: "PolicyDenied", message: "the export of cluster c is not imported: [p] no imports from c. Remedy: Ask."},
		"denied, though it stands":        {verdicts: "ca dd", source: "d", reason: "PolicyDenied", message: "[p] no imports from d. Remedy: Ask."},
		"not listed":                      {from: "d", source: "c", reason: "PolicyDenied", message: "Namespace shop, annotation comity.dev/import-from: it does not list cluster c; to import from there, add it"},
		"not evaluated":                   {verdicts: "cn da", source: "c", reason: "NotEvaluated", message: "in cluster a: whether the export may be imported could not be evaluated"},
		"not evaluated, and it stands":    {verdicts: "ca dn", source: "d", imported: true, reason: "NotEvaluated", message: "nothing new of it is"},
		"the annotation cannot be read":   {from: "c,,d", source: "c", reason: "NotEvaluated", message: "annotation comity.dev/import-from of the Namespace there"},
		"another is denied":               {verdicts: "cd da", source: "d", imported: true, reason: "Imported"},
		"a policy warns: nothing to tell": {verdicts: "cw da", source: "c", imported: true, reason: "Imported"},
	} {
		t.Run(name, func(t *testing.T) {
			s := cAndD(t)
			s.verdicts(tc.verdicts)
			if tc.from != "" {
				s.v.Local.Namespace.Annotations = map[string]string{model.AnnotationImportFrom: tc.from}
			}
			if strings.Contains(tc.verdicts, "w") {
				s.peer("c").Verdict.Warnings = []decision.Violation{{Policy: "p", Message: "old"}}
			}
			found := Import(s.view()).Finding
			seen := model.Observation{Import: found.Import, Problems: found.Problems, Sources: found.Sources}
			desired, _ := Report(ReportView{
				Key: web, Self: "a", Namespace: namespaceReady, Peers: []exchange.Published{*s.peer("c"), *s.peer("d")}, Observation: seen,
			})
			got := desired[fmt.Sprintf("comity-a-to-%s", tc.source)]
			if got.Imported != tc.imported || got.Reason != tc.reason || !strings.Contains(got.Message, tc.message) || strings.Contains(got.Message, "c,,d") {
				t.Errorf("reported %+v", got)
			}
		})
	}
}

func TestAWarningIsAProblemOfTheImport(t *testing.T) {
	s := newStory(t, "c")
	s.publishes("c", at(-10))
	s.peer("c").Verdict = &decision.Verdict{Outcome: decision.Allowed, Warnings: []decision.Violation{{Policy: "p", Message: "old", Softening: decision.ByImported}}}
	s.step()
	want := []model.Problem{{Reason: "PolicyWarning", Message: "the export of cluster c: [p] would be refused if it were not imported already: old."}}
	if diff := cmp.Diff(want, s.last.Finding.Problems); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A policy may quote what another cluster wrote, and object a thousand times.
func TestTheMessageOfAPolicyIsBound(t *testing.T) {
	s := newStory(t, "c")
	s.publishes("c", at(-10))
	verdict := decision.Verdict{Outcome: decision.Denied}
	for n := range 1000 {
		verdict.Violations = append(verdict.Violations, decision.Violation{Policy: "p", Message: fmt.Sprintf("no %d \x1b[2J\nnow", n)})
	}
	s.peer("c").Verdict = &verdict
	got := Import(s.view()).Finding.Problems
	if len(got) != 1 || len(got[0].Message) > 1024 || strings.ContainsAny(got[0].Message, "\x1b\n") {
		t.Errorf("%q", got)
	}
}

// What policies are asked: of each export that was read, and of each cluster that the import
// lists. The labels of a cluster without a Peer are not those of a Peer without labels.
func TestWhatImportPoliciesAreAsked(t *testing.T) {
	s := newStory(t, "b", "c", "d", "e")
	s.publishes("b", at(-30), headless, func(e *model.Export) {
		e.Labels, e.Annotations, e.Slices = map[string]string{"l": "1"}, map[string]string{"a": "2"}, []string{"s"}
	})
	s.publishes("d", at(-20), headless)
	s.publishes("e", at(-10), headless)
	s.step()
	s.publishes("c", at(0))
	s.unread("d")
	s.gone("e")
	s.peer("b").Labels, s.peer("d").Labels = map[string]string{"tier": "prod"}, map[string]string{"tier": "prod"}
	var got []string
	inputs := ImportInputs(s.view())
	for _, in := range inputs {
		what := []string{in.Source.Cluster}
		for is, word := range map[string]bool{"unread": in.Unread, "imported": in.Imported, "unknown": in.Source.Unknown, "labeled": in.Source.Labels["tier"] != ""} {
			if word {
				what = append(what, is)
			}
		}
		slices.Sort(what[1:])
		if in.Export.Namespace != "shop" || in.Export.Name != "web" || in.Cluster != "a" || in.Namespace == nil || in.APIVersion == "" {
			t.Errorf("%+v", in)
		}
		got = append(got, strings.Join(what, " "))
	}
	want := []string{"b imported labeled", "c", "d imported labeled unread", "e imported unknown unread"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	export := decision.ImportedExport{
		Namespace: "shop", Name: "web", Type: mcsv1beta1.Headless, Ports: s.peer("b").Export.Ports, Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "2"},
	}
	if diff := cmp.Diff(export, inputs[0].Export); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
