// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
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
			c := publishedBy("c", 10, "http")
			c.Identity = tc.exported
			v := takeoverView(nil, c)
			v.IdentityLabels, v.Local.Namespace.Labels = []string{label}, tc.here
			if tc.record != nil {
				v.Namespaces = []model.MemberNamespace{{Cluster: "c", Presence: model.NamespacePresent, Labels: tc.record}}
			} else {
				v.Namespaces = []model.MemberNamespace{{Cluster: "c", Presence: model.NamespaceAbsent}}
			}
			if tc.stands {
				v.Current.Import = importedFrom(c)
			}
			d := Import(v)
			if (d.Finding.Resolved != nil) != tc.imported || (len(d.Plan.Unsynced) == 1) != tc.kept {
				t.Errorf("resolved %+v, kept %v", d.Finding.Resolved, d.Plan.Unsynced)
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
			report, known := ReportView{Key: web, Self: "b", Namespace: NamespaceReady, PartlyImported: map[model.ClusterID]bool{"c": true},
				Observation: &model.Observation{Problems: d.Finding.Problems, Sources: d.Finding.Sources}}.result("c")
			if !known || report.imported != tc.kept || report.reason != tc.reason || !strings.Contains(report.message, what) {
				t.Errorf("reported %+v", report)
			}
		})
	}
}

// a decides; c joined it, and publishes no identity any more. d is older, waits, and is
// confirmed.
func TestOnlyTheDecidingMemberKeepsAnImportFromFollowing(t *testing.T) {
	a, c, d := publishedBy("a", 30, "http"), publishedBy("c", 40, "http"), publishedBy("d", 20, "x")
	for name, tc := range map[string]struct {
		unknown model.ClusterID
		frozen  bool
	}{
		"the deciding one is kept": {"a", true},
		"another one is kept":      {"c", false},
	} {
		t.Run(name, func(t *testing.T) {
			v := confirmedTakeover(takeoverView(importedFrom(a, c), a, c, d), "of-d")
			v.IdentityLabels = []string{"comity.dev/identity"}
			for i := range v.Exports {
				if v.Exports[i].Cluster != tc.unknown {
					v.Exports[i].Identity = map[string]string{}
				}
			}
			got := Import(v)
			if plan.IsFrozen(got.Plan) != tc.frozen {
				t.Errorf("frozen is %v", plan.IsFrozen(got.Plan))
			}
			if decider := got.Finding.Resolved.Constituents[0].Cluster; !tc.frozen && decider != "d" {
				t.Errorf("%s decides", decider)
			}
			if len(got.Finding.Problems) != 1 || got.Finding.Problems[0].Reason != model.ReasonNamespaceUnknown || got.Finding.Problems[0].Cluster != tc.unknown {
				t.Errorf("problems %+v", got.Finding.Problems)
			}
		})
	}
}

// The own export is lost, as that of a member may be: what is written follows the same rule.
func TestALostExportOfThisClusterFreezesAnImportOnlyIfItDecides(t *testing.T) {
	own, a, c := publishedBy("b", 10, "http"), publishedBy("a", 30, "http"), publishedBy("c", 20, "http")
	for name, tc := range map[string]struct {
		imported *mcsv1beta1.ServiceImport
		joined   int
	}{
		"it decides":   {importedFrom(own, a), 0},
		"another does": {importedFrom(a, own), 1},
	} {
		t.Run(name, func(t *testing.T) {
			v := takeoverView(tc.imported, a, c)
			v.Definition.Problem = "the CustomResourceDefinition is missing"
			v.Current.Slices = []*discoveryv1.EndpointSlice{derivedSlice("b", endpoint("10.1.0.1", nil))}
			if got := Import(v); len(got.Joined) != tc.joined || plan.IsFrozen(got.Plan) != (tc.joined == 0) {
				t.Errorf("joined %v, frozen %v", got.Joined, plan.IsFrozen(got.Plan))
			}
		})
	}
}

