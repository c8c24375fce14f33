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
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/policies/decision"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// says is what the records in each exchange namespace say after a decision, and whether
// copies are there.
func says(v ExportView, d ExportDecision) map[string]string {
	records, copies := map[string]*exchangev1alpha1.ExportRecord{}, map[string]bool{}
	for _, r := range v.Records {
		records[r.Namespace] = r
	}
	for _, c := range v.Copies {
		copies[c.Namespace] = true
	}
	planned := plan.Publish(d.Plan)
	for _, lists := range [][][]plan.Action{planned.Publish, planned.Withdraw, planned.Leave} {
		for _, actions := range lists {
			for _, a := range actions {
				namespace, kind := a.Object.GetNamespace(), a.Object.GetObjectKind().GroupVersionKind().Kind
				record, is := a.Object.(*exchangev1alpha1.ExportRecord)
				switch {
				case is:
					records[namespace] = record
				case kind == "ExportRecord":
					delete(records, namespace)
				default:
					copies[namespace] = a.Verb != plan.Delete
				}
			}
		}
	}
	out := map[string]string{}
	for namespace, r := range records {
		var words []string
		for _, word := range []struct {
			text  string
			holds bool
		}{
			{"live", !r.Spec.Withdrawn}, {"lost", r.Spec.Lost}, {"ended", IsEnded(r)}, {"suspended", r.Spec.Suspended}, {"narrowed", r.Spec.Narrowed}, {"copies", copies[namespace]},
		} {
			if word.holds {
				words = append(words, word.text)
			}
		}
		out[namespace] = strings.Join(words, " ")
	}
	return out
}

// withCopies publishes a copy of the slice beside each record.
func withCopies(v ExportView) ExportView {
	for _, r := range v.Records {
		c := &discoveryv1.EndpointSlice{ObjectMeta: ours("shop.web-1", nil), AddressType: "IPv4"}
		c.Namespace, c.UID = r.Namespace, "copy"
		v.Copies = append(v.Copies, c)
	}
	return v
}

func TestTheRowsOfTheExportTableAreInItsOrder(t *testing.T) {
	var rows []string
	for _, row := range (&exporting{}).table() {
		rows = append(rows, row.state)
	}
	ofOneNamespace := []string{"Unavailable", "Moved", "ReaderUnknown", "OutOfScope"}
	if diff := cmp.Diff(append(rows, ofOneNamespace...), statesIn[string](t, "exporttable.go")); diff != "" {
		t.Errorf("the table is not what is carried out (-want +got):\n%s", diff)
	}
}

