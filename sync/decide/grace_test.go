// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/policies/decision"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// deniedBy is a verdict of policies with grace periods, by name.
func deniedBy(graces map[string]time.Duration) decision.Verdict {
	v := decision.Verdict{Outcome: decision.Denied}
	for _, policy := range []string{"owner", "ports", "scope"} {
		if grace, denies := graces[policy]; denies {
			v.Violations = append(v.Violations, decision.Violation{Policy: policy, Message: "no", Grace: grace})
		}
	}
	return v
}

func TestADeniedExportStaysPublishedForItsGrace(t *testing.T) {
	hour := map[string]time.Duration{"owner": time.Hour}
	since := func(text string) func(*ExportView) {
		return func(v *ExportView) { v.Records[0].Annotations = map[string]string{model.AnnotationDeniedSince: text} }
	}
	type want struct {
		publication model.Publication
		until       string // of the grace; empty if there is none
		since       string // that the record keeps
		again       time.Duration
	}
	withdrawn := want{publication: model.PublicationWithheld}
	for name, tc := range map[string]struct {
		graces map[string]time.Duration
		change func(*ExportView)
		want   want
	}{
		"first denied now": {hour, nil, want{model.Published, "13:00", `{"owner":"2026-06-01T12:00:00Z"}`, time.Hour}},
		"denied before, also before a restart": {hour, since(`{"owner":"2026-06-01T11:30:00Z"}`),
			want{model.Published, "12:30", `{"owner":"2026-06-01T11:30:00Z"}`, 30 * time.Minute}},
		"the grace is over now":  {hour, since(`{"owner":"2026-06-01T11:00:00Z"}`), withdrawn},
		"the grace is long over": {hour, since(`{"owner":"2026-05-31T11:00:00Z"}`), withdrawn},
		"two policies: the first grace that ends counts": {
			map[string]time.Duration{"owner": time.Hour, "ports": 10 * time.Minute}, since(`{"owner":"2026-06-01T11:30:00Z"}`),
			want{model.Published, "12:10", `{"owner":"2026-06-01T11:30:00Z","ports":"2026-06-01T12:00:00Z"}`, 10 * time.Minute}},
		"two policies, one without grace": {map[string]time.Duration{"owner": time.Hour, "ports": 0}, nil, withdrawn},
		"no grace":                        {map[string]time.Duration{"owner": 0}, nil, withdrawn},
		"a policy that denies no longer is forgotten": {hour, since(`{"owner":"2026-06-01T11:30:00Z","ports":"2026-05-30T11:30:00Z"}`),
			want{model.Published, "12:30", `{"owner":"2026-06-01T11:30:00Z"}`, 30 * time.Minute}},
		"what is not published gets no grace": {hour, func(v *ExportView) { v.Records = nil }, withdrawn},
		"nor what stated its withdrawal":      {hour, func(v *ExportView) { v.Records[0].Spec.Withdrawn = true }, withdrawn},
		"nor another export of that name":     {hour, func(v *ExportView) { v.Records[0].Spec.ExportUID = "other" }, withdrawn},
		"nor a record of somebody else":       {hour, func(v *ExportView) { v.Records[0].ManagedFields = nil }, withdrawn},
		"a time that cannot be read begins again": {hour, since(`{"owner":"yesterday"}`),
			want{model.Published, "13:00", `{"owner":"2026-06-01T12:00:00Z"}`, time.Hour}},
		"a time in the future, of a clock that went back, prolongs nothing": {hour, since(`{"owner":"2027-06-01T11:30:00Z"}`),
			want{model.Published, "13:00", `{"owner":"2026-06-01T12:00:00Z"}`, time.Hour}},
		"of two records the earlier time counts": {hour, func(v *ExportView) {
			other := v.Records[0].DeepCopy()
			other.Namespace = "comity-a-to-b"
			since(`{"owner":"2026-06-01T11:30:00Z"}`)(v)
			other.Annotations = map[string]string{model.AnnotationDeniedSince: `{"owner":"2026-06-01T11:10:00Z"}`}
			v.Records = append(v.Records, other)
		}, want{model.Published, "12:10", `{"owner":"2026-06-01T11:10:00Z"}`, 10 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			v := exported(func(v *ExportView) { v.Now, v.Local.Verdict = noon, deniedBy(tc.graces) })
			if tc.change != nil {
				tc.change(&v)
			}
			d := Export(v)
			got := want{publication: d.Finding.Publication, since: d.Plan.Annotations[model.AnnotationDeniedSince], again: d.Again}
			if !d.Finding.WithdrawnAt.IsZero() {
				got.until = d.Finding.WithdrawnAt.Format("15:04")
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if stays := d.Plan.Record != nil; stays != (tc.want.publication == model.Published) {
				t.Errorf("a record is published: %v", stays)
			}
		})
	}
}

func TestWhatIsPublishedInGraceReachesNoFurtherCluster(t *testing.T) {
	v := exported(to("b,c"), func(v *ExportView) {
		v.Now, v.Local.Verdict = noon, deniedBy(map[string]time.Duration{"owner": time.Hour})
		v.Records[0].Namespace = "comity-a-to-b"
	})
	d := Export(v)
	if diff := cmp.Diff([]string{"comity-a-to-b"}, d.Plan.Audience); diff != "" {
		t.Errorf("published in (-want +got):\n%s", diff)
	}
	if len(d.Plan.Slices) != 1 || len(d.Plan.Record.Slices) != 1 {
		t.Error("the endpoints of what is published do not follow")
	}
}

func TestAGraceGoesOnWhilePoliciesCannotBeEvaluated(t *testing.T) {
	v := exported(func(v *ExportView) {
		v.Now, v.Local.Verdict = noon, decision.Verdict{Problem: "deadline"}
		v.Records[0].Annotations = map[string]string{model.AnnotationDeniedSince: `{"owner":"2026-06-01T11:30:00Z"}`}
	})
	if got := Export(v).Plan.Annotations[model.AnnotationDeniedSince]; got != `{"owner":"2026-06-01T11:30:00Z"}` {
		t.Errorf("the record keeps %q", got)
	}
	v.Local.Verdict = decision.Verdict{Outcome: decision.Allowed}
	if got := Export(v).Plan.Annotations; len(got) > 0 {
		t.Errorf("an export that is allowed again keeps %v", got)
	}
}

// However often it is decided, and whatever restarts in between, an export is withdrawn
// when the grace that began with its first denial ends, and not a second later.
func TestGraceEndsOnceWhateverHappensInBetween(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		grace := time.Duration(rapid.IntRange(1, 1000).Draw(t, "grace")) * time.Second
		now, first := noon, time.Time{}
		v := exported()
		for range rapid.IntRange(1, 20).Draw(t, "decisions") {
			v.Now, v.Local.Verdict = now, deniedBy(map[string]time.Duration{"owner": grace})
			if first.IsZero() {
				first = now
			}
			if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
				v.Local.Verdict = decision.Verdict{Problem: "deadline"}
			}
			d := Export(v)
			evaluated := v.Local.Verdict.Outcome == decision.Denied
			over := now.Sub(first.Truncate(time.Second)) >= grace
			began := v.Records[0].Annotations[model.AnnotationDeniedSince] != ""
			switch {
			case evaluated && began && over && d.Finding.Publication != model.PublicationWithheld:
				t.Fatalf("%s after the first denial, with a grace of %s: %v", now.Sub(first), grace, d.Finding)
			case !over && d.Plan.Record == nil:
				t.Fatalf("withdrawn %s after the first denial, with a grace of %s", now.Sub(first), grace)
			}
			if !evaluated && !began {
				first = time.Time{} // nothing was found yet
			}
			if d.Plan.Record == nil {
				return
			}
			v.Records = []*exchangev1alpha1.ExportRecord{v.Records[0].DeepCopy()}
			v.Records[0].Annotations = d.Plan.Annotations
			now = now.Add(time.Duration(rapid.IntRange(0, 400_000).Draw(t, "passes")) * time.Millisecond)
		}
	})
}

