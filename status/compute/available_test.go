// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

var (
	ten    = time.Date(2026, 11, 21, 10, 2, 11, 123, time.UTC)
	eleven = ten.Add(time.Hour)
)

func imported(ids ...model.ClusterID) []model.Report {
	var list []model.Report
	for _, id := range ids {
		list = append(list, model.Report{Cluster: id, Imported: true, Reason: model.ReasonImported, Since: ten})
	}
	return list
}

func failing(id model.ClusterID, reason, message string, since time.Time) model.Report {
	return model.Report{Cluster: id, Reason: reason, Message: message, Since: since}
}

// scopeReports are the Destinations of an ExportInput, and whether they are known.
type scopeReports struct {
	destinations []model.Report
	known        bool
}

func known(destinations ...[]model.Report) scopeReports {
	return scopeReports{slices.Concat(destinations...), true}
}

func list(destinations ...model.Report) []model.Report { return destinations }

// available is Available of a valid export, as "Status/Reason: message"; empty
// if it is not set.
func available(in ExportInput) string {
	if in.Export == nil {
		in.Export = export()
	}
	in.Service, in.Verdict = service(""), allowed
	c := meta.FindStatusCondition(Export(in, now), condition.TypeAvailable)
	if c == nil {
		return ""
	}
	return strings.TrimPrefix(short([]metav1.Condition{*c})[0], "Available=")
}

func out() *model.Observation {
	return &model.Observation{Publication: model.Published, Scope: model.ScopeAll()}
}

const missing404 = "namespace default does not exist there; create it"

// decidedByB is what is found where the export of cluster b, this one, decides the import, which
// others may make up as well.
func decidedByB(others ...model.Source) *model.Observation {
	seen := out()
	seen.Import, seen.Decider = &model.Import{}, model.SourceExport{Cluster: "b"}
	seen.Sources = append([]model.Source{{Cluster: "b", State: model.SourcePublished}}, others...)
	return seen
}

func decidedIn(cluster, by model.ClusterID) []model.Report {
	return []model.Report{{Cluster: cluster, Imported: true, Reason: model.ReasonImported, Decider: by}}
}

