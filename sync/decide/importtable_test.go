// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// Cluster b decides an import to which c belongs, too. Then something happens to b.
func TestEachRowOfTheTable(t *testing.T) {
	const serves = "b c; ClusterSetIP http/80; from b c"
	confirm := func(s *story, before time.Time) { s.peer("b").ConfirmMissingBefore = before }
	for _, row := range []struct {
		state  model.SourceState
		name   string
		change func(*story)
		now    string
		// later is what is a minute after that.
		later string
	}{
		{model.SourceRemoved, "the member is removed", func(s *story) { s.removed("b") }, "c; ClusterSetIP http/80; from c", "c; ClusterSetIP http/80; from c"},
		{model.SourceRemoved, "even if it is unread", func(s *story) { s.unread("b"); s.step(); s.removed("b") }, "c; ClusterSetIP http/80; from c", "c; ClusterSetIP http/80; from c"},

		{model.SourceEnded, "its withdrawal is stated", func(s *story) { s.deletes("b") },
			"b(Ended) c; ClusterSetIP http/80; from c; frozen by b: Ended", "c; ClusterSetIP http/80; from c"},
		{model.SourceEnded, "that of one created later is", func(s *story) {
			s.loses("b")
			s.peer("b").Withdrawals = []model.Withdrawal{{UID: "later", CreatedAt: at(-20)}}
		}, "b(Ended) c; ClusterSetIP http/80; from c; frozen by b: Ended", "c; ClusterSetIP http/80; from c"},
		{model.SourceEnded, "and then b is not read any more", func(s *story) { s.deletes("b"); s.step(); s.unread("b") },
			"b(Ended) c; ClusterSetIP http/80; from c; frozen by b: Ended", "c; ClusterSetIP http/80; from c"},
		{model.SourceMissing, "that of one created earlier is, which a restored store has", func(s *story) {
			s.loses("b")
			s.peer("b").Withdrawals = []model.Withdrawal{{UID: "earlier", CreatedAt: at(-40)}}
		}, "b(Missing) c; ClusterSetIP http/80; from b c; frozen by b: Missing", "b(Missing) c; ClusterSetIP http/80; from b c; frozen by b: Missing"},

		{model.SourceSuspended, "it is withdrawn while its ServiceExport exists", func(s *story) { s.withdraws("b", true) },
			"b(Suspended) c; ClusterSetIP http/80; from c; frozen by b: Suspended", "b(Suspended) c; ClusterSetIP http/80; from c"},
		{model.SourceSuspended, "and then the statement is lost", func(s *story) { s.withdraws("b", true); s.step(); s.loses("b") },
			"b(Suspended) c; ClusterSetIP http/80; from c; frozen by b: Suspended", "b(Suspended) c; ClusterSetIP http/80; from c"},
		{model.SourceSuspended, "its scope leaves this cluster out", func(s *story) {
			s.withdraws("b", false)
			s.peer("b").Withdrawals[0].Narrowed = true
		}, "b(Suspended) c; ClusterSetIP http/80; from c; frozen by b: Suspended", "b(Suspended) c; ClusterSetIP http/80; from c"},

		{model.SourceRefused, "its Peer does not accept the namespace", func(s *story) { s.peer("b").NotAccepted, s.peer("b").Export = true, nil },
			"b(Refused) c; ClusterSetIP http/80; from c; frozen by b: Refused", "b(Refused) c; ClusterSetIP http/80; from c"},
		{model.SourceRefused, "its Peer does not, and it is unread", func(s *story) { s.unread("b"); s.peer("b").NotAccepted = true },
			"b(Refused) c; ClusterSetIP http/80; from c; frozen by b: Refused", "b(Refused) c; ClusterSetIP http/80; from c"},
		{model.SourceRefused, "a policy refuses it", func(s *story) { s.peer("b").Verdict = &decision.Verdict{Outcome: decision.Denied} },
			"b(Refused) c; ClusterSetIP http/80; from c; frozen by b: Refused", "b(Refused) c; ClusterSetIP http/80; from c"},
		{model.SourceRefused, "the annotation of the Namespace does not list it", func(s *story) {
			s.v.Local.Namespace.Annotations = map[string]string{model.AnnotationImportFrom: "c"}
		}, "b(Refused) c; ClusterSetIP http/80; from c; frozen by b: Refused", "b(Refused) c; ClusterSetIP http/80; from c"},
		{model.SourceRefused, "the namespace there has another identity", func(s *story) {
			s.v.IdentityLabels = []string{"team"}
			s.peer("b").Export.Identity, s.peer("c").Export.Identity = map[string]string{"team": "x"}, map[string]string{}
		}, "b(Refused) c; ClusterSetIP http/80; from c; frozen by b: Refused", "b(Refused) c; ClusterSetIP http/80; from c"},

		{model.SourceNotRead, "it is unread", func(s *story) { s.unread("b") }, serves + "; frozen by b: NotRead", serves + "; frozen by b: NotRead"},
		{model.SourceNotRead, "it has no Peer", func(s *story) { s.gone("b") }, serves + "; frozen by b: NotRead", serves + "; frozen by b: NotRead"},
		{model.SourceNotRead, "a policy cannot be evaluated", func(s *story) { s.peer("b").Verdict = &decision.Verdict{Problem: "deadline"} },
			serves + "; frozen by b: NotRead", serves + "; frozen by b: NotRead"},
		{model.SourceNotRead, "the identity of the namespace is not known", func(s *story) {
			s.v.IdentityLabels = []string{"team"}
			s.peer("c").Export.Identity = map[string]string{}
		}, serves + "; frozen by b: NotRead", serves + "; frozen by b: NotRead"},

		{model.SourceConfirmed, "it is missing, and that is confirmed", func(s *story) { s.loses("b"); s.step(); confirm(s, s.v.Now) },
			"c; ClusterSetIP http/80; from c", "c; ClusterSetIP http/80; from c"},
		{model.SourceMissing, "it is missing since the last confirmation", func(s *story) { confirm(s, s.v.Now.Add(-time.Second)); s.loses("b") },
			"b(Missing) c; ClusterSetIP http/80; from b c; frozen by b: Missing", "b(Missing) c; ClusterSetIP http/80; from b c; frozen by b: Missing"},
		{model.SourceNotRead, "it is missing, and then unread, and confirmed", func(s *story) { s.loses("b"); s.step(); s.unread("b"); confirm(s, s.v.Now) },
			"b(Missing) c; ClusterSetIP http/80; from b c; frozen by b: NotRead", "b(Missing) c; ClusterSetIP http/80; from b c; frozen by b: NotRead"},
		{model.SourceMissing, "nothing is stated of it", func(s *story) { s.loses("b") },
			"b(Missing) c; ClusterSetIP http/80; from b c; frozen by b: Missing", "b(Missing) c; ClusterSetIP http/80; from b c; frozen by b: Missing"},

		{model.SourcePublished, "it is published", func(*story) {}, serves, serves},
		{model.SourcePublished, "it changes a property", func(s *story) { s.publishes("b", at(-30), headless) }, "b c; Headless http/80; from b c", "b c; Headless http/80; from b c"},
		{model.SourcePublished, "it is back within a minute, though not the same", func(s *story) {
			s.withdraws("b", true)
			s.step()
			s.after(59 * time.Second)
			s.publishes("b", at(-30), port("http", 81))
		}, "b c; ClusterSetIP http/81; from b", "b c; ClusterSetIP http/81; from b"},
		{model.SourcePublished, "it is back after a day", func(s *story) { s.unread("b"); s.step(); s.after(24 * time.Hour); s.publishes("b", at(-30)) }, serves, serves},

		{model.SourceReplaced, "it is another one, and the same", func(s *story) { s.publishes("b", at(0), uid("anew")) }, serves, serves},
		{model.SourceReplaced, "it is another one, and not the same", func(s *story) { s.publishes("b", at(0), uid("anew"), headless) },
			"c b; ClusterSetIP http/80; from b c", "c b; ClusterSetIP http/80; from b c"},
		{model.SourceReplaced, "it is suspended for a minute, and back", func(s *story) {
			s.withdraws("b", true)
			s.step()
			s.after(time.Minute)
			s.publishes("b", at(-30))
		}, serves, serves},
		{model.SourceReplaced, "it is suspended for a minute, and back, and not the same", func(s *story) {
			s.withdraws("b", true)
			s.step()
			s.after(time.Minute)
			s.publishes("b", at(-30), port("http", 81))
		}, "c b; ClusterSetIP http/80; from c; held b over c: ports", "c b; ClusterSetIP http/80; from c; held b over c: ports"},

		{model.SourceJoined, "another one is published", func(s *story) { s.publishes("d", long, headless) },
			"b c d; ClusterSetIP http/80; from b c d; held d over b: type", "b c d; ClusterSetIP http/80; from b c d; held d over b: type"},
	} {
		t.Run(string(row.state)+": "+row.name, func(t *testing.T) {
			s := newStory(t, "b", "c", "d")
			s.publishes("b", at(-30))
			s.publishes("c", at(-25))
			s.is(serves)
			ip := s.ip()
			s.after(time.Hour)
			row.change(s)
			of := model.ClusterID("b")
			if row.state == model.SourceJoined {
				of = "d"
			}
			if got := stateOf(s, of); got != row.state {
				t.Errorf("the row is %s", got)
			}
			s.is(row.now)
			s.after(time.Minute)
			s.is(row.later)
			if got := s.ip(); got != ip && got != "" {
				t.Errorf("the clusterset IP was %s and is %s", ip, got)
			}
		})
	}
}

