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

	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// excluding lets policies forbid the export to some clusters.
func excluding(ids ...string) func(*ExportView) {
	return func(v *ExportView) {
		v.Local.Verdict.Excluded = ids
		v.Local.Verdict.Violations = []decision.Violation{{Policy: "residency", Message: "it stays here", Clusters: ids}}
	}
}

// joined makes n members, m-1 to m-n.
func joined(n int) func(*ExportView) {
	return func(v *ExportView) {
		v.Members = nil
		for i := range n {
			v.Members = append(v.Members, model.Member{ID: model.ClusterID(fmt.Sprintf("m-%d", i+1))})
		}
	}
}

// recorded has the records say to which clusters policies forbade the export.
func recorded(ids string) func(*ExportView) {
	return func(v *ExportView) {
		for _, r := range v.Records {
			r.Annotations = map[string]string{model.AnnotationExcluded: ids}
		}
	}
}

func onlyMembers(ids ...model.ClusterID) func(*ExportView) {
	return func(v *ExportView) {
		v.Members = model.Map(ids, func(id model.ClusterID) model.Member { return model.Member{ID: id} })
	}
}

// The last member may still read while it is being removed: it does not get what it did not have.
func TestNothingIsPublishedToRemovedClustersAlone(t *testing.T) {
	d := Export(exported(publishedIn(), onlyMembers(), func(v *ExportView) { v.Removed = []model.ClusterID{"b"} }))
	if len(d.Plan.Audience) > 0 || !strings.Contains(d.Finding.Detail, "every other cluster was removed") {
		t.Errorf("published in %v: %s", d.Plan.Audience, d.Finding.Detail)
	}
	d = Export(exported(publishedIn("comity-a"), onlyMembers(), func(v *ExportView) { v.Removed = []model.ClusterID{"b"} }))
	if len(d.Plan.Audience) == 0 {
		t.Errorf("what is published does not stay: %s", d.Finding.Detail)
	}
}