func TestAvailable(t *testing.T) {
	cases := []struct {
		name    string
		seen    *model.Observation
		reports scopeReports
		want    string
	}{
		{"nothing is known yet", out(), scopeReports{}, ""},
		{"the loop has not looked yet", nil, known(imported("b")), ""},
		{"all import it", out(), known(imported("d", "b", "c")), "True/Imported: imported by all 3 clusters in scope: b, c, d"},
		{"one does, and it is the only one", out(), known(imported("b")), "True/Imported: imported by the one cluster in scope: b"},
		{
			"one does not", out(), known(imported("b", "d"), list(failing("c", model.ReasonNamespaceMissing, missing404, ten))),
			"False/NamespaceMissing: imported by 2 of 3 clusters; NamespaceMissing in c since 2026-11-21T10:02:11Z: " + missing404,
		},
		{
			"several do not for one reason", out(),
			known(list(failing("d", model.ReasonNamespaceMissing, missing404, ten), failing("c", model.ReasonNamespaceMissing, missing404, eleven))),
			"False/NamespaceMissing: imported by 0 of 2 clusters; NamespaceMissing in c, d since 2026-11-21T10:02:11Z: " + missing404,
		},
		{
			"several say it in other words", out(), known(list(failing("c", model.ReasonNameTaken, "Service x", ten), failing("d", model.ReasonNameTaken, "Service y", ten))),
			"False/NameTaken: imported by 0 of 2 clusters; NameTaken in c, d since 2026-11-21T10:02:11Z: in c: Service x",
		},
		{
			"the first problem that somebody can mend is the reason", out(), known(list(
				failing("b", model.ReasonUnreachable, "no answer", ten), failing("c", model.ReasonPending, "", ten),
				failing("d", "PolicyDenied", "not here", time.Time{}), failing("e", "Lost", "", ten),
			)),
			"False/PolicyDenied: imported by 0 of 4 clusters; PolicyDenied in d: not here; " +
				"Unreachable in b: no answer; Lost in e; not reported yet by c",
		},
		{
			"some have not reported, and nothing is wrong", out(), known(imported("b"), list(failing("d", model.ReasonPending, "", ten), failing("c", model.ReasonPending, "", ten))),
			"Unknown/Pending: imported by 1 of 3 clusters; not reported yet by c, d",
		},
		{
			"all import it, but one is not heard of", out(), known(imported("b"), list(model.Report{Cluster: "c", Imported: true, Reason: "Lost", Since: ten})),
			"True/Imported: imported by all 2 clusters in scope: b, c; Lost in c",
		},
		{
			"a cluster of another version gives a reason of its own", out(), known(list(failing("b", "Eclipse\x1b[2J", "too\ndark\u202e", ten))),
			"False/NotImported: imported by 0 of 1 clusters; Eclipse\ufffd[2J in b since 2026-11-21T10:02:11Z: too dark\ufffd",
		},
		{
			"nobody is in scope", out(), known(),
			"False/NoDestinations: no other cluster is in the scope of this export; join one, or widen comity.dev/export-to on it or on its Namespace",
		},
		{
			"policy withholds it", &model.Observation{Publication: model.PublicationWithheld}, scopeReports{},
			"False/NotPublished: no cluster can import what is not published; see condition Ready",
		},
		{
			"it cannot be brought up to date, and what was published is imported", &model.Observation{Publication: model.PublicationFailed}, known(imported("b")),
			"True/Imported: imported by the one cluster in scope: b",
		},
		{
			"it could never be published", &model.Observation{Publication: model.PublicationFailed}, known(list(failing("b", model.ReasonPending, "", ten))),
			"False/NotPublished: no cluster can import what is not published; see condition Ready",
		},
		{
			"another export decides the import in one of them", decidedByB(model.Source{Cluster: "a", State: model.SourcePublished}), known(decidedIn("c", "b"), decidedIn("d", "a")),
			"True/DecidersDiffer: imported by all 2 clusters in scope: c, d; the import is not decided by the same export everywhere, " +
				"but by that of cluster a in d, cluster b in c, this cluster; to change that, run kubectl comity confirm takeover there",
		},
		{
			"one has not reported yet that the export that decided is gone", decidedByB(), known(decidedIn("c", "b"), decidedIn("d", "a")),
			"True/Imported: imported by all 2 clusters in scope: c, d",
		},
		{
			"or that it ended", decidedByB(model.Source{Cluster: "a", State: model.SourceEnded}), known(decidedIn("d", "a")),
			"True/Imported: imported by the one cluster in scope: d",
		},
		{
			"it is about to be published", &model.Observation{Publication: model.PublicationPending}, scopeReports{},
			"Unknown/Pending: not published yet; see condition Ready",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, available(ExportInput{Observation: c.seen, Destinations: c.reports.destinations, DestinationsKnown: c.reports.known})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAvailableStaysWhileClustersAreUnsynced(t *testing.T) {
	was := func(c metav1.Condition) metav1.Condition { return at(c, 2, before) }
	all := was(condition.Available(model.ReasonImported, "imported by all 2 clusters in scope: b, c"))
	lacking := was(condition.Available(reported(list(imported("b")[0], failing("c", model.ReasonNamespaceMissing, missing404, ten)), "")))
	lost := was(condition.Available(reported(list(imported("b")[0], failing("c", model.ReasonUnreachable, "no answer", ten)), "")))
	unpublished := was(condition.Available(condition.ReasonNotPublished, "m"))
	pending := &model.Observation{Publication: model.PublicationPending}
	silent := list(imported("b")[0], failing("c", model.ReasonPending, "", ten))
	waiting := list(imported("b")[0], model.Report{Cluster: "c", Reason: model.ReasonPending, Unsynced: true})
	cases := []struct {
		name    string
		old     metav1.Condition
		seen    *model.Observation
		reports scopeReports
		stays   bool
	}{
		{"before the loop looked", all, nil, scopeReports{}, true},
		{"before it is known where the export goes", all, out(), scopeReports{}, true},
		{"while policy has not answered", all, pending, scopeReports{}, true},
		{"while a cluster in scope is unread", all, out(), known(waiting), true},
		{"a problem of a cluster that is unread", lacking, out(), known(waiting), true},
		{"when a cluster that was read has not reported", all, out(), known(silent), false},
		{"when another cluster turns out to have a problem", all, out(), known(list(failing("b", model.ReasonNamespaceMissing, missing404, ten), waiting[1])), false},
		{"when another cluster turns out to have a problem that matters less", lacking, out(), known(list(failing("b", model.ReasonUnreachable, "", ten), waiting[1])), true},
		{"when everybody has reported", lacking, out(), known(imported("b", "c")), false},
		{"when the export changed", at(all, 1, before), out(), known(waiting), false},
		{"when it is withheld", all, &model.Observation{Publication: model.PublicationWithheld}, scopeReports{}, false},
		{"when it is published at last and a cluster is unread", unpublished, out(), known(waiting), false},
		{"a cluster that is unreachable still, by the clock of a new process", lost, out(), known(imported("b"), list(failing("c", model.ReasonUnreachable, "no answer", eleven))), true},
		{"a cluster that is unreachable for another reason", lost, out(), known(imported("b"), list(failing("c", model.ReasonUnreachable, "no route", eleven))), false},
		{"a cluster that reports the same problem anew", lacking, out(), known(imported("b"), list(failing("c", model.ReasonNamespaceMissing, missing404, eleven))), false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in := ExportInput{Export: export(c.old), Service: service(""), Verdict: allowed, Observation: c.seen, Destinations: c.reports.destinations, DestinationsKnown: c.reports.known}
			got := meta.FindStatusCondition(Export(in, now), condition.TypeAvailable)
			if got == nil || cmp.Equal(*got, c.old) != c.stays {
				t.Errorf("got %+v, want it to stay: %t", got, c.stays)
			}
		})
	}
}

func TestAvailableOfAHundredClustersIsBoundAndNamesTheFirst(t *testing.T) {
	var all, bad []model.Report
	for i := range 100 {
		id := model.ClusterID(fmt.Sprintf("cluster-%03d", i))
		all = append(all, imported(id)...)
		if i >= 4 {
			bad = append(bad, failing(id, model.ReasonNamespaceMissing, missing404, ten))
		}
	}
	if got, want := available(ExportInput{Observation: out(), Destinations: all, DestinationsKnown: true}), "True/Imported: imported by all 100 clusters in scope"; got != want {
		t.Errorf("got %q", got)
	}
	want := "False/NamespaceMissing: imported by 4 of 100 clusters; NamespaceMissing in cluster-004, cluster-005, cluster-006 and 93 more " +
		"since 2026-11-21T10:02:11Z: " + missing404
	if got := available(ExportInput{Observation: out(), Destinations: slices.Concat(all[:4], bad), DestinationsKnown: true}); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Every reason that a cluster may report, each in clusters with names of the
// greatest length, fits; and what does not is counted.
func TestAvailableFitsWhateverIsReported(t *testing.T) {
	reasons := []string{
		"NamespaceMissing", "PolicyDenied", "NameTaken", "ForeignImport", "AddressOverlap", "Refused", "Unreachable", "Pending", "Imported", "", "Eclipse",
	}
	rapid.Check(t, func(t *rapid.T) {
		var destinations []model.Report
		for i := range rapid.IntRange(0, 100).Draw(t, "clusters") {
			destinations = append(destinations, model.Report{
				Cluster:  model.ClusterID(fmt.Sprintf("%03d%s", i, strings.Repeat("x", rapid.IntRange(0, 60).Draw(t, "length")))),
				Imported: rapid.Bool().Draw(t, "imported"),
				Reason:   rapid.SampledFrom(reasons).Draw(t, "reason"),
				Message:  rapid.StringN(0, 400, -1).Draw(t, "message"),
				Since:    ten.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "hours")) * time.Hour),
			})
		}
		in := ExportInput{Observation: out(), Destinations: destinations, DestinationsKnown: true}
		got := available(in)
		message := got[strings.Index(got, ": ")+2:]
		if len(message) > condition.MaxMessage || !utf8.ValidString(message) || strings.HasSuffix(message, "…") && strings.Contains(message, "more cluster") {
			t.Fatalf("%d bytes: %q", len(message), message)
		}
		for range 10 {
			rand.Shuffle(len(destinations), func(i, j int) { destinations[i], destinations[j] = destinations[j], destinations[i] })
			if again := available(in); again != got {
				t.Fatalf("another order gives\n%s\ninstead of\n%s", again, got)
			}
		}
	})
}

func TestAClauseThatDoesNotFitIsCounted(t *testing.T) {
	var parts []part
	for i := range 20 {
		parts = append(parts, part{fmt.Sprint(i, strings.Repeat("x", 100)), 2})
	}
	got := fit("head", parts)
	if !strings.HasSuffix(got, "; and 22 more") || len(got) > condition.MaxMessage {
		t.Errorf("got %d bytes: %q", len(got), got)
	}
	if got := fit("", []part{{strings.Repeat("x", 2000), 1}, {"y", 1}}); len(got) > condition.MaxMessage || !strings.HasSuffix(got, "…; and 1 more") {
		t.Errorf("got %d bytes: %q", len(got), got)
	}
}