// Each row of the table, and where its neighbors begin.
func TestEachRowOfTheExportTable(t *testing.T) {
	const shared, toB, toC, toD = "comity-a", "comity-a-to-b", "comity-a-to-c", "comity-a-to-d"
	gone := func(v *ExportView) { v.Local.Export = nil }
	noService := func(v *ExportView) { v.Local.Service = nil }
	notEvaluated := func(v *ExportView) { v.Local.Verdict = decision.Verdict{Problem: "deadline"} }
	denied := func(grace time.Duration) func(*ExportView) {
		return func(v *ExportView) {
			v.Local.Verdict = decision.Verdict{Outcome: decision.Denied, Violations: []decision.Violation{{Policy: "p", Message: "no", Grace: grace}}}
		}
	}
	asked := func(live Live) func(*ExportView) {
		return func(v *ExportView) { live.Read = true; v.Live = live }
	}
	first := func(change func(*exchangev1alpha1.ExportRecord)) func(*ExportView) {
		return func(v *ExportView) { change(v.Records[0]) }
	}
	at := func(version string) func(*ExportView) {
		return first(func(r *exchangev1alpha1.ExportRecord) { r.Spec.ExportVersion = version })
	}
	lost := first(func(r *exchangev1alpha1.ExportRecord) { r.Spec.Lost = true })
	confirmed := first(func(r *exchangev1alpha1.ExportRecord) {
		r.Annotations = map[string]string{model.AnnotationConfirmLost: "true"}
	})
	suspendedBefore := first(func(r *exchangev1alpha1.ExportRecord) {
		r.Spec.Withdrawn, r.Spec.Suspended, r.Spec.WithdrawnAt = true, true, &metav1.Time{Time: noon.Add(-time.Hour)}
	})
	earlier := first(func(r *exchangev1alpha1.ExportRecord) { r.Spec.ExportUID = "earlier" })
	named := first(func(r *exchangev1alpha1.ExportRecord) { r.Spec.Slices = []string{"web-1"} })
	noSlices := func(v *ExportView) { v.Local.Slices = nil }
	restored := first(func(r *exchangev1alpha1.ExportRecord) {
		r.ManagedFields, r.Labels = nil, map[string]string{"velero.io/restore-name": "x"}
	})
	own := func(v *ExportView) { v.Own = true }
	selector := func(v *ExportView) {
		v.Local.Export.Annotations = map[string]string{model.AnnotationExportToSelector: "region=eu"}
		v.Members[0].Labels = map[string]string{"region": "eu"}
	}
	absent := func(id model.ClusterID) func(*ExportView) {
		return func(v *ExportView) {
			v.Members = slices.DeleteFunc(v.Members, func(m model.Member) bool { return m.ID == id })
		}
	}
	removed := func(v *ExportView) { v.Removed = []model.ClusterID{"b"} }
	in := publishedIn
	all := func(changes ...func(*ExportView)) ExportView {
		return withCopies(exported(append([]func(*ExportView){func(v *ExportView) { v.Now = noon }}, changes...)...))
	}

	covered := map[string]bool{}
	for _, tc := range []struct {
		name  string
		view  ExportView
		state string
		want  map[string]string
		says  string
		retry bool
	}{
		{"another cluster has the id", all(in(shared), gone, func(v *ExportView) { v.Duplicate = "duplicate" }), "Duplicate",
			map[string]string{shared: "live copies"}, "duplicate", false},

		{"the API server does not answer", all(in(shared), gone, asked(Live{Problem: "down"})), "Unknown",
			map[string]string{shared: "live copies"}, "stays as it is: down", true},
		{"the API server has the ServiceExport, and the cache is behind", all(in(shared), gone, asked(Live{Export: "u"})), "Unknown",
			map[string]string{shared: "live copies"}, "the cache of the agent is behind", true},
		{"the cache has a ServiceExport that a restored store lost", all(in(), asked(Live{})), "Unknown",
			map[string]string{}, "does not have this ServiceExport", true},
		{"the API server has another ServiceExport of that name", all(in(shared), to("b"), asked(Live{Export: "new"})), "Unknown",
			map[string]string{shared: "live copies"}, "does not have this ServiceExport", true},
		{"a slice is gone, and the restored store does not have the ServiceExport either", all(in(shared), named, noSlices, asked(Live{})), "Unknown",
			map[string]string{shared: "live copies"}, "does not have this ServiceExport", true},
		{"the API server has the Service, and the cache is behind", all(in(shared), noService, asked(Live{Export: "u", HasService: true})), "Unknown",
			map[string]string{shared: "live copies"}, "has its Service", true},
		{"it does not say whether the Service exists", all(in(shared), noService, asked(Live{Problem: "down"})), "Unknown",
			map[string]string{shared: "live copies"}, "down", true},

		{"the definition is missing", all(in(shared), gone, asked(Live{Undefined: "it does not exist"})), "Undefined",
			map[string]string{shared: "live copies"}, "it does not exist", true},

		{"FAULT 4: the store is older than the record", all(in(shared, toB), at("2000"), gone), "Lost",
			map[string]string{shared: "live lost copies", toB: "live lost copies"}, "it is at resourceVersion 1000, the ServiceExport was at 2000; create it again, or run kubectl comity confirm lost shop/web", false},
		{"the same, of an export that was suspended", all(in(shared), suspendedBefore, at("2000"), gone), "Lost",
			map[string]string{shared: "lost suspended copies"}, "restored from a backup", false},
		{"it was marked as lost, and the store grew", all(in(shared), at("20"), lost, gone), "Lost",
			map[string]string{shared: "live lost copies"}, "marked as lost", false},
		{"the definition is younger than the export", all(in(shared), gone, asked(Live{Defined: noon})), "Lost",
			map[string]string{shared: "live lost copies"}, "was created again at 2026-06-01T12:00:00Z", false},
		{"nobody may confirm what is not marked as lost", all(in(shared), at("2000"), confirmed, gone), "Lost",
			map[string]string{shared: "live lost copies"}, "restored", false},

		{"the ServiceExport was deleted", all(in(shared), at("999"), gone), "Ended",
			map[string]string{shared: "ended"}, "", false},
		{"it was deleted while it was suspended", all(in(shared), suspendedBefore, gone), "Ended",
			map[string]string{shared: "ended"}, "", false},
		{"it was lost, and an administrator confirmed that", all(in(shared), at("2000"), lost, confirmed, gone), "Ended",
			map[string]string{shared: "ended"}, "", false},
		{"nothing was ever published", all(in(), gone), "Ended", map[string]string{}, "", false},
		{"FAULT 43: its record was restored without managedFields", all(in(shared), restored, own, gone), "Ended",
			map[string]string{shared: "ended"}, "", false},
		{"FAULT 43: the same, and the Lease was not read yet", all(in(shared), restored, gone), "Ended",
			map[string]string{shared: "live"}, "", true},

		{"the Service is missing", all(in(shared), noService), "NoService",
			map[string]string{shared: "suspended"}, "Service shop/web does not exist", false},
		{"the Service is terminating", all(in(shared), func(v *ExportView) { v.Local.Service.DeletionTimestamp = &metav1.Time{Time: noon} }), "NoService",
			map[string]string{shared: "suspended"}, "is being deleted", false},
		{"the Service is an ExternalName", all(in(shared), func(v *ExportView) { v.Local.Service.Spec.Type = corev1.ServiceTypeExternalName }), "NotExportable",
			map[string]string{shared: "suspended"}, "ExternalName", false},

		{"the namespace is Kubernetes' own", all(in(shared), func(v *ExportView) { v.Local.Key.Namespace, v.Records[0].Name = "kube-system", "web.kube-system" }), "Invalid",
			map[string]string{shared: "suspended"}, "kube-system", false},
		{"the scope cannot be read", all(in(shared), to("b,,c")), "Invalid",
			map[string]string{shared: "suspended"}, "exported nowhere", false},
		{"the selector cannot be read", all(in(toB), absent("b"), func(v *ExportView) {
			v.Local.Export.Annotations = map[string]string{model.AnnotationExportToSelector: "region in"}
		}), "Invalid", map[string]string{toB: "suspended"}, "exported nowhere", false},
		{"policies exclude every member", all(in(shared), excluding("b", "c")), "Invalid",
			map[string]string{shared: "suspended"}, "to every cluster in its scope", false},

		{"policies deny it, after a grace period", all(in(shared), denied(time.Hour)), "InGrace",
			map[string]string{shared: "live copies"}, "", false},
		{"the grace period ended", all(in(shared), denied(time.Hour), first(func(r *exchangev1alpha1.ExportRecord) {
			r.Annotations = map[string]string{model.AnnotationDeniedSince: `{"p":"2026-06-01T11:00:00Z"}`}
		})), "Denied", map[string]string{shared: "suspended"}, "[p] no", false},
		{"policies deny it", all(in(shared), denied(0)), "Denied",
			map[string]string{shared: "suspended"}, "[p] no", false},
		{"policies could not be evaluated", all(in(shared), notEvaluated), "NotEvaluated",
			map[string]string{shared: "live copies"}, "deadline", true},

		{"a slice is gone", all(in(shared), named, noSlices), "Published", map[string]string{shared: "live"}, "", false},
		{"it is published", all(in()), "Published", map[string]string{shared: "live copies"}, "", false},
		{"it was lost, and exists again", all(in(shared), lost, earlier), "Published", map[string]string{shared: "live copies"}, "", false},
		{"it was suspended, and is not any more", all(in(shared), suspendedBefore), "Published", map[string]string{shared: "live copies"}, "", false},
		{"another ServiceExport replaces it, and its Service is missing", all(in(shared), earlier, noService), "NoService",
			map[string]string{shared: "ended"}, "does not exist", false},
		{"the same, and the API server does not say that it was replaced", all(in(shared), earlier, noService, asked(Live{Problem: "down"})), "NoService",
			map[string]string{shared: "live copies"}, "does not exist", true},

		{"row Unavailable: an exchange namespace cannot be written", all(in(toB), to("b,c"), unavailable(toB)), "Published",
			map[string]string{toB: "live copies", toC: "live copies"}, "comity-a-to-b is missing", true},
		{"row Unavailable: the API server does not confirm a new export", all(in(), asked(Live{Problem: "down"})), "Published",
			map[string]string{}, "is not published in comity-a yet: down", true},
		{"FAULT 33: the same, while its scope is narrowed", all(in(shared), to("b"), asked(Live{Problem: "down"})), "Published",
			map[string]string{shared: "suspended narrowed"}, "is not published in comity-a-to-b yet: down", true},
		{"row Moved: its readers find it elsewhere", all(in(toB)), "Published", map[string]string{shared: "live copies"}, "", false},
		{"row OutOfScope: the scope is narrowed", all(in(shared), to("b")), "Published",
			map[string]string{shared: "suspended narrowed", toB: "live copies"}, "", false},
		{"row ReaderUnknown: whom the selector selected is no member now", all(in(toB), selector, absent("b")), "Invalid",
			map[string]string{toB: "live copies"}, "no cluster is in both", false},
		{"row ReaderUnknown: one of two whom it selected", all(in(toB, toC), selector, func(v *ExportView) {
			v.Members[1].Labels = v.Members[0].Labels
		}, absent("b")), "Published", map[string]string{toB: "live copies", toC: "live copies"}, "", false},
		{"row ReaderUnknown: policies exclude another cluster", all(in(toB, toD), excluding("c")), "Published",
			map[string]string{toB: "live copies", toD: "live copies"}, "", false},
		{"row ReaderUnknown: it is on the list", all(in(toB, toC), to("b,c"), absent("b")), "Published",
			map[string]string{toB: "live copies", toC: "live copies"}, "cluster b in annotation", false},
		{"row ReaderUnknown: policies could not be evaluated", all(in(toB, toC), selector, notEvaluated, func(v *ExportView) {
			v.Members[1].Labels = v.Members[0].Labels
		}, absent("b")), "NotEvaluated", map[string]string{toB: "live copies", toC: "live copies"}, "deadline", true},
		{"it is no member now, and the list leaves it out", all(in(toB, toC), to("c"), absent("b")), "Published",
			map[string]string{toB: "suspended narrowed", toC: "live copies"}, "", false},
		{"it was removed", all(in(toB, toC), selector, func(v *ExportView) { v.Members[1].Labels = v.Members[0].Labels }, absent("b"), removed), "Published",
			map[string]string{toB: "suspended narrowed", toC: "live copies"}, "", false},
		{"it is no member now, and the ServiceExport is gone", all(in(toB), absent("b"), gone), "Ended",
			map[string]string{toB: "ended"}, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			covered[tc.state] = true
			d := Export(tc.view)
			if diff := cmp.Diff(tc.want, says(tc.view, d)); diff != "" || d.Finding.State != tc.state {
				t.Errorf("row %s, want %s (-want +got):\n%s", d.Finding.State, tc.state, diff)
			}
			if !strings.Contains(d.Finding.Detail, tc.says) || (d.Finding.Detail == "") != (tc.says == "") || d.Retry != tc.retry || d.NeedsLive {
				t.Errorf("says %q, want %q; retry %v, needs live %v", d.Finding.Detail, tc.says, d.Retry, d.NeedsLive)
			}
			withheldLive(t, tc.view)
		})
	}
	for _, row := range (&exporting{}).table() {
		if !covered[row.state] {
			t.Errorf("row %s is not tested", row.state)
		}
	}
}

