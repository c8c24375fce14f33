// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// seen is an observation in which these clusters contribute.
func seen(problems []model.Problem, clusters ...model.ClusterID) model.Observation {
	o := model.Observation{Import: &model.Import{Key: web}, Problems: problems}
	for _, id := range clusters {
		o.Sources = append(o.Sources, model.Source{Cluster: id, HasEndpoints: true})
		o.Import.Constituents = append(o.Import.Constituents, model.Constituent{SourceExport: model.SourceExport{Cluster: id}})
	}
	return o
}

// What the namespace of the exports can be in cluster b.
var (
	namespaceReady       model.Report
	namespaceMissing     = Namespace("b", "shop", nil, "comity-system")
	namespaceReserved    = Namespace("b", "shop", nil, "shop")
	namespaceTerminating = Namespace("b", "shop", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}}, "comity-system")
)

func frozenBy(id model.ClusterID, state model.SourceState) *model.Freeze {
	return &model.Freeze{By: model.Source{Cluster: id, State: state}, Waits: true}
}

func heldBy(id, over model.ClusterID) []model.Takeover {
	return []model.Takeover{{By: model.SourceExport{Cluster: id}, Decider: model.SourceExport{Cluster: over}, Fields: []string{"type"}, Changes: "secret"}}
}

// parts are those of a view: what the members are, and what they export.
type parts struct {
	Members     []model.Member
	Removed     []model.ClusterID
	Exports     []model.Export
	Refusals    map[model.ClusterID]model.Refusal
	Observation model.Observation
	Unavailable map[string]string
}

func (p parts) view(self model.ClusterID) ReportView {
	v := ReportView{Key: web, Self: self, Namespace: namespaceReady, Observation: p.Observation, Unavailable: p.Unavailable}
	for _, m := range p.Members {
		peer := exchange.Published{Member: m, Removed: slices.Contains(p.Removed, m.ID)}
		for _, e := range p.Exports {
			if e.Cluster == m.ID {
				peer.Export = &e
			}
		}
		if r, has := p.Refusals[m.ID]; has {
			peer.Refusal = &r
		}
		v.Peers = append(v.Peers, peer)
	}
	return v
}

