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
	return model.Source{Cluster: id, Liveness: model.Liveness{State: state, Since: since, Confirmed: confirmed}}
}

func well(ids ...model.ClusterID) []model.Source {
	var list []model.Source
	for _, id := range ids {
		list = append(list, source(id, model.Connected, time.Time{}, time.Time{}))
	}
	return list
}

func TestSourcesAvailable(t *testing.T) {
	told := source("b", model.Stale, eleven, ten)
	told.Liveness.Reason, told.Liveness.Message = "Unauthorized", "the token expired; run kubectl comity join again"
	dead := source("d", model.Lost, eleven, ten)
	dead.Withdrawn = true
	cases := []struct {
		name    string
		sources []model.Source
		want    string
	}{
		{"one that is well", well("b"), "True/Connected: the only cluster that exports it is connected: b"},
		{"all are well", well("c", "a", "b"), "True/Connected: all 3 clusters that export it are connected: a, b, c"},
		{
			"one is stale", append(well("a"), told),
			"Unknown/Stale: 1 of 2 clusters that export it are connected; b (since 2026-11-21T11:02:11Z, last confirmed 2026-11-21T10:02:11Z) " +
				"is Stale: Unauthorized: the token expired; run kubectl comity join again; its endpoints stay in use",
		},
		{
			"one was never heard of", list1(source("b", model.Lost, eleven, time.Time{})),
			"False/Lost: 0 of 1 clusters that export it are connected; b (since 2026-11-21T11:02:11Z) is Lost; " +
				"its endpoints stay in use as long as they answer; bring the cluster back or remove it",
		},
		{
			"the worst comes first", append(well("a"), told, source("e", model.Stale, ten, ten), dead),
			"False/Withdrawn: 1 of 4 clusters that export it are connected; d (since 2026-11-21T11:02:11Z, last confirmed 2026-11-21T10:02:11Z) " +
				"is Withdrawn; its endpoints do not answer either and get no traffic; bring the cluster back or remove it; " +
				"b (since 2026-11-21T11:02:11Z, last confirmed 2026-11-21T10:02:11Z), e (since 2026-11-21T10:02:11Z, last confirmed 2026-11-21T10:02:11Z) " +
				"are Stale (b: Unauthorized: the token expired; run kubectl comity join again); their endpoints stay in use",
		},
		{
			"a state that nobody set", []model.Source{{Cluster: "b"}},
			"Unknown/Pending: 0 of 1 clusters that export it are connected; b is Pending; whether it is connected is not known yet",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for range 10 {
				rand.Shuffle(len(c.sources), func(i, j int) { c.sources[i], c.sources[j] = c.sources[j], c.sources[i] })
				if diff := cmp.Diff("Available="+c.want, short([]metav1.Condition{worstSource(c.sources)})[0]); diff != "" {
					t.Fatal(diff)
				}
			}
		})
	}
}

func list1(s model.Source) []model.Source { return []model.Source{s} }

func TestSourcesAreBoundWithAHundredClusters(t *testing.T) {
	var all, gone []model.Source
	for i := range 100 {
		id := model.ClusterID(fmt.Sprintf("%03d-%s", i, strings.Repeat("x", 59)))
		all = append(all, well(id)...)
		s := source(id, []model.LivenessState{model.Stale, model.Lost}[i%2], eleven, ten)
		s.Withdrawn, s.Liveness.Message = i%3 == 0, strings.Repeat("é", 400)
		gone = append(gone, s)
	}
	if got, want := worstSource(all).Message, "all 100 clusters that export it are connected"; got != want {
		t.Errorf("got %q", got)
	}
	got := worstSource(gone).Message
	if len(got) > condition.MaxMessage || !strings.Contains(got, "0 of 100") || !strings.HasSuffix(got, "more clusters") {
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
	stored := func(sources ...model.Source) metav1.Condition { return at(worstSource(sources), 3, before) }
	lost := stored(append(well("a"), source("b", model.Lost, ten, ten))...)
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
		{"lost before a restart, and being connected to since", lost, seen("b", well("a", "b")...), true},
		{"lost before a restart, and only stale since", lost, seen("b", append(well("a"), source("b", model.Stale, eleven, time.Time{}))...), true},
		{"lost before a restart, and lost again", lost, seen("b", append(well("a"), source("b", model.Lost, eleven, time.Time{}))...), true},
		{"lost before a restart, and read since", lost, seen("", well("a", "b")...), false},
		{"lost before a restart and again, and another is stale", lost, seen("b", source("a", model.Stale, eleven, ten), source("b", model.Lost, eleven, time.Time{})), false},
		{"well before a restart, and stale since", fine, seen("b", append(well("a"), source("b", model.Stale, eleven, time.Time{}))...), false},
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

func TestDeletionHeld(t *testing.T) {
	hold := model.Hold{Cluster: "b", Since: ten, Until: eleven, Message: "60 of 100 exports of b vanished within a minute; annotate Secret comity/b"}
	told := at(condition.DeletionHeld("an export of cluster b is missing, and what was imported from it is kept (since 2026-11-21T10:02:11Z, until 2026-11-21T11:02:11Z at the latest): "+hold.Message), 3, now)
	const unknown, ofB = model.ClusterID(""), model.ClusterID("b")
	cases := []struct {
		name  string
		old   []metav1.Condition
		shown model.ClusterID
		seen  *model.Observation
		want  *metav1.Condition
	}{
		{"nothing is held", nil, unknown, &model.Observation{}, nil},
		{"something is", nil, unknown, &model.Observation{Held: []model.Hold{hold}}, &told},
		{"the hold is over", []metav1.Condition{told}, unknown, &model.Observation{}, nil},
		{"before the loop looked", []metav1.Condition{told}, unknown, nil, &told},
		{"the cluster was not read since", []metav1.Condition{told}, unknown, &model.Observation{Unsynced: []model.ClusterID{"b"}}, &told},
		{"another cluster was not read since", []metav1.Condition{told}, unknown, &model.Observation{Unsynced: []model.ClusterID{"c"}}, nil},
		{"another cluster was not read since, whose id is a word of the message", []metav1.Condition{told}, unknown, &model.Observation{Unsynced: []model.ClusterID{"a"}}, nil},
		{"a source was not read since, and the hold may be its own", []metav1.Condition{told}, unknown, &model.Observation{Unsynced: []model.ClusterID{"c", "z"}}, &told},
		{"a source was not read since, and the hold was another's", []metav1.Condition{told}, ofB, &model.Observation{Unsynced: []model.ClusterID{"z"}}, nil},
		{"the cluster was connected to again and is not read yet", []metav1.Condition{told}, ofB, &model.Observation{Unsynced: []model.ClusterID{"b"}}, &told},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in := state(c.seen, c.old...)
			in.Import.Status.Clusters = entries("b", "z")
			if c.shown != unknown {
				in.ShownHolds = []model.ClusterID{c.shown}
			}
			status := Import(in, now)
			if diff := cmp.Diff(c.want, meta.FindStatusCondition(status.Conditions, condition.TypeDeletionHeld)); diff != "" {
				t.Error(diff)
			}
			gone := len(c.old) > 0 && c.want == nil
			in.Import.Status.Conditions = append(in.Import.Status.Conditions, status.Conditions[0])
			in.Import.Status.EndpointSliceObjects = mcsv1beta1.EndpointSliceObjectsPresent
			if gone && SameImport(in.Import.Status, status) {
				t.Error("a condition that should go would stay")
			}
		})
	}
}

