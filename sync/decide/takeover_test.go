// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// publishedBy is an export of cluster with UID "of-<cluster>" and one port.
func publishedBy(cluster model.ClusterID, minute int, port string, change ...func(*model.Export)) model.Export {
	e := model.Export{
		Cluster: cluster, Key: web, UID: types.UID("of-" + cluster), CreatedAt: at(minute), Type: mcsv1beta1.ClusterSetIP,
		Ports: []mcsv1beta1.ServicePort{{Name: port, Protocol: corev1.ProtocolTCP, Port: 80}},
	}
	for _, c := range change {
		c(&e)
	}
	return e
}

func headless(e *model.Export) { e.Type = mcsv1beta1.Headless }

// importedFrom is a ServiceImport that consists of these exports.
func importedFrom(exports ...model.Export) *mcsv1beta1.ServiceImport {
	var of []model.SourceExport
	for _, e := range exports {
		of = append(of, sourceExport(e))
	}
	s := &mcsv1beta1.ServiceImport{ObjectMeta: ours(web.Name, nil)}
	s.Annotations = map[string]string{model.AnnotationExports: model.FormatSourceExports(of)}
	s.CreationTimestamp = metav1.NewTime(at(0))
	return s
}

// takeoverView is that of cluster b an hour after its import was made, with all
// members read.
func takeoverView(imported *mcsv1beta1.ServiceImport, exports ...model.Export) ImportView {
	v := ImportView{
		Self: "b", ComityNamespace: "comity-system", Exports: exports, TakeoverHold: model.HoldUntilConfirmed, Now: at(0).Add(time.Hour),
		Local:   LocalExport{Key: web, Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: web.Namespace}}},
		Current: plan.Current{Import: imported},
	}
	for _, id := range []model.ClusterID{"a", "c", "d"} {
		v.Members = append(v.Members, model.Member{ID: id, Synced: true, StatesWithdrawals: true})
	}
	return v
}

// unread is a change by which a member was not read, nor what it exports.
func unread(id model.ClusterID) func(*ImportView) {
	return func(v *ImportView) {
		for i := range v.Members {
			v.Members[i].Synced = v.Members[i].Synced && v.Members[i].ID != id
		}
		v.Exports = slices.DeleteFunc(slices.Clone(v.Exports), func(e model.Export) bool { return e.Cluster == id })
	}
}