func TestWhoIsExcludedIsRecorded(t *testing.T) {
	for name, tc := range map[string]struct {
		view ExportView
		want string
	}{
		"a member":                       {exported(excluding("b")), "b"},
		"nobody":                         {exported(), ""},
		"not who never was a member":     {exported(excluding("mars", "b")), "b"},
		"who was, until it is one again": {exported(publishedIn("comity-a-to-c"), recorded("b,d")), "d"},
	} {
		if got := Export(tc.view).Plan.Annotations[model.AnnotationExcluded]; got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestExcludedClustersLoseTheExport(t *testing.T) {
	notEvaluated := func(v *ExportView) {
		v.Local.Verdict.Outcome, v.Local.Verdict.Problem = decision.NotEvaluated, "policy p is broken"
	}
	for name, tc := range map[string]struct {
		view  ExportView
		want  map[string]string
		scope model.Scope
		says  string
	}{
		"one of two members": {exported(publishedIn("comity-a"), excluding("b")),
			map[string]string{"comity-a": "withdrawn", "comity-a-to-c": "published"}, model.ScopeOf("c"), ""},
		"one of two named clusters": {exported(publishedIn("comity-a-to-b", "comity-a-to-c"), to("b,c"), excluding("b")),
			map[string]string{"comity-a-to-b": "withdrawn", "comity-a-to-c": "published"}, model.ScopeOf("c"), ""},
		"one that the export does not name": {exported(publishedIn("comity-a-to-c"), to("c"), excluding("b")),
			map[string]string{"comity-a-to-c": "published"}, model.ScopeOf("c"), ""},
		"one of two members, and nothing says why": {exported(publishedIn("comity-a"), excluding("b"), func(v *ExportView) { v.Local.Verdict.Violations = nil }),
			map[string]string{"comity-a": "withdrawn", "comity-a-to-c": "published"}, model.ScopeOf("c"), ""},
		"an unknown cluster: one record for every member": {exported(publishedIn("comity-a"), excluding("mars")),
			map[string]string{"comity-a": "published"}, model.ScopeAll(), ""},
		"the exporter itself": {exported(publishedIn("comity-a"), excluding("a")),
			map[string]string{"comity-a": "published"}, model.ScopeAll(), ""},
		"every member": {exported(publishedIn("comity-a"), excluding("b", "c")),
			map[string]string{"comity-a": "withdrawn"}, model.Scope{}, "policies forbid the export to every cluster in its scope: [residency] it stays here."},
		"every named cluster": {exported(publishedIn("comity-a-to-b"), to("b"), excluding("b")),
			map[string]string{"comity-a-to-b": "withdrawn"}, model.Scope{}, "to every cluster in its scope"},
		"the exchange namespace of who remains is missing": {exported(publishedIn("comity-a"), excluding("b"), unavailable("comity-a-to-c")),
			map[string]string{"comity-a": "withdrawn"}, model.ScopeOf("c"), "comity-a-to-c is missing"},
		"who is excluded has no Peer any more, but may still read": {exported(publishedIn("comity-a-to-c"), recorded("b"), onlyMembers("c")),
			map[string]string{"comity-a-to-c": "published"}, model.ScopeOf("c"), ""},
		"who was excluded is a member again": {exported(publishedIn("comity-a-to-c"), recorded("b")),
			map[string]string{"comity-a": "published", "comity-a-to-c": "left"}, model.ScopeAll(), ""},
		"policies cannot be evaluated, and what they forbade stays so": {exported(publishedIn("comity-a-to-c"), recorded("b"), notEvaluated),
			map[string]string{"comity-a-to-c": "published"}, model.ScopeOf("c"), "policy p is broken"},
		"one member more than there may be records: who has it keeps it": {exported(publishedIn("comity-a-to-m-2", "comity-a-to-m-3"), joined(34), excluding("m-1")),
			map[string]string{"comity-a-to-m-2": "published", "comity-a-to-m-3": "published"}, model.ScopeOf("m-2", "m-3"), "at most 32 records for single clusters are written"},
		"it is excluded no longer": {exported(publishedIn("comity-a-to-c")),
			map[string]string{"comity-a": "published", "comity-a-to-c": "left"}, model.ScopeAll(), ""},
		"another policy cannot be evaluated: what is forbidden stays so": {exported(publishedIn("comity-a"), excluding("b"), notEvaluated),
			map[string]string{"comity-a": "withdrawn", "comity-a-to-c": "published"}, model.ScopeOf("c"), "policy p is broken"},
		"policies cannot be evaluated any more: what is published stays, and nobody gets more": {
			exported(publishedIn("comity-a-to-c"), notEvaluated), map[string]string{"comity-a-to-c": "published"}, model.ScopeAll(), "policy p is broken"},
		"32 members remain": {exported(publishedIn("comity-a"), joined(33), excluding("m-1")), nil, model.ScopeOf(all32()...), ""},
		"33 remain: too many records": {exported(publishedIn("comity-a"), joined(34), excluding("m-1")),
			map[string]string{"comity-a": "withdrawn"}, model.Scope{},
			"policies forbid the export of shop/web to 1 of 34 members, and at most 32 records for single clusters are written; name the clusters"},
	} {
		t.Run(name, func(t *testing.T) {
			d := Export(tc.view)
			if diff := cmp.Diff(tc.want, outcome(d)); tc.want != nil && diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.scope, d.Finding.Scope, cmp.AllowUnexported(model.Scope{})); diff != "" {
				t.Errorf("scope (-want +got):\n%s", diff)
			}
			if !strings.Contains(d.Finding.Detail, tc.says) || (d.Finding.Detail == "") != (tc.says == "") {
				t.Errorf("says %q, want %q", d.Finding.Detail, tc.says)
			}
			if tc.scope.Empty() && d.Finding.Publication != model.PublicationWithheld {
				t.Errorf("publication %v, want it withheld", d.Finding.Publication)
			}
		})
	}
}

// Clusters that read an export lose it when the grace period of the policy ends, which is
// recorded in the exchange; those that do not read it do not get it meanwhile.
func TestExcludedClustersHaveTheGraceOfThePolicy(t *testing.T) {
	since := func(at time.Time) func(*ExportView) {
		return func(v *ExportView) {
			v.Records[0].Annotations = map[string]string{model.AnnotationDeniedSince: `{"residency":"` + at.Format(time.RFC3339) + `"}`}
		}
	}
	graceful := func(v *ExportView) {
		excluding("b", "mars")(v)
		v.Local.Verdict.Violations[0].Grace, v.Now = 10*time.Minute, noon
	}
	minutesAgo := func(n time.Duration) time.Time { return noon.Add(-n * time.Minute) }
	for name, tc := range map[string]struct {
		view  ExportView
		scope model.Scope
		until time.Time
	}{
		"it begins":                            {exported(publishedIn("comity-a"), graceful), model.ScopeAll(), noon.Add(10 * time.Minute)},
		"it began 4 minutes ago":               {exported(publishedIn("comity-a"), since(minutesAgo(4)), graceful), model.ScopeAll(), noon.Add(6 * time.Minute)},
		"it ended":                             {exported(publishedIn("comity-a"), since(minutesAgo(10)), graceful), model.ScopeOf("c"), time.Time{}},
		"the clock went back":                  {exported(publishedIn("comity-a"), since(noon.Add(time.Hour)), graceful), model.ScopeAll(), noon.Add(10 * time.Minute)},
		"who does not read it does not get it": {exported(publishedIn("comity-a-to-c"), graceful), model.ScopeOf("c"), time.Time{}},
		"who reads it alone":                   {exported(publishedIn("comity-a-to-b"), to("b,c"), graceful), model.ScopeOf("b", "c"), noon.Add(10 * time.Minute)},
		"an earlier export of the name was read": {exported(publishedIn("comity-a"), graceful, func(v *ExportView) { v.Records[0].Spec.ExportUID = "old" }),
			model.ScopeOf("c"), time.Time{}},
		"another policy has none": {exported(publishedIn("comity-a"), graceful, func(v *ExportView) {
			v.Local.Verdict.Violations = append(v.Local.Verdict.Violations, decision.Violation{Policy: "strict", Clusters: []string{"b"}})
		}), model.ScopeOf("c"), time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			d := Export(tc.view)
			if diff := cmp.Diff(tc.scope, d.Finding.Scope, cmp.AllowUnexported(model.Scope{})); diff != "" {
				t.Errorf("scope (-want +got):\n%s", diff)
			}
			if !d.Finding.WithdrawnAt.Equal(tc.until) || (d.Again == 0) != tc.until.IsZero() {
				t.Errorf("withdrawn at %v, again after %v, want %v", d.Finding.WithdrawnAt, d.Again, tc.until)
			}
			if recorded := d.Plan.Annotations[model.AnnotationDeniedSince]; (recorded == "") != tc.until.IsZero() {
				t.Errorf("recorded: %q", recorded)
			}
		})
	}
}