func TestWhatIsLeftOutStopsAnImportOnlyIfNothingRemains(t *testing.T) {
	refused := model.Problem{Reason: model.ReasonAddressNotAccepted, Cluster: "b", Message: "3 endpoints; see Secret comity/b"}
	family := model.Problem{Reason: model.ReasonIPFamilyNotSupported, Message: "this cluster has only IPv4"}
	contested := model.Problem{Reason: model.ReasonContested, Message: "somebody changes Service derived-1"}
	const works = "Ready=True/Ready: web.default.svc.clusterset.local resolves to 10.0.0.9 and leads to cluster b"
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
	old := []metav1.Condition{condition.Valid(condition.ReasonValid, "m"), condition.NoConflicts("m"), condition.Available(condition.ReasonImported, "m")}
	with := func(changed ...metav1.Condition) []metav1.Condition {
		all := append([]metav1.Condition(nil), old...)
		for _, c := range changed {
			meta.SetStatusCondition(&all, c)
		}
		return all
	}
	conflicting := condition.Conflict([]mcsv1beta1.ServiceExportConditionReason{"PortConflict"}, "m")
	for name, c := range map[string]struct {
		wanted []metav1.Condition
		want   Urgency
	}{
		"nothing":                     {with(), Urgency{}},
		"a conflict":                  {with(conflicting), Urgency{Deferrable: true}},
		"a report":                    {with(condition.Available("Lost", "m")), Urgency{Deferrable: true}},
		"a Service that went":         {with(condition.Valid(condition.ReasonNoService, "m")), Urgency{Urgent: true}},
		"something new":               {with(condition.Admitted(condition.ReasonAdmitted, "m")), Urgency{Urgent: true}},
		"a conflict and a Service":    {with(conflicting, condition.Valid(condition.ReasonNoService, "m")), Urgency{Urgent: true, Deferrable: true}},
		"a conflict in another shape": {with(condition.NoConflicts("other words")), Urgency{Deferrable: true}},
	} {
		if got := ExportUrgency(old, c.wanted); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
	was := mcsv1beta1.ServiceImportStatus{Conditions: []metav1.Condition{
		condition.ImportReady(condition.ReasonImportReady, "m"), condition.SourcesAvailable(condition.ReasonConnected, "m"), condition.DeletionHeld("m"),
	}}
	for name, c := range map[string]struct {
		change func(*mcsv1beta1.ServiceImportStatus)
		want   Urgency
	}{
		"other words":           {func(s *mcsv1beta1.ServiceImportStatus) { s.Conditions[0].Message = "n" }, Urgency{Deferrable: true}},
		"no use any more":       {func(s *mcsv1beta1.ServiceImportStatus) { s.Conditions[0].Status = "False" }, Urgency{Urgent: true}},
		"a lost cluster":        {func(s *mcsv1beta1.ServiceImportStatus) { s.Conditions[1].Reason = "Lost" }, Urgency{Deferrable: true}},
		"the end of a hold":     {func(s *mcsv1beta1.ServiceImportStatus) { s.Conditions = s.Conditions[:2] }, Urgency{Deferrable: true}},
		"another source":        {func(s *mcsv1beta1.ServiceImportStatus) { s.Clusters = entries("b") }, Urgency{Urgent: true}},
		"the first slice of it": {func(s *mcsv1beta1.ServiceImportStatus) { s.EndpointSliceObjects = "Present" }, Urgency{Urgent: true}},
	} {
		wanted := was.DeepCopy()
		c.change(wanted)
		if got := ImportUrgency(was, *wanted); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