func TestAnnotationsOfGraceAreReadAsTheyAreWritten(t *testing.T) {
	since := map[string]time.Time{"owner": noon, "a-b.c": noon.Add(-time.Hour)}
	var e exporting
	e.d.Plan.Annotations, e.d.Plan.Record, e.grace.since = map[string]string{}, &exchangev1alpha1.ExportRecordSpec{}, since
	e.annotate()
	text := e.d.Plan.Annotations[model.AnnotationDeniedSince]
	if want := `{"a-b.c":"2026-06-01T11:00:00Z","owner":"2026-06-01T12:00:00Z"}`; text != want {
		t.Errorf("written as %q; want %q", text, want)
	}
	v := exported(func(v *ExportView) {
		v.Records[0].Annotations = map[string]string{model.AnnotationDeniedSince: text}
	})
	read := deniedSince(publishing(v.Local.Export, v.Records))
	if diff := cmp.Diff(since, read); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
}

// What policies keep is in the record, which says the same until something else was decided.
func TestTheRecordSaysWhichViolationsAreKept(t *testing.T) {
	denied := deniedBy(map[string]time.Duration{"owner": time.Hour})
	for name, tc := range map[string]struct {
		verdict decision.Verdict
		want    string
	}{
		"an audit":                 {decision.Verdict{Outcome: decision.Allowed, Kept: "new:"}, "new:"},
		"a denial in grace":        {denied, "old:1"},
		"nothing can be evaluated": {decision.Verdict{Problem: "deadline"}, "old:1"},
		"a denial":                 {decision.Verdict{Outcome: decision.Denied, Violations: []decision.Violation{{Policy: "owner"}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := Export(exported(func(v *ExportView) {
				v.Now, v.Local.Verdict = noon, tc.verdict
				v.Records[0].Annotations = map[string]string{model.AnnotationKept: "old:1"}
			}))
			if got := d.Plan.Annotations[model.AnnotationKept]; got != tc.want {
				t.Errorf("the record says %q, want %q", got, tc.want)
			}
		})
	}
}
