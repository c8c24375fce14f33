// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// FAULT 35: the webhook of the exporter did not compare the namespaces.
func TestOnlyOfTheSameNamespaceIsImportedFAULT35(t *testing.T) {
	const label, other = "comity.dev/identity", "example.com/team"
	for name, tc := range map[string]struct {
		here     map[string]string
		exported map[string]string // nil: the record says nothing
		record   map[string]string // nil: there is no NamespaceRecord
		stands   bool
		accepted bool
		imported bool
		kept     bool
		reason   string
	}{
		"the same":                               {here: map[string]string{label: "x"}, exported: map[string]string{label: "x"}, imported: true},
		"neither has one":                        {exported: map[string]string{}, imported: true},
		"another":                                {here: map[string]string{label: "x"}, exported: map[string]string{label: "y"}, reason: "NamespaceMismatch"},
		"only here":                              {here: map[string]string{label: "x"}, exported: map[string]string{}, reason: "NamespaceMismatch"},
		"only there":                             {exported: map[string]string{label: "y"}, reason: "NamespaceMismatch"},
		"another, and it stands: it goes":        {exported: map[string]string{label: "y"}, stands: true, reason: "NamespaceMismatch"},
		"another label of theirs does not count": {here: map[string]string{label: "x"}, exported: map[string]string{label: "x", other: "y"}, imported: true},
		"the record of the namespace says it":    {here: map[string]string{label: "x"}, record: map[string]string{label: "x"}, imported: true},
		"it says another":                        {here: map[string]string{label: "x"}, record: map[string]string{label: "y"}, reason: "NamespaceMismatch"},
		"the export counts before it":            {here: map[string]string{label: "x"}, exported: map[string]string{label: "x"}, record: map[string]string{label: "y"}, imported: true},
		"unknown, and new":                       {here: map[string]string{label: "x"}, reason: "NamespaceUnknown"},
		"unknown, and it stands":                 {here: map[string]string{label: "x"}, stands: true, kept: true, reason: "NamespaceUnknown"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, "c")
			s.publishes("c", at(-10))
			if tc.stands {
				s.step()
			}
			s.peer("c").Export.Identity = tc.exported
			s.v.IdentityLabels, s.v.Local.Namespace.Labels = []string{label}, tc.here
			s.peer("c").Namespace = decision.PeerNamespace{Presence: decision.Absent}
			if tc.record != nil {
				s.peer("c").Namespace = decision.PeerNamespace{Presence: decision.Present, Labels: tc.record}
			}
			d := Import(s.view())
			if (d.Finding.Import != nil) != tc.imported || (len(d.Plan.Unsynced) == 1) != tc.kept {
				t.Errorf("resolved %+v, kept %v", d.Finding.Import, d.Plan.Unsynced)
			}
			reason := ""
			for _, p := range d.Finding.Problems {
				reason += p.Reason
			}
			if reason != tc.reason {
				t.Errorf("problems %+v", d.Finding.Problems)
			}
			if tc.reason == "" {
				return
			}
			what := "label comity.dev/identity of Namespace shop"
			if tc.reason == "NamespaceUnknown" {
				what = "identity of Namespace shop in cluster c"
			}
			if !strings.Contains(d.Finding.Problems[0].Message, what) || d.Finding.Problems[0].Cluster != "c" {
				t.Errorf("the problem is %+v", d.Finding.Problems[0])
			}
			report, known := ReportView{Key: web, Self: "a", Namespace: namespaceReady,
				Observation: model.Observation{Problems: d.Finding.Problems, Sources: d.Finding.Sources}}.result("c")
			if !known || report.Imported != tc.kept || report.Reason != tc.reason || !strings.Contains(report.Message, what) {
				t.Errorf("reported %+v", report)
			}
		})
	}
}

// FAULT 32: nothing stays of a member whose namespace is not accepted, read or not.
func TestWhatIsNotAcceptedGoesFAULT32(t *testing.T) {
	s := newStory(t, "c")
	s.publishes("c", at(-10))
	s.step()
	s.unread("c")
	s.peer("c").NotAccepted = true
	s.is("c(Refused); no import")
	if len(s.last.Plan.Unsynced)+len(s.last.Finding.Unsynced) > 0 || len(s.v.Current.Slices) > 0 {
		t.Errorf("kept %v, slices %v", s.last.Plan.Unsynced, s.v.Current.Slices)
	}
	want := []model.Problem{{Reason: "NamespaceNotAccepted", Cluster: "c", Message: "the export of cluster c is not imported: Peer c, " +
		"spec.acceptedNamespaces: it does not list Namespace shop; to import from there, add it"}}
	if diff := cmp.Diff(want, s.last.Finding.Problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	for name, change := range map[string]func(*ImportView){
		"another implementation imports": func(v *ImportView) { v.ImportDisabled = true },
		"there is no such namespace":     func(v *ImportView) { v.Local.Namespace = nil },
	} {
		without := s.v
		if change(&without); len(Import(without).Finding.Problems) > 0 {
			t.Errorf("%s: %v", name, Import(without).Finding.Problems)
		}
	}
	desired, _ := Report(parts{Members: []model.Member{{ID: "c", Synced: true}},
		Refusals: map[model.ClusterID]model.Refusal{"c": {ExportUID: "of-c"}}}.view("a"))
	got := desired["comity-a-to-c"]
	if got.Imported || got.Reason != "NamespaceNotAccepted" || !strings.Contains(got.Message, "accepts no exports of namespace shop from cluster c") {
		t.Errorf("reported %+v", got)
	}
}

func TestLostSlicesAreThoseStillNamed(t *testing.T) {
	s := newStory(t, "c")
	s.publishes("c", at(-10))
	of := func(source string) *discoveryv1.EndpointSlice {
		slice := s.peer("c").Slices[0].DeepCopy()
		slice.Name, slice.Annotations = source, map[string]string{model.AnnotationSourceSlice: source}
		return slice
	}
	s.peer("c").Slices = []*discoveryv1.EndpointSlice{of("lost"), of("there"), of("removed")}
	s.step()
	s.peer("c").Slices, s.peer("c").Export.Slices = []*discoveryv1.EndpointSlice{of("there")}, []string{"lost", "there", "new"}
	s.step()
	if diff := cmp.Diff(map[model.ClusterID][]string{"c": {"lost"}}, s.last.Plan.LostSlices); diff != "" || len(s.v.Current.Slices) != 2 {
		t.Errorf("%d slices (-want +got):\n%s", len(s.v.Current.Slices), diff)
	}
	if problems := s.last.Finding.Problems; len(problems) != 1 || problems[0].Reason != model.ReasonSliceMissing || !strings.Contains(problems[0].Message, "shop/lost") {
		t.Errorf("problems %+v", problems)
	}
}