// stateOf is the row of a cluster in the next decision.
func stateOf(s *story, id model.ClusterID) model.SourceState {
	return newImporting(s.view()).sources[id].State
}

// statesIn are the states of the table in the comments of a file, in order.
func statesIn[State ~string](t *testing.T, file string) (states []State) {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile(`(?m)^//\t\| (\w+) \| .+ \| .+ \| .+ \|$`).FindAllStringSubmatch(string(source), -1)[1:] {
		states = append(states, State(row[1]))
	}
	return states
}

func TestTheTableHasARowForEachState(t *testing.T) {
	want := []model.SourceState{
		model.SourceRemoved, model.SourceEnded, model.SourceSuspended, model.SourceRefused, model.SourceNotRead,
		model.SourceConfirmed, model.SourceMissing, model.SourcePublished, model.SourceReplaced, model.SourceJoined,
	}
	if diff := cmp.Diff(want, statesIn[model.SourceState](t, "importtable.go")); diff != "" {
		t.Errorf("the rows are not the states (-want +got):\n%s", diff)
	}
}

// The own export follows the same rows.
func TestTheOwnExportIsASource(t *testing.T) {
	const serves = "a b; ClusterSetIP http/80; from a b"
	for name, c := range map[string]struct {
		change     func(*story)
		now, later string
	}{
		"published":                   {func(*story) {}, serves, serves},
		"deleted":                     {func(s *story) { s.v.Own.State, s.v.Local.Export = model.SourceEnded, nil }, "a(Ended) b; ClusterSetIP http/80; from b; frozen by a: Ended", "b; ClusterSetIP http/80; from b"},
		"denied by policies":          {func(s *story) { s.v.Own.State = model.SourceSuspended }, "a(Suspended) b; ClusterSetIP http/80; from b; frozen by a: Suspended", "a(Suspended) b; ClusterSetIP http/80; from b"},
		"not evaluated":               {func(s *story) { s.v.Own = OwnSource{State: model.SourceNotRead, Why: "deadline"} }, serves + "; frozen by a: NotRead", serves + "; frozen by a: NotRead"},
		"of a type that is not one":   {func(s *story) { s.v.Local.Service.Spec.Type = "ExternalName" }, "a(Suspended) b; ClusterSetIP http/80; from b; frozen by a: Suspended", "a(Suspended) b; ClusterSetIP http/80; from b"},
		"limited by no import policy": {func(s *story) { s.v.Local.Namespace.Annotations = map[string]string{model.AnnotationImportFrom: "b"} }, serves, serves},
		"denied, and then not evaluated": {func(s *story) {
			s.v.Own.State = model.SourceSuspended
			s.step()
			s.v.Own.State = model.SourceNotRead
		}, "a(Suspended) b; ClusterSetIP http/80; from b; frozen by a: Suspended", "a(Suspended) b; ClusterSetIP http/80; from b"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, "b")
			s.publishes("a", at(-30))
			s.publishes("b", at(-25))
			s.is(serves)
			s.after(time.Hour)
			c.change(s)
			s.is(c.now)
			s.after(time.Minute)
			s.is(c.later)
		})
	}
}