// A report names who decides, unless not every member may know of that export.
func TestAReportNamesTheDecider(t *testing.T) {
	for name, tc := range map[string]struct {
		decider model.SourceExport
		want    model.ClusterID
	}{
		"a cluster": {model.SourceExport{Cluster: "c"}, "c"},
		"nobody":    {},
		"scoped":    {model.SourceExport{Cluster: "c", Scoped: true}, ""},
	} {
		o := seen(nil, "a", "c")
		o.Decider = tc.decider
		desired, _ := Report(parts{Members: []model.Member{member("a", true, model.Connected)}, Exports: []model.Export{{SourceExport: model.SourceExport{Cluster: "a", UID: "ua"}}}, Observation: o}.view("b"))
		if got := desired["comity-b-to-a"].Decider; got != string(tc.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func sourcesOf(sources ...model.Source) model.Observation {
	return model.Observation{Sources: sources}
}

func TestTheResultOfAnImport(t *testing.T) {
	overlap := model.Problem{Reason: model.ReasonAddressOverlap, Cluster: "a", Message: "10.1.0.1 of cluster a lies in pod range 10.1.0.0/16 of cluster b"}
	local := func(reason string) []model.Problem {
		return []model.Problem{{Reason: reason, Message: "Service shop/derived-1 of cluster c is in the way"}}
	}
	standing := seen(local(model.ReasonNameTaken), "a", "c")
	standing.Sources = []model.Source{{Cluster: "a", State: model.SourcePublished}}
	cases := []struct {
		name    string
		change  func(*ReportView)
		unknown bool
		want    model.Report
		says    string
	}{
		{name: "contributes", change: func(*ReportView) {}, want: model.Report{Imported: true, Reason: model.ReasonImported}},
		{name: "importing is off, whatever else", change: func(s *ReportView) {
			s.ImportDisabled, s.Namespace, s.Observation = true, namespaceMissing, model.Observation{}
		},
			want: model.Report{Reason: model.ReasonImportDisabled}, says: "another implementation imports in cluster b"},
		{name: "the namespace is Comity's", change: func(s *ReportView) { s.Namespace, s.Observation = namespaceReserved, model.Observation{} },
			want: model.Report{Reason: model.ReasonNamespaceReserved}, says: "namespace shop is reserved in cluster b"},
		{name: "there is no namespace", change: func(s *ReportView) { s.Namespace, s.Observation = namespaceMissing, model.Observation{} },
			want: model.Report{Reason: model.ReasonNamespaceMissing}, says: "cluster b has no namespace shop; create it there"},
		{name: "the namespace is going", change: func(s *ReportView) { s.Namespace = namespaceTerminating },
			want: model.Report{Reason: model.ReasonNamespaceMissing}, says: "is being deleted"},
		{name: "it was reconciled without this export", change: func(s *ReportView) { s.Observation = seen(nil, "c") }, unknown: true},
		{name: "the import was not reconciled, or nothing was resolved yet", change: func(s *ReportView) { s.Observation = model.Observation{} }, unknown: true},
		{name: "a foreign import", change: func(s *ReportView) { s.Observation = seen(local(model.ReasonForeignImport), "a") },
			want: model.Report{Reason: model.ReasonForeignImport}, says: "ServiceImport shop/web in cluster b: Comity did not make it"},
		{name: "no name is free", change: func(s *ReportView) { s.Observation = seen(local(model.ReasonNameTaken), "a") },
			want: model.Report{Reason: model.ReasonNameTaken}, says: "other objects in its namespace have the names of the derived Service"},
		{name: "one name is taken and the other used", change: func(s *ReportView) { s.Observation = standing },
			want: model.Report{Imported: true, Reason: model.ReasonImported}},
		{name: "the API server refuses", change: func(s *ReportView) { s.Observation = seen(local(model.ReasonRefused), "a") },
			want: model.Report{Reason: model.ReasonRefused}, says: "the API server there refuses"},
		{name: "no family in common", change: func(s *ReportView) { s.Observation = seen(local(model.ReasonIPFamilyNotSupported), "a") },
			want: model.Report{Reason: model.ReasonIPFamilyNotSupported}, says: "none of the IP families"},
		{name: "what is replaced or contested is imported", change: func(s *ReportView) {
			s.Observation = seen(append(local(model.ReasonTypeChanged), local(model.ReasonContested)...), "a")
		}, want: model.Report{Imported: true, Reason: model.ReasonImported}},
		{name: "another cluster's endpoints are left out", change: func(s *ReportView) {
			s.Observation = seen([]model.Problem{{Reason: model.ReasonAddressOverlap, Cluster: "c", Message: "secret of c"}}, "a", "c")
		}, want: model.Report{Imported: true, Reason: model.ReasonImported}},
		{name: "some endpoints are left out", change: func(s *ReportView) { s.Observation = seen([]model.Problem{overlap}, "a") },
			want: model.Report{Imported: true, Reason: model.ReasonAddressOverlap}, says: overlap.Message},
		{name: "all endpoints are left out", change: func(s *ReportView) {
			s.Observation = seen([]model.Problem{overlap}, "a")
			s.Observation.Sources[0].HasEndpoints = false
		}, want: model.Report{Reason: model.ReasonAddressOverlap}, says: overlap.Message},
		{name: "it waits for what is not read", change: func(s *ReportView) { s.Observation.Freeze = frozenBy("c", model.SourceNotRead) },
			want: model.Report{Imported: true, Reason: model.ReasonFrozen}, says: "the export of another cluster decides the import"},
		{name: "it waits for what this cluster does not read of itself", change: func(s *ReportView) { s.Observation.Freeze = frozenBy("b", model.SourceNotRead) },
			want: model.Report{Imported: true, Reason: model.ReasonFrozen}, says: "the export of another cluster decides the import"},
		{name: "it waits for what ends by itself", change: func(s *ReportView) { s.Observation.Freeze = frozenBy("c", model.SourceEnded) },
			want: model.Report{Imported: true, Reason: model.ReasonImported}},
		{name: "it is frozen, and nothing waits", change: func(s *ReportView) {
			s.Observation.Freeze = &model.Freeze{By: model.Source{State: model.SourceNotRead}}
		},
			want: model.Report{Imported: true, Reason: model.ReasonImported}},
		{name: "it waits to decide", change: func(s *ReportView) { s.Observation.Takeovers = heldBy("a", "c") },
			want: model.Report{Imported: true, Reason: model.ReasonTakeoverHeld}, says: "that of cluster a is one of the two"},
		{name: "another one waits to replace it", change: func(s *ReportView) { s.Observation.Takeovers = heldBy("c", "a") },
			want: model.Report{Imported: true, Reason: model.ReasonTakeoverHeld}, says: "that of cluster a is one of the two"},
		{name: "the agent restarted, and a source was not read yet", change: func(s *ReportView) {
			s.Observation.Sources = []model.Source{{Cluster: "c", State: model.SourceNotRead, Starting: true}}
		}, unknown: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := ReportView{
				Key: web, Self: "b", Namespace: namespaceReady,
				Observation: seen(nil, "a", "c"), Peers: []exchange.Published{{Member: model.Member{ID: "a"}}},
			}
			c.change(&s)
			got, known := s.result(s.Peers[0].ID)
			if known == c.unknown {
				t.Fatalf("known is %t", known)
			}
			if got.Imported != c.want.Imported || got.Reason != c.want.Reason || !strings.Contains(got.Message, c.says) || (c.says == "") != (got.Message == "") {
				t.Errorf("got %+v, want %+v saying %q", got, c.want, c.says)
			}
			if strings.Contains(got.Message, "secret") || strings.Contains(got.Message, "cluster c") {
				t.Errorf("%q tells a about another cluster", got.Message)
			}
		})
	}
}

func TestManyProblemsFitIntoARecord(t *testing.T) {
	var problems []model.Problem
	for range 100 {
		problems = append(problems, model.Problem{Reason: model.ReasonInvalidEndpoints, Cluster: "a", Message: strings.Repeat("ü", len(problems)+1)})
	}
	s := ReportView{Key: web, Self: "b", Namespace: namespaceReady, Observation: seen(problems, "a")}
	got, _ := s.result("a")
	if len(got.Message) > maxMessage {
		t.Errorf("%d bytes", len(got.Message))
	}
	if diff := cmp.Diff(true, got.Imported); diff != "" {
		t.Error(diff)
	}
}

// TestWhatIsReportedToWhom lists, by exchange namespace, the reason or that the
// report there is kept; a namespace without either is cleared.
func TestWhatIsReportedToWhom(t *testing.T) {
	var odd model.ClusterID = "x-to-y"
	oddNamespace := model.ScopedExchangeNamespace("b", odd)
	cases := []struct {
		name      string
		key       types.NamespacedName
		view      parts
		namespace model.Report
		want      string
	}{
		{"each source hears of its own export alone", web, parts{
			Members:     []model.Member{member("a", true, model.Connected), member("c", true, model.Connected)},
			Exports:     []model.Export{{SourceExport: model.SourceExport{Cluster: "a", UID: "ua"}}, {SourceExport: model.SourceExport{Cluster: "c", UID: "uc"}}},
			Observation: seen([]model.Problem{{Cluster: "c", Reason: model.ReasonAddressOverlap, Message: "overlap"}}, "a", "c"),
		}, namespaceReady, "comity-b-to-a Imported ua, comity-b-to-c AddressOverlap uc"},
		{"what is not exported any more is cleared", web, parts{
			Members: []model.Member{member("a", true, model.Connected)},
		}, namespaceReady, ""},
		{"unless its source was not read", web, parts{
			Members: []model.Member{member("a", false, model.Connected)},
		}, namespaceReady, "comity-b-to-a kept"},
		{"or it is missing", web, parts{
			Members: []model.Member{member("a", true, model.Connected)}, Observation: sourcesOf(model.Source{Cluster: "a", State: model.SourceMissing}),
		}, namespaceReady, "comity-b-to-a kept"},
		{"nothing new is said before the loop looked", web, parts{
			Members: []model.Member{member("a", true, model.Connected)}, Exports: []model.Export{{SourceExport: model.SourceExport{Cluster: "a"}}},
		}, namespaceReady, "comity-b-to-a kept"},
		{"nothing is written where nothing can be", web, parts{
			Members: []model.Member{member("a", true, model.Connected), member("c", true, model.Connected)},
			Exports: []model.Export{{SourceExport: model.SourceExport{Cluster: "a", UID: "ua"}}, {SourceExport: model.SourceExport{Cluster: "c", UID: "uc"}}}, Observation: seen(nil, "a", "c"), Unavailable: map[string]string{"comity-b-to-a": "missing"},
		}, namespaceReady, "comity-b-to-a kept, comity-b-to-c Imported uc"},
		{"an odd id", web, parts{
			Members: []model.Member{member(odd, true, model.Connected)}, Exports: []model.Export{{SourceExport: model.SourceExport{Cluster: odd, UID: "u"}}}, Observation: seen(nil, odd),
		}, namespaceReady, oddNamespace + " Imported u"},
		{"a lost cluster that was read hears of its export", web, parts{
			Members: []model.Member{member("a", true, model.Lost)}, Exports: []model.Export{{SourceExport: model.SourceExport{Cluster: "a", UID: "ua"}}}, Observation: seen(nil, "a"),
		}, namespaceReady, "comity-b-to-a Imported ua"},
		{"whose record is refused hears it, wherever the others are", web, parts{
			Members: []model.Member{member("a", true, model.Connected), member("c", true, model.Connected)},
			Exports: []model.Export{{SourceExport: model.SourceExport{Cluster: "c", UID: "uc"}}}, Refusals: map[model.ClusterID]model.Refusal{"a": {ExportUID: "ua", Field: "spec.ports"}}, Observation: seen(nil, "c"),
		}, namespaceReady, "comity-b-to-a InvalidRecord ua, comity-b-to-c Imported uc"},
		{"unless it is missing", web, parts{
			Members: []model.Member{member("a", true, model.Connected)}, Observation: sourcesOf(model.Source{Cluster: "a", State: model.SourceMissing}),
			Refusals: map[model.ClusterID]model.Refusal{"a": {ExportUID: "ua", Field: "spec.ports"}},
		}, namespaceReady, "comity-b-to-a kept"},
		{"an export that ended, and that the import lists still", web, parts{
			Members: []model.Member{member("a", true, model.Connected), member("c", false, model.Lost)},
			Observation: sourcesOf(model.Source{Cluster: "a", UID: "ua", State: model.SourceEnded}, model.Source{Cluster: "b", UID: "own", State: model.SourceEnded},
				model.Source{Cluster: "left", UID: "u", State: model.SourceEnded}),
		}, namespaceReady, "comity-b-to-a Imported ua, comity-b-to-c kept"},
		{"one that is suspended is not reported", web, parts{
			Members: []model.Member{member("a", true, model.Connected)}, Observation: sourcesOf(model.Source{Cluster: "a", UID: "ua", State: model.SourceSuspended}),
		}, namespaceReady, ""},
		{"what was reported to a cluster that was removed is cleared", web, parts{
			Members: []model.Member{member("a", true, model.Connected)}, Removed: []model.ClusterID{"a"},
		}, namespaceReady, ""},
		{"there is no namespace", web, parts{
			Members: []model.Member{member("a", true, model.Connected)}, Exports: []model.Export{{SourceExport: model.SourceExport{Cluster: "a", UID: "ua"}}},
		}, namespaceMissing, "comity-b-to-a NamespaceMissing ua"},
		{"Comity's own namespace", types.NamespacedName{Namespace: "comity-system", Name: "web"}, parts{
			Members: []model.Member{member("a", true, model.Connected)}, Exports: []model.Export{{SourceExport: model.SourceExport{Cluster: "a", UID: "ua"}}},
		}, namespaceReserved, "comity-b-to-a NamespaceReserved ua"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v := c.view.view("b")
			v.Key, v.Namespace = c.key, c.namespace
			for _, p := range v.Peers {
				record := &exchangev1alpha1.ImportRecord{}
				record.Namespace = model.ScopedExchangeNamespace("b", p.ID)
				v.Records = append(v.Records, record)
			}
			desired, current := Report(v)
			var got []string
			for at, spec := range desired {
				got = append(got, fmt.Sprint(at, " ", spec.Reason, " ", spec.ExportUID))
			}
			for _, record := range v.Records {
				if _, is := desired[record.Namespace]; !is && !slices.Contains(current, record) {
					got = append(got, record.Namespace+" kept")
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnExportIsReportedAsImportedWhileAnyOfItsEndpointsIs(t *testing.T) {
	s := newStory(t, "c")
	s.publishes("c", at(-10))
	s.peer("c").Problems = []model.Problem{{Reason: model.ReasonAddressOverlap, Cluster: "c", Message: "one address is left out"}}
	for _, endpoints := range [][]discoveryv1.Endpoint{s.peer("c").Slices[0].Endpoints, nil} {
		s.peer("c").Slices[0].Endpoints = endpoints
		s.step()
		desired, _ := Report(ReportView{Key: web, Self: "a", Namespace: namespaceReady, Peers: s.v.Peers, Observation: s.last.Finding.Observation})
		if got := desired["comity-a-to-c"]; got.Imported != (len(endpoints) > 0) || got.Reason != model.ReasonAddressOverlap {
			t.Errorf("with %d endpoints: %+v", len(endpoints), got)
		}
	}
}
