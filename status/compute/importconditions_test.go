// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

func source(id model.ClusterID, state model.LivenessState, since, confirmed time.Time) model.Source {
	return model.Source{Cluster: id, State: model.SourcePublished, Liveness: model.Liveness{State: state, Since: since, Confirmed: confirmed}}
}

func well(ids ...model.ClusterID) []model.Source {
	var list []model.Source
	for _, id := range ids {
		list = append(list, source(id, model.Connected, time.Time{}, time.Time{}))
	}
	return list
}

func TestSourcesAvailable(t *testing.T) {
	told := source("b", model.Lost, eleven, ten)
	told.Liveness.Reason, told.Liveness.Message = "Unauthorized", "the token expired; run kubectl comity join again"
	drained := well("c")[0]
	drained.Drained = true
	dead := source("d", model.Lost, eleven, ten)
	dead.Down = true
	cases := []struct {
		name    string
		sources []model.Source
		want    string
	}{
		{"one that is well", well("b"), "True/Connected: the only cluster that exports it is connected: b"},
		{"all are well", well("c", "a", "b"), "True/Connected: all 3 clusters that export it are connected: a, b, c"},
		{
			"one is lost", append(well("a"), told),
			"False/Lost: 1 of 2 clusters that export it are connected; Lost in b: endpoints there stay in use as long as they answer; " +
				"bring the cluster back or remove it: Unauthorized: the token expired; run kubectl comity join again",
		},
		{
			"one is drained", append(well("a"), drained),
			"True/Drained: all 2 clusters that export it are connected: a, c; Drained in c: endpoints there are the last resort until kubectl comity resume",
		},
		{
			"one was never heard of", list1(source("b", model.Lost, eleven, time.Time{})),
			"False/Lost: 0 of 1 clusters that export it are connected; Lost in b: " +
				"endpoints there stay in use as long as they answer; bring the cluster back or remove it",
		},
		{
			"the worst comes first", append(well("a"), told, source("e", model.Lost, ten, ten), dead),
			"False/Withdrawn: 1 of 4 clusters that export it are connected; Withdrawn in d: endpoints there do not answer either and are the last resort; bring the cluster back or remove it; " +
				"Lost in b, e: in b: endpoints there stay in use as long as they answer; bring the cluster back or remove it: Unauthorized: the token expired; run kubectl comity join again",
		},
		{
			"a state that nobody set", []model.Source{{Cluster: "b"}},
			"Unknown/Pending: 0 of 1 clusters that export it are connected; not reported yet by b",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for range 10 {
				rand.Shuffle(len(c.sources), func(i, j int) { c.sources[i], c.sources[j] = c.sources[j], c.sources[i] })
				if diff := cmp.Diff("Available="+c.want, short([]metav1.Condition{condition.SourcesAvailable(worstSource(c.sources))})[0]); diff != "" {
					t.Fatal(diff)
				}
			}
		})
	}
}