// FAULT 32: nothing stays of a member whose namespace is not accepted, read or not.
func TestWhatIsNotAcceptedGoesFAULT32(t *testing.T) {
	c := publishedBy("c", 10, "http")
	v := takeoverView(importedFrom(c), c)
	v.NotAccepted = []model.ClusterID{"c"}
	v.Members[1].Synced = false
	if d := Import(v); d.Finding.Resolved != nil || len(d.Plan.Unsynced) > 0 || len(d.Finding.Unsynced) > 0 {
		t.Errorf("resolved %+v, kept %v", d.Finding.Resolved, d.Plan.Unsynced)
	}
	refusals := []model.Refusal{
		{Cluster: "c", ExportUID: "of-c", Reason: model.ReasonNamespaceNotAccepted, Peer: "c"},
		{Cluster: "d", Reason: model.ReasonInvalidRecord},
	}
	v.Refusals = refusals
	want := []model.Problem{{Reason: "NamespaceNotAccepted", Cluster: "c", Message: "the export of cluster c is not imported: Peer c, spec.acceptedNamespaces: " +
		"it does not list Namespace shop; to import from there, add it"}}
	if diff := cmp.Diff(want, Import(v).Finding.Problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	for name, change := range map[string]func(*ImportView){
		"another implementation imports": func(v *ImportView) { v.ImportDisabled = true },
		"there is no such namespace":     func(v *ImportView) { v.Local.Namespace = nil },
	} {
		without := v
		if change(&without); len(Import(without).Finding.Problems) > 0 {
			t.Errorf("%s: %v", name, Import(without).Finding.Problems)
		}
	}
	report := Report(ReportView{Key: web, Self: "b", Namespace: NamespaceReady, Members: []model.Member{{ID: "c", Synced: true}}, Exports: []model.Export{c}, Refusals: refusals[:1],
		Observation: &model.Observation{}})
	got := report.Desired["comity-b-to-c"]
	if got.Imported || got.Reason != "NamespaceNotAccepted" || !strings.Contains(got.Message, "accepts no exports of namespace shop from cluster c") {
		t.Errorf("reported %+v", got)
	}
}

func TestLostSlicesAreThoseStillNamed(t *testing.T) {
	derived := func(source string) *discoveryv1.EndpointSlice {
		return derivedSlice("c", func(s *discoveryv1.EndpointSlice) {
			s.Name += source
			s.Annotations = map[string]string{model.AnnotationSourceSlice: source}
		}, endpoint("10.3.0.1", nil))
	}
	published := func(source string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{}
		s.Annotations = map[string]string{model.AnnotationSourceSlice: source}
		return s
	}
	c := publishedBy("c", 10, "http", func(e *model.Export) { e.Slices = []string{"lost", "there", "new"} })
	v := takeoverView(importedFrom(c), c)
	v.Current.Slices = []*discoveryv1.EndpointSlice{derived("lost"), derived("there"), derived("removed"), derivedSlice("d")}
	v.Slices = map[model.ClusterID][]*discoveryv1.EndpointSlice{"c": {published("there")}} // nothing of it is accepted
	v.Unanswered = []model.ClusterID{"c"}
	d := Import(v)
	if diff := cmp.Diff(map[model.ClusterID][]string{"c": {"lost"}}, d.Plan.LostSlices); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(d.Probe["c"]) != 1 || len(d.Plan.Lost) > 0 || len(d.Plan.LostSlicesDown) != 1 {
		t.Errorf("probed are %v, lost %v and %v", d.Probe, d.Plan.Lost, d.Plan.LostSlicesDown)
	}
	if len(d.Finding.Problems) != 1 || d.Finding.Problems[0].Reason != model.ReasonDeletionHeld || !strings.Contains(d.Finding.Problems[0].Message, "shop/lost") {
		t.Errorf("problems %+v", d.Finding.Problems)
	}
	v.Members[1].StatesWithdrawals = false
	if d := Import(v); d.Plan.LostSlices != nil {
		t.Error("a member that names no slices lost some")
	}
}

func TestAHeldExportIsProbed(t *testing.T) {
	c := publishedBy("c", 10, "http")
	v := takeoverView(importedFrom(c))
	v.Current.Slices = []*discoveryv1.EndpointSlice{derivedSlice("c", endpoint("10.3.0.1", nil))}
	v.Held, v.Unanswered = []model.Hold{{Cluster: "c"}}, []model.ClusterID{"c"}
	if d := Import(v); len(d.Probe["c"]) != 1 || len(d.Plan.Lost) != 1 {
		t.Errorf("probed are %v, lost %v", d.Probe, d.Plan.Lost)
	}
}