// withheldLive checks that without the API server's answer nothing is created, ended, or
// suspended for a missing Service, and that it is asked if it matters.
func withheldLive(t *testing.T, v ExportView) {
	t.Helper()
	answered := says(v, Export(v))
	v.Live = Live{}
	d := Export(v)
	if diff := cmp.Diff(answered, says(v, d)); diff != "" && !d.NeedsLive {
		t.Errorf("decides something else without asking (-asked +not):\n%s", diff)
	}
	before := map[string]bool{}
	for _, r := range v.Records {
		before[r.Namespace] = !r.Spec.Withdrawn && v.Local.Export != nil && r.Spec.ExportUID == v.Local.Export.UID
	}
	for namespace, now := range says(v, d) {
		if strings.HasPrefix(now, "live") && !before[namespace] && !publishes(v, namespace) || strings.HasPrefix(now, "ended") {
			t.Errorf("not asked, and %s says %s", namespace, now)
		}
	}
}

// publishes reports whether some record in a namespace is live before.
func publishes(v ExportView, namespace string) bool {
	for _, r := range v.Records {
		if r.Namespace == namespace && !r.Spec.Withdrawn {
			return true
		}
	}
	return false
}

// In a steady state the API server is not asked.
func TestNothingIsAskedAtRest(t *testing.T) {
	for name, change := range map[string]func(*ExportView){
		"published":                publishedIn("comity-a"),
		"policies deny it":         func(v *ExportView) { v.Local.Verdict.Outcome = decision.Denied },
		"not evaluated":            func(v *ExportView) { v.Local.Verdict.Outcome = decision.NotEvaluated },
		"the scope is narrowed":    func(v *ExportView) { publishedIn("comity-a", "comity-a-to-b")(v); to("b")(v) },
		"its slices are named":     func(v *ExportView) { v.Records[0].Spec.Slices = []string{"web-1"} },
		"another has the id":       func(v *ExportView) { v.Local.Export, v.Duplicate = nil, "duplicate" },
		"ended":                    func(v *ExportView) { v.Local.Export, v.Records[0].Spec.Withdrawn = nil, true },
		"nothing is published":     func(v *ExportView) { v.Local.Export, v.Records = nil, nil },
		"no Service, and withheld": func(v *ExportView) { v.Local.Service, v.Records = nil, nil },
	} {
		v := exported(change)
		v.Live = Live{}
		if d := Export(v); d.NeedsLive {
			t.Errorf("%s: the API server is asked; row %s", name, d.Finding.State)
		}
	}
}