// a has served since minute 30, c claims an earlier time.
func TestWhoDecidesAnImport(t *testing.T) {
	a, d := publishedBy("a", 30, "http"), publishedBy("d", 40, "http")
	c := publishedBy("c", 10, "x", headless)
	agreeing := publishedBy("c", 10, "http")
	copied := publishedBy("d", 20, "z", func(e *model.Export) { e.UID = "of-c" })
	for name, tc := range map[string]struct {
		view    ImportView
		order   string // the clusters, the deciding one first
		held    string // cluster and fields; empty if nothing is held
		problem string // a part of its message
	}{
		"FAULT 28: a newcomer that claims to be older waits":  {view: takeoverView(importedFrom(a), a, c), order: "a c", held: "c: type ports"},
		"one that agrees serves at once, and does not decide": {view: takeoverView(importedFrom(a), a, agreeing), order: "a c"},
		"one that agreed first and then changes waits too":    {view: takeoverView(importedFrom(a, agreeing), a, c), order: "a c", held: "c: type ports"},
		"backdating a standing export gains nothing":          {view: takeoverView(importedFrom(a, publishedBy("c", 50, "x", headless)), a, c), order: "a c", held: "c: type ports"},
		"the deciding export changes itself":                  {view: takeoverView(importedFrom(a), publishedBy("a", 30, "y")), order: "a"},
		"a younger newcomer is none that waits":               {view: takeoverView(importedFrom(a), a, publishedBy("d", 40, "x", headless)), order: "a d"},
		"more ports are no takeover": {view: takeoverView(importedFrom(a), a, publishedBy("c", 10, "http", func(e *model.Export) {
			e.Ports = append(e.Ports, mcsv1beta1.ServicePort{Name: "metrics", Protocol: corev1.ProtocolTCP, Port: 9090})
		})), order: "a c"},
		"a port that another than the deciding export added is protected, too": {
			view: takeoverView(importedFrom(a, publishedBy("d", 40, "metrics", func(e *model.Export) { e.Ports[0].Port = 9090 })),
				a, publishedBy("d", 40, "metrics", func(e *model.Export) { e.Ports[0].Port = 9090 }), publishedBy("c", 35, "metrics", func(e *model.Export) { e.Ports[0].Port = 9999 })),
			order: "a d c", held: "c: ports",
		},
		"two wait": {view: takeoverView(importedFrom(a), a, c, publishedBy("d", 20, "z")), order: "a c d", held: "c: type ports, d: ports"},

		"--takeover-hold=0":               {view: changed(takeoverView(importedFrom(a), a, c), func(v *ImportView) { v.TakeoverHold = 0 }), order: "c a"},
		"an import that is not settled":   {view: changed(takeoverView(importedFrom(a), a, c), func(v *ImportView) { v.SettlesAt = v.Now.Add(1) }), order: "c a"},
		"one that is settled now":         {view: changed(takeoverView(importedFrom(a), a, c), func(v *ImportView) { v.SettlesAt = v.Now }), order: "a c", held: "c: type ports"},
		"an import of an earlier version": {view: takeoverView(importedFrom(), a, c), order: "c a"},
		"no import yet":                   {view: takeoverView(nil, a, c), order: "c a"},
		"an import of somebody else":      {view: changed(takeoverView(importedFrom(a), a, c), func(v *ImportView) { v.Current.Import.ManagedFields = nil }), order: "c a"},

		"the deciding export was withdrawn":            {view: takeoverView(importedFrom(a, d), d, c), order: "c d"},
		"the deciding export was exported anew":        {view: takeoverView(importedFrom(a, d), d, c, publishedBy("a", 50, "http", func(e *model.Export) { e.UID = "anew" })), order: "c d a"},
		"its namespace is not accepted any more":       {view: changed(takeoverView(importedFrom(a), a, c), func(v *ImportView) { v.NotAccepted = []model.ClusterID{"a"} }), order: "c"},
		"the deciding export is held: nothing changes": {view: changed(takeoverView(importedFrom(a, d), d, c), func(v *ImportView) { v.Held = []model.Hold{{Cluster: "a"}} }), order: "d c"},
		"its cluster was not read: nothing changes":    {view: changed(takeoverView(importedFrom(a, d), d, c), func(v *ImportView) { v.Members[0].Synced = false }), order: "d c"},

		"a member that was not read when the import formed": {view: changed(takeoverView(importedFrom(a), a, c), func(v *ImportView) { v.FormedWithout = []model.ClusterID{"c"} }), order: "c a"},
		"a former deciding export that returns":             {view: formerly(takeoverView(importedFrom(a), a, c), c), order: "c a"},
		"one that returns older than it was":                {view: formerly(takeoverView(importedFrom(a), a, c), publishedBy("c", 11, "x")), order: "a c", held: "c: type ports"},

		"confirmed":                                              {view: confirmedTakeover(takeoverView(importedFrom(a), a, c), "of-c"), order: "c a"},
		"confirmed, and of two the other one":                    {view: confirmedTakeover(takeoverView(importedFrom(a), a, c, publishedBy("d", 20, "z")), "of-d"), order: "d a c", held: "c: type ports"},
		"confirmed long ago":                                     {view: confirmedTakeover(takeoverView(importedFrom(c, a), a, c), "of-c"), order: "c a"},
		"the confirmation of a UID that is not held":             {view: confirmedTakeover(takeoverView(importedFrom(a), a, c), "of-d"), order: "a c", held: "c: type ports", problem: `"of-d": no takeover by that export waits`},
		"the confirmation of one that agrees":                    {view: confirmedTakeover(takeoverView(importedFrom(a), a, agreeing), "of-c"), order: "a c", problem: `"of-c": no takeover by that export waits`},
		"confirmed, and another member takes its UID":            {view: confirmedTakeover(takeoverView(importedFrom(a), a, d, publishedBy("c", 10, "x", headless, func(e *model.Export) { e.UID = "of-d" })), "of-d"), order: "a c d", held: "c: type ports"},
		"another member takes the UID that was confirmed before": {view: formerly(confirmedTakeover(takeoverView(importedFrom(a), a, publishedBy("c", 10, "x", headless, func(e *model.Export) { e.UID = "of-d" })), "of-d"), d), order: "a c", held: "c: type ports", problem: `"of-d": more than one cluster publishes that UID`},
		"confirmed with its cluster":                             {view: confirmedTakeover(takeoverView(importedFrom(a), a, c), "c/of-c"), order: "c a"},
		"confirmed with another cluster":                         {view: confirmedTakeover(takeoverView(importedFrom(a), a, c), "d/of-c"), order: "a c", held: "c: type ports", problem: `"d/of-c": no takeover by that export waits`},
		"confirmed with no cluster before the slash":             {view: confirmedTakeover(takeoverView(importedFrom(a), a, c), "/of-c"), order: "a c", held: "c: type ports", problem: `"/of-c": no takeover by that export waits`},
		"confirmed with its cluster, and its UID is copied":      {view: confirmedTakeover(takeoverView(importedFrom(a), a, c, copied), "c/of-c"), order: "c a d"},
		"of two with one UID the other one is confirmed":         {view: confirmedTakeover(takeoverView(importedFrom(a), a, c, copied), "d/of-c"), order: "d a c", held: "c: type ports"},
		"confirmed by a UID that is copied":                      {view: confirmedTakeover(takeoverView(importedFrom(a), a, c, copied), "of-c"), order: "a c d", held: "c: type ports, d: ports", problem: `"of-c": more than one cluster publishes that UID`},
		"the one that was confirmed is gone, its UID is another's": {
			view:  confirmedTakeover(takeoverView(importedFrom(a), a, copied), "c/of-c"),
			order: "a d", held: "d: ports", problem: `"c/of-c": no takeover by that export waits`,
		},
		"rubbish as confirmation":                           {view: confirmedTakeover(takeoverView(importedFrom(a), a), "\x1b[31m"), order: "a", problem: `"\x1b[31m": no takeover`},
		"the confirmation of rubbish where nothing is held": {view: changed(confirmedTakeover(takeoverView(importedFrom(a), a), "yes"), func(v *ImportView) { v.TakeoverHold = 0 }), order: "a", problem: `"yes": no takeover`},

		"a hold that ends by itself begins": {view: changed(takeoverView(importedFrom(a), a, c), func(v *ImportView) { v.TakeoverHold = time.Minute }), order: "a c", held: "c: type ports"},
		"it lasts":                          {view: heldFor(takeoverView(importedFrom(a), a, c), 59*time.Second), order: "a c", held: "c: type ports"},
		"it ends":                           {view: heldFor(takeoverView(importedFrom(a), a, c), time.Minute), order: "c a"},
		"another member takes the UID of the one that waited that long": {
			view:  heldFor(takeoverView(importedFrom(a), a, publishedBy("d", 5, "z", func(e *model.Export) { e.UID = "of-c" })), time.Hour),
			order: "a d", held: "d: ports",
		},
		"the same cluster twice in the list": {view: takeoverView(importedFrom(a, a), a, c), order: "a c", held: "c: type ports"},
	} {
		t.Run(name, func(t *testing.T) {
			d := Import(tc.view)
			var order []string
			for _, c := range d.Finding.Resolved.Constituents {
				order = append(order, string(c.Cluster))
			}
			held := ""
			for i, h := range d.Finding.Takeovers {
				if i > 0 {
					held += ", "
				}
				held += string(h.By.Cluster) + ": " + strings.Join(h.Fields, " ")
			}
			if got := strings.Join(order, " "); got != tc.order || held != tc.held {
				t.Errorf("the order is %q, held is %q", got, held)
			}
			problem := ""
			for _, p := range d.Finding.Problems {
				if p.Reason == model.ReasonInvalidAnnotation {
					problem += p.Message
				}
			}
			if (problem == "") != (tc.problem == "") || !strings.Contains(problem, tc.problem) {
				t.Errorf("the problem is %q", problem)
			}
		})
	}
}