func TestTheTierThatServesIsSaid(t *testing.T) {
	drained := well("b")[0]
	drained.Drained = true
	for _, c := range []struct {
		serving int
		sources []model.Source
		want    string
	}{
		{0, well("a", "b"), "Available=True/Connected: tier 1 of 2 (self) serves, from a"},
		{1, well("a", "b"), "Available=True/LaterTier: tier 2 of 2 (*) serves, from a"},
		{1, append(well("a"), drained), "Available=True/Drained: tier 2 of 2 (*) serves, from a"},
		{-1, well("a", "b"), "Available=True/Connected: "},
	} {
		tiers := &model.TiersInForce{Tiers: []string{"self", "*"}, Serving: c.serving, From: []model.ClusterID{"a"}}
		if got := short(sourcesAvailable(state(&model.Observation{Sources: c.sources, Tiers: tiers})))[0]; !strings.HasPrefix(got, c.want) {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func list1(s model.Source) []model.Source { return []model.Source{s} }

func TestSourcesAreBoundWithAHundredClusters(t *testing.T) {
	var all, gone []model.Source
	for i := range 100 {
		id := model.ClusterID(fmt.Sprintf("%03d-%s", i, strings.Repeat("x", 59)))
		all = append(all, well(id)...)
		s := source(id, model.Lost, eleven, ten)
		s.Down, s.Liveness.Message = i%3 == 0, strings.Repeat("é", 400)
		gone = append(gone, s)
	}
	if got, want := condition.SourcesAvailable(worstSource(all)).Message, "all 100 clusters that export it are connected"; got != want {
		t.Errorf("got %q", got)
	}
	got := condition.SourcesAvailable(worstSource(gone)).Message
	if len(got) > condition.MaxMessage || !strings.Contains(got, "0 of 100") || !strings.Contains(got, " more") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

// state is an import with the conditions that it has and what is seen of it now.
func state(seen *model.Observation, old ...metav1.Condition) ImportInput {
	in := ImportInput{Import: serviceImport(mcsv1beta1.ClusterSetIP, "10.0.0.9"), Derived: &corev1.Service{}, Slices: true, Endpoints: true, Observation: seen}
	in.Import.Status.Conditions = old
	return in
}

func TestSourcesStayWhatTheyWereWhileUnsynced(t *testing.T) {
	stored := func(sources ...model.Source) metav1.Condition {
		return at(condition.SourcesAvailable(worstSource(sources)), 3, before)
	}
	down := func(s model.Source) model.Source { s.Down = true; return s }
	lost := stored(append(well("a"), down(source("b", model.Lost, ten, ten)))...)
	fine := stored(well("a", "b")...)
	seen := func(unread model.ClusterID, sources ...model.Source) *model.Observation {
		o := &model.Observation{Sources: sources}
		if unread != "" {
			o.Unsynced = []model.ClusterID{unread}
		}
		return o
	}
	cases := []struct {
		name  string
		old   metav1.Condition
		seen  *model.Observation
		stays bool
	}{
		{"before the loop looked", lost, nil, true},
		{"down before a restart, and being connected to since", lost, seen("b", well("a", "b")...), true},
		{"down before a restart, and only lost since", lost, seen("b", append(well("a"), source("b", model.Lost, eleven, time.Time{}))...), true},
		{"down before a restart, and down again", lost, seen("b", append(well("a"), down(source("b", model.Lost, eleven, time.Time{})))...), true},
		{"down before a restart, and read since", lost, seen("", well("a", "b")...), false},
		{"down before a restart and again, and another is lost", lost, seen("b", source("a", model.Lost, eleven, ten), down(source("b", model.Lost, eleven, time.Time{}))), false},
		{"well before a restart, and lost since", fine, seen("b", append(well("a"), source("b", model.Lost, eleven, time.Time{}))...), false},
		{"gone, as are all others", lost, seen(""), false},
		{"none is known to contribute while one is unread", lost, seen("b"), true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := meta.FindStatusCondition(Import(state(c.seen, c.old), now).Conditions, condition.TypeAvailable)
			if (got != nil && cmp.Equal(*got, c.old)) != c.stays {
				t.Errorf("got %+v, want it to stay: %t", got, c.stays)
			}
		})
	}
}

// conditionsOf are the conditions of an import about its sources, as "type: message".
func conditionsOf(seen *model.Observation, old ...metav1.Condition) []string {
	var out []string
	for _, c := range Import(state(seen, old...), now).Conditions {
		if c.Type != condition.TypeImportReady && c.Type != condition.TypeAvailable {
			out = append(out, c.Type+"="+string(c.Status)+"/"+c.Reason+": "+c.Message)
		}
	}
	return out
}

// Everything that waits is said, with the cluster and the command.
func TestWhatWaitsIsSaid(t *testing.T) {
	const takeover = "kubectl comity confirm takeover default/web --from CLUSTER"
	const head = "no property of the import changes, because the export of cluster b decides it, and "
	const missing = "SourceMissing=True/Missing: the export of cluster b is missing since 2026-11-21T10:02:11Z although it was not withdrawn, and what was imported from it is kept; " +
		"restore it (kubectl comity join restores exchange namespaces), or confirm that it is gone: kubectl comity confirm missing b"
	lost := model.Liveness{State: model.Lost, Message: "connection refused"}
	well := model.Liveness{State: model.Connected}
	for name, c := range map[string]struct {
		source model.Source
		freeze *model.Freeze
		want   []string
	}{
		"nothing": {model.Source{State: model.SourcePublished}, nil, nil},
		"an export is missing, and does not decide": {model.Source{State: model.SourceMissing, Since: ten}, nil, []string{missing}},
		"an export is missing, and decides": {model.Source{State: model.SourceMissing, Since: ten}, &model.Freeze{By: model.Source{State: model.SourceMissing, Since: ten}}, []string{missing,
			"Frozen=True/Missing: " + head + "that export is missing since 2026-11-21T10:02:11Z; if it is gone for good: kubectl comity confirm missing b; or let another export decide: " + takeover}},
		"it is missing, and its cluster cannot be read any more": {model.Source{State: model.SourceNotRead, Since: ten, Liveness: lost}, nil, []string{missing}},
		"its cluster is not read": {model.Source{State: model.SourceNotRead, Liveness: lost}, &model.Freeze{By: model.Source{State: model.SourceNotRead, Why: "connection refused"}}, []string{
			"Frozen=True/NotRead: " + head + "cluster b is not read: connection refused; if it is gone for good: kubectl comity leave --id b <context of this cluster>; or let another export decide: " + takeover}},
		"FAULT 48: its cluster has no Peer": {model.Source{State: model.SourceNotRead, Liveness: model.Liveness{State: model.Lost}}, &model.Freeze{By: model.Source{State: model.SourceNotRead, Why: "there is no Peer b"}}, []string{
			"Frozen=True/NotRead: " + head + "cluster b is not read: there is no Peer b; if it is gone for good: kubectl comity leave --id b <context of this cluster>; or let another export decide: " + takeover}},
		"its cluster is read, and a policy fails": {model.Source{State: model.SourceNotRead, Liveness: well}, &model.Freeze{By: model.Source{State: model.SourceNotRead, Why: "deadline"}}, []string{
			"Frozen=True/NotRead: " + head + "it is not known whether that may be imported: deadline; or let another export decide: " + takeover}},
		"its cluster is being connected to": {model.Source{State: model.SourceNotRead, Liveness: well, Starting: true}, &model.Freeze{By: model.Source{State: model.SourceNotRead}}, nil},
		"it was deleted": {model.Source{State: model.SourceEnded, Since: ten}, &model.Freeze{By: model.Source{State: model.SourceEnded}, Until: eleven}, []string{
			"Frozen=True/Ended: " + head + "was deleted; the next export decides from 2026-11-21T11:02:11Z on"}},
		"it was withdrawn": {model.Source{State: model.SourceSuspended, Since: ten}, &model.Freeze{By: model.Source{State: model.SourceSuspended}, Until: eleven}, []string{
			"Frozen=True/Suspended: " + head + "was withdrawn; the next export decides from 2026-11-21T11:02:11Z on"}},
		"it is refused": {model.Source{State: model.SourceRefused, Since: ten}, &model.Freeze{By: model.Source{State: model.SourceRefused, Why: "no imports from b"}, Until: eleven}, []string{
			"Frozen=True/Refused: " + head + "is refused here: no imports from b; the next export decides from 2026-11-21T11:02:11Z on"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.source.Cluster = "b"
			if c.freeze != nil {
				c.freeze.By.Cluster, c.freeze.By.Liveness, c.freeze.By.Starting = "b", c.source.Liveness, c.source.Starting
			}
			if diff := cmp.Diff(c.want, conditionsOf(&model.Observation{Sources: []model.Source{c.source}, Freeze: c.freeze})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestARestartChangesNoConditionOfWhatWaits(t *testing.T) {
	missing := model.Source{Cluster: "b", State: model.SourceMissing, Since: ten, Liveness: model.Liveness{State: model.Connected}}
	before := &model.Observation{
		Sources: []model.Source{missing}, Freeze: &model.Freeze{By: missing},
		Takeovers: []model.Takeover{{Decider: model.SourceExport{Cluster: "b"}, By: model.SourceExport{Cluster: "c"}, Fields: []string{"type"}}},
	}
	stored := Import(state(before), now).Conditions
	want := conditionsOf(before)
	starting := missing
	starting.State, starting.Starting = model.SourceNotRead, true
	partly := &model.Observation{Sources: []model.Source{starting, {Cluster: "c", State: model.SourceNotRead, Starting: true}}, Freeze: &model.Freeze{By: starting}}
	wrongly := *partly
	wrongly.Takeovers = []model.Takeover{{Decider: model.SourceExport{Cluster: "a"}, By: model.SourceExport{Cluster: "c"}, Fields: []string{"ports"}}}
	for name, seen := range map[string]*model.Observation{"before the first result": nil, "no member was read": partly, "not all members were read": &wrongly, "all were": before} {
		if diff := cmp.Diff(want, conditionsOf(seen, stored...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	status := Import(state(&model.Observation{}, stored...), now)
	if got := conditionsOf(&model.Observation{}, stored...); len(got) > 0 || SameImport(mcsv1beta1.ServiceImportStatus{Conditions: stored, EndpointSliceObjects: status.EndpointSliceObjects}, status) {
		t.Errorf("once nothing waits: %v", got)
	}
}

func TestWhatIsLeftOutStopsAnImportOnlyIfNothingRemains(t *testing.T) {
	refused := model.Problem{Reason: model.ReasonAddressNotAccepted, Cluster: "b", Message: "3 endpoints; see Secret comity/b"}
	family := model.Problem{Reason: model.ReasonIPFamilyNotSupported, Message: "this cluster has only IPv4"}
	contested := model.Problem{Reason: model.ReasonContested, Message: "somebody changes Service derived-1"}
	const works = "Ready=True/Ready: web.default.svc.clusterset.local resolves to 10.0.0.9; exported by cluster b"
	const left = "AddressNotAccepted in b: 3 endpoints; see Secret comity/b"
	cases := []struct {
		name      string
		endpoints bool
		problems  []model.Problem
		want      string
	}{
		{"some addresses", true, []model.Problem{contested, refused}, works + "; " + left + "; Contested: somebody changes Service derived-1"},
		{"all addresses", false, []model.Problem{contested, refused}, "Ready=False/AddressNotAccepted: 3 endpoints; see Secret comity/b; Contested: somebody changes Service derived-1"},
		{"no endpoint, and nothing was left out", false, []model.Problem{contested}, works + "; Contested: somebody changes Service derived-1"},
		{"a family that the cluster has not", true, []model.Problem{family, refused}, "Ready=False/IPFamilyNotSupported: this cluster has only IPv4; " + left},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			seen := from("b")
			seen.Problems = c.problems
			in := state(seen)
			in.Endpoints = c.endpoints
			if diff := cmp.Diff(c.want, short(Import(in, now).Conditions)[0]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAForeignImportIsGivenWhatComityKnows(t *testing.T) {
	seen := from("b", "c")
	seen.Sources = well("b", "c")
	in := ImportInput{Import: serviceImport(mcsv1beta1.ClusterSetIP), Foreign: true, Observation: seen}
	want := []string{
		"Ready=False/Pending: the implementation that made this ServiceImport has not given it an IP yet; exported by clusters b, c",
		"Available=True/Connected: all 2 clusters that export it are connected: b, c",
	}
	got := Import(in, now)
	if diff := cmp.Diff(want, short(got.Conditions)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(entries("b", "c"), got.Clusters); diff != "" || got.EndpointSliceObjects != "" {
		t.Errorf("endpointSliceObjects %q; clusters %s", got.EndpointSliceObjects, diff)
	}
	in.Import.Spec.IPs = []string{"10.0.0.9"}
	if got := short(Import(in, now).Conditions)[0]; got != "Ready=True/Ready: made by another implementation than Comity; exported by clusters b, c" {
		t.Errorf("got %q", got)
	}
	in.Observation = &model.Observation{}
	if diff := cmp.Diff(mcsv1beta1.ServiceImportStatus{}, Import(in, now)); diff != "" {
		t.Errorf("nobody of ours exports it: %s", diff)
	}
}

func TestWhatOtherClustersCauseIsDeferrable(t *testing.T) {
	old := []metav1.Condition{condition.Valid(condition.ReasonValid, "m"), condition.Conflict("NoConflicts", "m"), condition.Available(model.ReasonImported, "m")}
	with := func(changed ...metav1.Condition) []metav1.Condition {
		all := append([]metav1.Condition(nil), old...)
		for _, c := range changed {
			meta.SetStatusCondition(&all, c)
		}
		return all
	}
	conflicting := condition.Conflict("PortConflict", "m")
	for name, c := range map[string]struct {
		wanted []metav1.Condition
		want   bool
	}{
		"nothing":                     {with(), false},
		"a conflict":                  {with(conflicting), false},
		"a report":                    {with(condition.Available("Lost", "m")), false},
		"a Service that went":         {with(condition.Valid(condition.ReasonNoService, "m")), true},
		"something new":               {with(condition.Admitted(condition.ReasonAdmitted, "m")), true},
		"a conflict and a Service":    {with(conflicting, condition.Valid(condition.ReasonNoService, "m")), true},
		"a conflict in another shape": {with(condition.Conflict("NoConflicts", "other words")), false},
	} {
		if got := Urgent(old, c.wanted); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
	was := mcsv1beta1.ServiceImportStatus{Conditions: []metav1.Condition{
		condition.ImportReady(condition.ReasonImportReady, "m"), condition.SourcesAvailable(condition.ReasonConnected, "m"), condition.TakeoverHeld(model.ReasonTakeoverHeld, "m"),
	}}
	for name, c := range map[string]struct {
		change func(*mcsv1beta1.ServiceImportStatus)
		want   bool
	}{
		"other words":           {func(s *mcsv1beta1.ServiceImportStatus) { s.Conditions[0].Message = "n" }, false},
		"no use any more":       {func(s *mcsv1beta1.ServiceImportStatus) { s.Conditions[0].Status = "False" }, true},
		"a lost cluster":        {func(s *mcsv1beta1.ServiceImportStatus) { s.Conditions[1].Reason = "Lost" }, false},
		"the end of a hold":     {func(s *mcsv1beta1.ServiceImportStatus) { s.Conditions = s.Conditions[:2] }, false},
		"another source":        {func(s *mcsv1beta1.ServiceImportStatus) { s.Clusters = entries("b") }, true},
		"the first slice of it": {func(s *mcsv1beta1.ServiceImportStatus) { s.EndpointSliceObjects = "Present" }, true},
	} {
		wanted := was.DeepCopy()
		c.change(wanted)
		if got := ImportUrgent(was, *wanted); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