func TestTheOwnSourceOfAnImport(t *testing.T) {
	entry := model.Entry{SourceExport: model.SourceExport{Cluster: "a", UID: "u", CreatedAt: noon}}
	answered := func(live Live) Live { live.Read = true; return live }
	both := exported().Local
	alone, none := both, LocalExport{Key: web}
	alone.Service = nil
	none.Verdict = decision.Verdict{}
	record := func(uid string, change func(*exchangev1alpha1.ExportRecordSpec)) []*exchangev1alpha1.ExportRecord {
		r := &exchangev1alpha1.ExportRecord{Spec: exchangev1alpha1.ExportRecordSpec{ExportUID: types.UID(uid), ExportedAt: metav1.NewTime(noon), ExportVersion: "200"}}
		change(&r.Spec)
		return []*exchangev1alpha1.ExportRecord{r}
	}
	live := func(*exchangev1alpha1.ExportRecordSpec) {}
	lost := func(s *exchangev1alpha1.ExportRecordSpec) { s.Lost = true }
	ended := func(s *exchangev1alpha1.ExportRecordSpec) { s.Withdrawn = true }
	for name, tc := range map[string]struct {
		local   LocalExport
		records []*exchangev1alpha1.ExportRecord
		live    Live
		want    model.SourceState
		says    string
	}{
		"both exist":                              {both, nil, Live{}, model.SourcePublished, ""},
		"the Service is missing":                  {alone, nil, answered(Live{Export: "u"}), model.SourceSuspended, ""},
		"the cache does not have the Service yet": {alone, nil, answered(Live{Export: "u", HasService: true}), model.SourceNotRead, "has its Service"},
		"it is not known whether it exists":       {alone, nil, answered(Live{Problem: "down"}), model.SourceNotRead, "down"},
		"the ServiceExport was deleted":           {none, nil, answered(Live{Defined: noon}), model.SourceEnded, ""},
		"it was not asked for":                    {none, nil, Live{}, model.SourceNotRead, "not asked"},
		"the cache does not have it yet":          {none, nil, answered(Live{Export: "u"}), model.SourceNotRead, "is behind"},
		"the definition is missing":               {none, nil, answered(Live{Undefined: "missing"}), model.SourceNotRead, "missing"},
		"the definition is younger":               {none, nil, answered(Live{Defined: noon.Add(time.Second)}), model.SourceNotRead, "created again"},
		"its record is marked as lost":            {none, record("u", lost), answered(Live{Defined: noon}), model.SourceNotRead, "confirm lost"},
		"the store is older than its record":      {none, record("u", live), answered(Live{Defined: noon, Version: "100"}), model.SourceNotRead, "restored"},
		"it is older than another record":         {none, record("v", live), answered(Live{Defined: noon, Version: "100"}), model.SourceEnded, ""},
		"its loss was confirmed":                  {none, record("u", ended), answered(Live{Defined: noon.Add(time.Second), Version: "100"}), model.SourceEnded, ""},
	} {
		own := Own(tc.local, entry, true, tc.live, tc.records, noon)
		if own.State != tc.want || !strings.Contains(own.Why, tc.says) || (own.Why == "") != (tc.says == "") {
			t.Errorf("%s: %s, %q; want %s, %q", name, own.State, own.Why, tc.want, tc.says)
		}
		if NeedsOwnLive(tc.local) != (tc.want != model.SourcePublished) {
			t.Errorf("%s: the API server is asked: %v", name, NeedsOwnLive(tc.local))
		}
	}
}

// The parts of a large slice are no slices that are gone, for which the API server would be asked.
func TestPartsOfASliceAreNotMissed(t *testing.T) {
	for name, needsLive := range map[string]bool{"web-1": false, "web-1.comity-3": false, "web-2.comity-0": true} {
		v := exported(func(v *ExportView) { v.Records[0].Spec.Slices = []string{name} })
		v.Live = Live{}
		if got := Export(v).NeedsLive; got != needsLive {
			t.Errorf("%s: needs live is %t", name, got)
		}
	}
}