func all32() []model.ClusterID {
	var out []model.ClusterID
	for i := range 32 {
		out = append(out, model.ClusterID(fmt.Sprintf("m-%d", i+2)))
	}
	return out
}

// A named scope is as long as its author made it; policies only shorten it.
func TestANamedScopeIsNotBounded(t *testing.T) {
	var named []string
	for i := range 40 {
		named = append(named, fmt.Sprintf("m-%d", i+1))
	}
	d := Export(exported(joined(40), to(strings.Join(named, ",")), excluding("m-7")))
	if len(d.Plan.Audience) != 39 || d.Finding.Publication != model.Published {
		t.Errorf("%d records, publication %v: %s", len(d.Plan.Audience), d.Finding.Publication, d.Finding.Detail)
	}
}

// TestNoExcludedClusterReads draws members, scopes, exclusions and what stands already:
// no plan leaves, or writes, a live record that an excluded cluster can read.
func TestNoExcludedClusterReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := []string{"b", "c", "d"}
		some := func(what string) []string {
			return rapid.SliceOfDistinct(rapid.SampledFrom(members), rapid.ID).Draw(t, what)
		}
		v := exported(excluding(some("excluded")...), func(v *ExportView) {
			v.Members = []model.Member{{ID: "b"}, {ID: "c"}, {ID: "d"}}
			v.Records = nil
			for _, namespace := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"comity-a", "comity-a-to-b", "comity-a-to-c"}), rapid.ID).Draw(t, "records") {
				v.Records = append(v.Records, recordIn(namespace, "u", rapid.Bool().Draw(t, "withdrawn"), noon))
			}
			v.Local.Verdict.Outcome = rapid.SampledFrom([]decision.Outcome{decision.Allowed, decision.NotEvaluated}).Draw(t, "outcome")
		})
		if named := some("scope"); len(named) > 0 {
			to(strings.Join(named, ","))(&v)
		}
		live := map[string]bool{}
		for _, r := range v.Records {
			live[r.Namespace] = !r.Spec.Withdrawn
		}
		for namespace, what := range outcome(Export(v)) {
			live[namespace] = what == "published"
		}
		for _, id := range members {
			reads := live["comity-a"] || live["comity-a-to-"+id]
			if reads && slices.Contains(v.Local.Verdict.Excluded, id) {
				t.Fatalf("%s is excluded and reads the export: %v", id, live)
			}
		}
	})
}