func changed(v ImportView, change func(*ImportView)) ImportView {
	change(&v)
	return v
}

func confirmedTakeover(v ImportView, uid string) ImportView {
	v.Current.Import.Annotations[model.AnnotationConfirmTakeover] = uid
	return v
}

func formerly(v ImportView, decided model.Export) ImportView {
	v.Current.Import.Annotations[model.AnnotationFormerDeciders] = model.FormatSourceExports([]model.SourceExport{sourceExport(decided)})
	return v
}

// hold is a takeover hold that ends by itself.
const hold = time.Minute

func heldFor(v ImportView, since time.Duration) ImportView {
	v.TakeoverHold, v.TakeoverUntil = hold, map[ExportID]time.Time{{"c", "of-c"}: v.Now.Add(hold - since)}
	return v
}

func TestAFormerDecidingExportIsRemembered(t *testing.T) {
	a, c, d := publishedBy("a", 30, "http"), publishedBy("c", 10, "x"), publishedBy("d", 40, "y")
	v := confirmedTakeover(takeoverView(importedFrom(a), a, c), "of-c")
	got := Import(v).Plan.History
	want := map[string]string{model.AnnotationFormerDeciders: "a/of-a/2026-11-22T09:30:00Z"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// It decides again: it is not a former one any more, and c is.
	v = formerly(takeoverView(importedFrom(c, a), a, d), a)
	if diff := cmp.Diff(map[string]string{model.AnnotationFormerDeciders: "c/of-c/2026-11-22T09:10:00Z"}, Import(v).Plan.History); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Nothing changes: what is written stays as it is.
	v = formerly(takeoverView(importedFrom(a), a), d)
	if diff := cmp.Diff(map[string]string{model.AnnotationFormerDeciders: "d/of-d/2026-11-22T09:40:00Z"}, Import(v).Plan.History); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Each export waits for as long as itself was held, and the first end is awaited.
func TestTwoHoldsEndEachAtItsTime(t *testing.T) {
	a, c, d := publishedBy("a", 30, "http"), publishedBy("c", 10, "x"), publishedBy("d", 20, "y")
	v := takeoverView(importedFrom(a), a, d)
	v.TakeoverHold = time.Minute
	began := v.Now
	decideAfter := func(wait time.Duration, exports ...model.Export) ImportDecision {
		next := takeoverView(importedFrom(a), exports...)
		next.TakeoverHold, next.TakeoverUntil, next.Now = v.TakeoverHold, v.TakeoverUntil, began.Add(wait)
		v = next
		out := Import(v)
		v.TakeoverUntil = out.TakeoverUntil
		return out
	}
	for _, step := range []struct {
		after   time.Duration
		exports []model.Export
		decider model.ClusterID
		again   time.Duration
	}{
		{0, []model.Export{a, d}, "a", time.Minute},
		{20 * time.Second, []model.Export{a, c, d}, "a", 40 * time.Second},
		{60 * time.Second, []model.Export{a, c, d}, "d", 20 * time.Second},
		{80 * time.Second, []model.Export{a, c, d}, "c", 0},
	} {
		got := decideAfter(step.after, step.exports...)
		if decider := got.Finding.Resolved.Constituents[0].Cluster; decider != step.decider {
			t.Errorf("after %v %s decides, want %s", step.after, decider, step.decider)
		}
		if again := got.Again(v.Now); again != step.again {
			t.Errorf("after %v it is decided again in %v, want %v", step.after, again, step.again)
		}
	}
}

// While the deciding export cannot be read, is held or is kept, no hold begins again;
// neither does that of an export whose cluster cannot be read.
func TestAHoldGoesOnWhileAClusterIsUnread(t *testing.T) {
	a, c := publishedBy("a", 30, "http"), publishedBy("c", 10, "x")
	unread := func(n int) func(*ImportView) {
		return func(v *ImportView) {
			id := v.Members[n].ID
			v.Members[n].Synced = false
			v.Exports = slices.DeleteFunc(slices.Clone(v.Exports), func(e model.Export) bool { return e.Cluster == id })
		}
	}
	for name, tc := range map[string]struct {
		blip func(*ImportView)
		goes bool
	}{
		"the deciding cluster is unread":         {unread(0), true},
		"the deciding export is held":            {func(v *ImportView) { v.Exports, v.Held = []model.Export{c}, []model.Hold{{Cluster: "a"}} }, true},
		"the cluster of the one that waits is":   {unread(1), true},
		"another cluster that contributes is":    {unread(2), true},
		"the deciding one is, and c's withdrew":  {func(v *ImportView) { unread(0)(v); v.Exports = nil }, false},
		"the one that waits agrees for a moment": {func(v *ImportView) { v.Exports = []model.Export{a, publishedBy("c", 10, "http")} }, false},
		"the one that waits withdrew in between": {func(v *ImportView) { v.Exports = []model.Export{a} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			imported := importedFrom(a, publishedBy("d", 40, "http"))
			first := heldFor(takeoverView(imported, a, c, publishedBy("d", 40, "http")), 0)
			blip := first
			blip.Now = first.Now.Add(40 * time.Second)
			blip.Members = slices.Clone(first.Members)
			blip.TakeoverUntil = Import(first).TakeoverUntil
			tc.blip(&blip)
			after := first
			after.Now = first.Now.Add(hold)
			after.TakeoverUntil = Import(blip).TakeoverUntil
			if decides := Import(after).Finding.Resolved.Constituents[0].Cluster; (decides == "c") != tc.goes {
				t.Errorf("%s decides once the hold is over", decides)
			}
		})
	}
}

// The export whose hold has ended decides once the import is not kept any more, and not
// another hold later. Nothing is decided again and again meanwhile.
func TestAHoldThatEndedWhileTheImportIsKeptHasEnded(t *testing.T) {
	a, c, d := publishedBy("a", 30, "http"), publishedBy("c", 10, "x"), publishedBy("d", 40, "http")
	for unread, member := range map[model.ClusterID]int{"a": 0, "d": 2} {
		kept := heldFor(takeoverView(importedFrom(a, d), a, c, d), hold)
		kept.Members[member].Synced = false
		kept.Exports = slices.DeleteFunc(kept.Exports, func(e model.Export) bool { return e.Cluster == unread })
		got := Import(kept)
		if again := got.Again(kept.Now); again != 0 {
			t.Errorf("while %s is unread it is decided again in %v", unread, again)
		}
		after := heldFor(takeoverView(importedFrom(a, d), a, c, d), hold)
		after.TakeoverUntil = got.TakeoverUntil
		if decides := Import(after).Finding.Resolved.Constituents[0].Cluster; decides != "c" {
			t.Errorf("after %s was unread, %s decides", unread, decides)
		}
	}
}

func TestWhatFormsAnImportIsRememberedUntilItWasRead(t *testing.T) {
	a, c := publishedBy("a", 30, "http"), publishedBy("c", 10, "x")
	unread := func(v *ImportView) { v.Members[1].Synced = false }
	forms := Import(changed(takeoverView(nil, a), unread))
	if diff := cmp.Diff([]model.ClusterID{"c"}, forms.FormedWithout); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	again := Import(changed(takeoverView(importedFrom(a), a), func(v *ImportView) { unread(v); v.FormedWithout = forms.FormedWithout }))
	if diff := cmp.Diff([]model.ClusterID{"c"}, again.FormedWithout); diff != "" {
		t.Fatalf("still unread (-want +got):\n%s", diff)
	}
	read := Import(changed(takeoverView(importedFrom(a), a, c), func(v *ImportView) { v.FormedWithout = again.FormedWithout }))
	if len(read.FormedWithout) > 0 || read.Finding.Resolved.Constituents[0].Cluster != "c" {
		t.Errorf("formed without %v, decided by %v", read.FormedWithout, read.Finding.Resolved.Constituents)
	}
}

// A member that was read, and withdraws its MemberRecord, waits for as long as it likes.
// Its exports decide no import that formed meanwhile.
func TestAMemberThatWasReadOnceForfeitsItsPlace(t *testing.T) {
	a, c := publishedBy("a", 30, "http"), publishedBy("c", 10, "x")
	wasRead := func(v *ImportView) { v.Members[1].Synced, v.Members[1].Read = false, true }
	if forms := Import(changed(takeoverView(nil, a), wasRead)); len(forms.FormedWithout) > 0 {
		t.Errorf("formed without %v, which was read before", forms.FormedWithout)
	}
	kept := Import(changed(takeoverView(importedFrom(a), c), func(v *ImportView) { v.Members[0].Synced, v.FormedWithout = false, []model.ClusterID{"c"} }))
	if len(kept.FormedWithout) > 0 {
		t.Errorf("formed without %v, which was read while the import was kept", kept.FormedWithout)
	}
	since := Import(changed(takeoverView(importedFrom(a), a), func(v *ImportView) { wasRead(v); v.FormedWithout = []model.ClusterID{"c"} }))
	if len(since.FormedWithout) > 0 {
		t.Errorf("formed without %v, which was read since", since.FormedWithout)
	}
}

// Between the two reads its exports may have been missing.
func TestAMemberThatWasReadAmidADecisionIsNotReadYet(t *testing.T) {
	before, after := []model.Member{{ID: "c"}}, []model.Member{{ID: "c", Synced: true, Read: true}}
	if got := ReadTwice(before, after); got[0].Synced || got[0].Read {
		t.Errorf("got %+v", got)
	}
	if got := ReadTwice(after, after); !got[0].Synced || !got[0].Read {
		t.Errorf("got %+v", got)
	}
}

// What is reported to the two clusters names no third one and no value.
func TestWhatIsReportedOfATakeover(t *testing.T) {
	v := takeoverView(importedFrom(publishedBy("a", 30, "secret-port")), publishedBy("a", 30, "secret-port"), publishedBy("c", 10, "hidden", headless))
	takeovers := Import(v).Finding.Takeovers
	if len(takeovers) != 1 {
		t.Fatalf("held are %+v", takeovers)
	}
	held := &takeovers[0]
	if !strings.Contains(held.Changes, "type: ClusterSetIP to Headless") || !strings.Contains(held.Changes, `port "secret-port": 80/TCP to absent`) {
		t.Fatalf("held is %+v", held)
	}
	if got := held.Confirm(web); got != "kubectl annotate serviceimport -n shop web comity.dev/confirm-takeover=c/of-c --overwrite" {
		t.Error(got)
	}
	for cluster, third := range map[model.ClusterID]string{"a": "cluster c", "c": "cluster a"} {
		got := model.ReportTakeovers(takeovers, cluster, "b", web)
		if !strings.Contains(got, "of cluster "+string(cluster)) || !strings.Contains(got, "type, ports") ||
			strings.Contains(got, third) || strings.Contains(got, "secret-port") || strings.Contains(got, "hidden") || strings.Contains(got, "of-") {
			t.Errorf("%s is told: %s", cluster, got)
		}
	}
	if got := model.ReportTakeovers(takeovers, "d", "b", web); got != "" {
		t.Errorf("d is told: %s", got)
	}
	observation := &model.Observation{Import: Import(v).Finding.Resolved, Takeovers: takeovers}
	for _, cluster := range []model.ClusterID{"a", "c"} {
		got, known := ReportView{Key: web, Self: "b", Namespace: NamespaceReady, Observation: observation}.result(cluster)
		if !known || !got.imported || got.reason != model.ReasonTakeoverHeld {
			t.Errorf("%s gets %+v", cluster, got)
		}
	}
	held.Decider.Cluster = "b"
	if got := model.ReportTakeovers(takeovers, "b", "b", web); !strings.Contains(got, "the export of another cluster is older") {
		t.Errorf("b's own export says: %s", got)
	}
}

// An export that always claims to be the oldest hides no other one: each cluster whose
// export waits is told so, in words that are about its own.
func TestEachClusterWhoseExportWaitsIsTold(t *testing.T) {
	a := publishedBy("a", 30, "http")
	held := Import(takeoverView(importedFrom(a), a, publishedBy("c", 1, "hidden", headless), publishedBy("d", 20, "z"))).Finding.Takeovers
	for cluster, want := range map[model.ClusterID]string{
		"a": "the export of another cluster is older than the one of cluster a that decides the import in cluster b, and would change its type, ports",
		"c": "the export of cluster c is older than the one of another cluster that decides the import in cluster b, and would change its type, ports",
		"d": "the export of cluster d is older than the one of another cluster that decides the import in cluster b, and would change its ports",
	} {
		if got := model.ReportTakeovers(held, cluster, "b", web); !strings.Contains(got, want) || strings.Contains(got, "hidden") {
			t.Errorf("%s is told: %s", cluster, got)
		}
	}
}

// The condition TakeoverHeld stays as long as one of these contributes.
func TestWhichClustersAreKept(t *testing.T) {
	a := publishedBy("a", 30, "http")
	for name, tc := range map[string]struct {
		change func(*ImportView)
		want   []model.ClusterID
	}{
		"none":                      {func(*ImportView) {}, nil},
		"one that is unread":        {func(v *ImportView) { v.Members[0].Synced, v.Exports = false, nil }, []model.ClusterID{"a"}},
		"one whose export is held":  {func(v *ImportView) { v.Held, v.Exports = []model.Hold{{Cluster: "a"}}, nil }, []model.ClusterID{"a"}},
		"one of unknown namespaces": {func(v *ImportView) { v.IdentityLabels = []string{model.LabelIdentity} }, []model.ClusterID{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := takeoverView(importedFrom(a), a)
			tc.change(&v)
			if diff := cmp.Diff(tc.want, Import(v).Finding.Kept); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhichExportsJoin(t *testing.T) {
	a, older, younger := publishedBy("a", 30, "http"), publishedBy("c", 10, "http"), publishedBy("c", 50, "x", headless)
	waits := publishedBy("c", 10, "x")
	for name, tc := range map[string]struct {
		view ImportView
		want []Joined
	}{
		"an older one that agrees":         {takeoverView(importedFrom(a), a, older), []Joined{{sourceExport(older), true}}},
		"a younger one":                    {takeoverView(importedFrom(a), a, younger), []Joined{{sourceExport(younger), false}}},
		"one that is confirmed at once":    {confirmedTakeover(takeoverView(importedFrom(a), a, waits), "c/of-c"), []Joined{{sourceExport(waits), false}}},
		"with --takeover-hold=0":           {changed(takeoverView(importedFrom(a), a, waits), func(v *ImportView) { v.TakeoverHold = 0 }), []Joined{{sourceExport(waits), false}}},
		"another one of the same cluster":  {takeoverView(importedFrom(a, publishedBy("c", 5, "http", func(e *model.Export) { e.UID = "former" })), a, older), []Joined{{sourceExport(older), true}}},
		"one that waits does not":          {takeoverView(importedFrom(a), a, waits), nil},
		"one that is stored does not":      {takeoverView(importedFrom(a, older), a, older), nil},
		"none of a young import":           {changed(takeoverView(importedFrom(a), a, older), func(v *ImportView) { v.SettlesAt = v.Now.Add(1) }), nil},
		"none of an import that is made":   {takeoverView(nil, a, older), nil},
		"none of an import that is kept":   {changed(takeoverView(importedFrom(a), older), func(v *ImportView) { v.Members[0].Synced = false }), nil},
		"none of one that lists no export": {takeoverView(importedFrom(), a, older), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Import(tc.view).Joined); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// However the inputs are ordered, the decision is the same.
func TestThePrecedenceIsDeterministic(t *testing.T) {
	a, c, d := publishedBy("a", 30, "http"), publishedBy("c", 10, "x", headless), publishedBy("d", 20, "y")
	want := takeoverView(importedFrom(a), a, c, d).precedence([]model.Export{a, c, d}, nil)
	for _, list := range [][]model.Export{{a, d, c}, {c, a, d}, {c, d, a}, {d, a, c}, {d, c, a}} {
		got := takeoverView(importedFrom(a), list...).precedence(list, nil)
		if diff := cmp.Diff(want.held, got.held); diff != "" || !slices.EqualFunc(want.ordered, got.ordered, func(x, y model.Export) bool { return x.Cluster == y.Cluster }) {
			t.Errorf("another order: %s", diff)
		}
	}
	if merge.Changes(want.ordered, want.ordered) != nil {
		t.Error("an import differs from itself")
	}
}
