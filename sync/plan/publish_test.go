// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

func publication(audience ...string) plan.PublishInput {
	return plan.PublishInput{
		Key: keyOf("web"),
		Record: &exchangev1alpha1.ExportRecordSpec{
			Service:           exchangev1alpha1.ServiceReference{Namespace: "default", Name: "web"},
			ExportUID:         "uid",
			ExportedAt:        metav1.NewTime(time.Unix(1000, 0)),
			ServiceProperties: model.ServiceProperties{Type: "ClusterSetIP", Ports: http(), Labels: map[string]string{"team": "red"}},
			Slices:            []string{"web-1", "web-2"},
		},
		Slices:   []*discoveryv1.EndpointSlice{published("web-1"), published("web-2")},
		Audience: audience, Now: now,
	}
}

// now is when something is published or withdrawn.
var now = time.Unix(1_800_000_000, 0).UTC()

// published is a copy as package exchange makes it.
func published(name string) *discoveryv1.EndpointSlice {
	s := slice(name, []string{"http"}, "10.1.0.1")
	s.Name = "default." + name
	s.Labels = map[string]string{model.LabelExportNamespace: "default", model.LabelExportName: "web"}
	s.Annotations = map[string]string{model.AnnotationSourceSlice: name}
	return s
}

// publish applies the plan and returns what it wrote.
func (w *world) publish(in plan.PublishInput) ([]string, error) {
	in.CurrentRecords, in.CurrentSlices = byPublisher(w)
	actions := everything(plan.Publish(in))
	for _, a := range actions {
		if err := w.do(a); err != nil {
			return nil, err
		}
	}
	return verbs(actions), nil
}

// everything are the actions of a plan in the order in which they are made.
func everything(p plan.PublishPlan) []plan.Action {
	return slices.Concat(slices.Concat(p.Publish...), slices.Concat(p.Withdraw...), slices.Concat(p.Leave...))
}

func TestPublish(t *testing.T) {
	all := publication("comity-a")
	withdrawn := publication("comity-a")
	withdrawn.Record = nil
	fewer := publication("comity-a")
	fewer.Slices, fewer.Record.Slices = fewer.Slices[:1], fewer.Record.Slices[:1]
	unlabeled := publication("comity-a")
	spec := *unlabeled.Record
	spec.Labels = nil
	unlabeled.Record = &spec
	moved := publication("comity-a")
	moved.Slices[0].Endpoints[0].Addresses = []string{"10.1.0.9"}
	narrow, wide := publication("comity-a-to-b"), publication("comity-a")
	wide.Moved = true
	cases := []struct {
		name  string
		first *plan.PublishInput
		in    plan.PublishInput
		want  []string
	}{
		{"a new export: slices, then the record that leads to them", nil, publication("comity-a"), []string{
			"create EndpointSlice comity-a/default.web-1", "create EndpointSlice comity-a/default.web-2",
			"create ExportRecord comity-a/web.default",
		}},
		{"nothing changed: no write", &all, publication("comity-a"), nil},
		{"withdrawn: the statement, then its slices", &all, withdrawn, []string{
			"update ExportRecord comity-a/web.default",
			"delete EndpointSlice comity-a/default.web-2", "delete EndpointSlice comity-a/default.web-1",
		}},
		{"no audience: the same as withdrawn", &all, publication(), []string{
			"update ExportRecord comity-a/web.default",
			"delete EndpointSlice comity-a/default.web-2", "delete EndpointSlice comity-a/default.web-1",
		}},
		{"one slice less: the record that no longer names it, then the slice", &all, fewer, []string{
			"update ExportRecord comity-a/web.default", "delete EndpointSlice comity-a/default.web-2",
		}},
		{"one slice more: the slice, then the record that names it", &fewer, all, []string{
			"create EndpointSlice comity-a/default.web-2", "update ExportRecord comity-a/web.default",
		}},
		{"an endpoint changed: its slice, and not the record", &all, moved, []string{"update EndpointSlice comity-a/default.web-1"}},
		{"a label is no longer exported: the record changes", &all, unlabeled, []string{"update ExportRecord comity-a/web.default"}},
		{"narrowed to two peers: there first, and then no longer everywhere", &all, publication("comity-a-to-c", "comity-a-to-b"), []string{
			"create EndpointSlice comity-a-to-b/default.web-1", "create EndpointSlice comity-a-to-b/default.web-2",
			"create ExportRecord comity-a-to-b/web.default",
			"create EndpointSlice comity-a-to-c/default.web-1", "create EndpointSlice comity-a-to-c/default.web-2",
			"create ExportRecord comity-a-to-c/web.default",
			"update ExportRecord comity-a/web.default",
			"delete EndpointSlice comity-a/default.web-2", "delete EndpointSlice comity-a/default.web-1",
		}},
		{"widened: the one peer finds it where all do, so nothing is withdrawn from it", &narrow, wide, []string{
			"create EndpointSlice comity-a/default.web-1", "create EndpointSlice comity-a/default.web-2",
			"create ExportRecord comity-a/web.default",
			"delete ExportRecord comity-a-to-b/web.default",
			"delete EndpointSlice comity-a-to-b/default.web-2", "delete EndpointSlice comity-a-to-b/default.web-1",
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			if c.first != nil {
				if _, err := w.publish(*c.first); err != nil {
					t.Fatal(err)
				}
			}
			got, err := w.publish(c.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if again, err := w.publish(c.in); err != nil || len(again) > 0 {
				t.Errorf("not done after one plan: %v, error %v", again, err)
			}
		})
	}
}

// Whoever finds the export in a namespace of its own learns nothing from the statement
// for the others, also while that namespace is missing. At the end of the export the
// statement is for all.
func TestAStatementSaysWhetherTheExportWasOnlyNarrowed(t *testing.T) {
	w := newWorld()
	ended, replaced := publication(), publication("comity-a-to-b")
	ended.Record = nil
	replaced.Record.ExportUID = "another"
	for _, step := range []struct {
		in   plan.PublishInput
		want bool
	}{
		{publication("comity-a"), false},
		{publication("comity-a-to-b"), true},
		{publication(), true},
		{ended, false},
		{replaced, false},
	} {
		if _, err := w.publish(step.in); err != nil {
			t.Fatal(err)
		}
		records, _ := byPublisher(w)
		for _, r := range records {
			if r.Namespace == "comity-a" && r.Spec.Narrowed != step.want {
				t.Errorf("for %v it says %v", step.in.Audience, r.Spec.Narrowed)
			}
		}
	}
}

func TestPublishLeavesForeignRecordsAlone(t *testing.T) {
	in := publication("comity-a")
	foreign := &exchangev1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-a", Name: "web.default", UID: "theirs"}}
	in.CurrentRecords = []*exchangev1alpha1.ExportRecord{foreign}
	p := plan.Publish(in)
	want := []string{"create EndpointSlice comity-a/default.web-1", "create EndpointSlice comity-a/default.web-2"}
	if diff := cmp.Diff(want, verbs(everything(p))); diff != "" || len(p.Problems) != 1 || p.Problems[0].Reason != model.ReasonNameTaken {
		t.Errorf("problems %v (-want +got):\n%s", p.Problems, diff)
	}
	in.Record = nil
	if actions := everything(plan.Publish(in)); len(actions) > 0 {
		t.Errorf("a withdrawal touches it: %v", verbs(actions))
	}
}

func TestAPeerLosesNoRecordAsLongAsAForeignOneHasThePlaceOfItsNewOne(t *testing.T) {
	w := newWorld()
	if _, err := w.publish(publication("comity-a-to-b")); err != nil {
		t.Fatal(err)
	}
	w.put(&exchangev1alpha1.ExportRecord{TypeMeta: metav1.TypeMeta{Kind: "ExportRecord"}, ObjectMeta: metav1.ObjectMeta{Namespace: "comity-a", Name: "web.default"}})
	in := publication("comity-a")
	in.Moved = true
	in.CurrentRecords, in.CurrentSlices = byPublisher(w)
	if p := plan.Publish(in); len(p.Problems) != 1 || len(p.Leave)+len(p.Withdraw) > 0 {
		t.Errorf("problems %v, and it takes away what b reads: %v", p.Problems, verbs(everything(p)))
	}
}

func TestAWithdrawalIsStatedOnceAndCollectedOrOverwritten(t *testing.T) {
	w := newWorld()
	withdrawn := publication("comity-a")
	withdrawn.Record = nil
	for _, in := range []plan.PublishInput{publication("comity-a"), withdrawn} {
		if _, err := w.publish(in); err != nil {
			t.Fatal(err)
		}
	}
	records, copies := byPublisher(w)
	if len(records) != 1 || len(copies) != 0 {
		t.Fatalf("%d records and %d slices stand, want a record alone", len(records), len(copies))
	}
	if diff := cmp.Diff(exchange.WithdrawnRecord(*publication().Record, model.Withdrawal{}, &metav1.Time{Time: now}), records[0].Spec); diff != "" {
		t.Errorf("the statement (-want +got):\n%s", diff)
	}

	again := publication("comity-a")
	again.Record.ExportUID = "another"
	again.CurrentRecords, again.CurrentSlices = byPublisher(w)
	want := []string{
		"create EndpointSlice comity-a/default.web-1", "create EndpointSlice comity-a/default.web-2", "update ExportRecord comity-a/web.default",
	}
	if diff := cmp.Diff(want, verbs(everything(plan.Publish(again)))); diff != "" {
		t.Errorf("exported again (-want +got):\n%s", diff)
	}

	withdrawn.Collect = []string{"comity-a"}
	got, err := w.publish(withdrawn)
	if diff := cmp.Diff([]string{"delete ExportRecord comity-a/web.default"}, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

// Whether the export ended, and since when, is what a reader decides by and when the
// statement is collected by.
func TestAStatementSaysWhetherTheServiceExportExists(t *testing.T) {
	w := newWorld()
	at := func(minute int, change func(*plan.PublishInput)) plan.PublishInput {
		in := publication()
		in.Record, in.Now, in.Exists = nil, now.Add(time.Duration(minute)*time.Minute), "uid"
		change(&in)
		return in
	}
	exists, gone := func(*plan.PublishInput) {}, func(in *plan.PublishInput) { in.Exists = "" }
	if _, err := w.publish(publication("comity-a")); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name      string
		in        plan.PublishInput
		writes    int
		suspended bool
		since     int
	}{
		{"suspended", at(1, exists), 3, true, 1},
		{"it stays suspended", at(2, exists), 0, true, 1},
		{"it ended", at(3, gone), 1, false, 3},
		{"it stays ended", at(4, gone), 0, false, 3},
		{"another one of that name exists", at(5, func(in *plan.PublishInput) { in.Exists = "another" }), 0, false, 3},
	} {
		writes, err := w.publish(step.in)
		if err != nil || len(writes) != step.writes {
			t.Errorf("%s: error %v, %d writes, want %d: %v", step.name, err, len(writes), step.writes, writes)
		}
		records, _ := byPublisher(w)
		spec := records[0].Spec
		if want := now.Add(time.Duration(step.since) * time.Minute); !spec.Withdrawn || spec.Suspended != step.suspended || !spec.WithdrawnAt.Time.Equal(want) {
			t.Errorf("%s: %+v, want it since %s", step.name, spec, want)
		}
	}
}

func TestALostRecordIsMarkedAndNothingElseChanges(t *testing.T) {
	w := newWorld()
	first := publication("comity-a", "comity-a-to-b")
	first.Annotations = map[string]string{model.AnnotationDeniedSince: "owner=2026-06-01T12:00:00Z"}
	if _, err := w.publish(first); err != nil {
		t.Fatal(err)
	}
	before, copies := byPublisher(w)
	lost := publication()
	lost.Record, lost.Lost = nil, true
	mark := func() []string {
		in := lost
		in.CurrentRecords, in.CurrentSlices = byPublisher(w)
		in.CurrentSlices = nil // as package decide leaves them
		actions := everything(plan.Publish(in))
		w.doAll(t, actions)
		return verbs(actions)
	}
	if got := mark(); len(got) != 2 || len(mark()) != 0 {
		t.Errorf("writes %v, and again", got)
	}
	records, after := byPublisher(w)
	for i, r := range records {
		before[i].Spec.Lost = true
		if diff := cmp.Diff(before[i].Spec, r.Spec); diff != "" || r.Annotations[model.AnnotationDeniedSince] == "" || len(after) != len(copies) {
			t.Errorf("%d of %d copies, annotations %v (-want +got):\n%s", len(after), len(copies), r.Annotations, diff)
		}
	}

	records[0].Annotations[model.AnnotationConfirmLost] = "true"
	w.put(records[0])
	ended := publication()
	ended.Record = nil
	for range 2 { // the confirmation goes once it was followed
		if _, err := w.publish(ended); err != nil {
			t.Fatal(err)
		}
	}
	for records, _ = byPublisher(w); len(records) > 0; records = records[1:] {
		if _, has := records[0].Annotations[model.AnnotationConfirmLost]; has || !records[0].Spec.Withdrawn || records[0].Spec.Lost {
			t.Errorf("after the confirmation: %v %+v", records[0].Annotations, records[0].Spec)
		}
	}
	if again, err := w.publish(ended); err != nil || len(again) > 0 {
		t.Errorf("not done: %v, error %v", again, err)
	}
}

// A write to the status of the ServiceExport changes its version, and nothing that is
// published.
func TestTheVersionOfTheExportAloneWritesNothing(t *testing.T) {
	w := newWorld()
	at := func(version, label string) plan.PublishInput {
		in := publication("comity-a")
		in.Record.ExportVersion, in.Record.Labels = version, map[string]string{"team": label}
		return in
	}
	for _, step := range []struct {
		name   string
		in     plan.PublishInput
		writes int
		want   string
	}{
		{"published", at("100", "red"), 3, "100"},
		{"the version alone", at("250", "red"), 0, "100"},
		{"what is exported as well", at("300", "blue"), 1, "300"},
		{"the store was restored, so the version of the record is none of this ServiceExport", at("200", "blue"), 1, "200"},
	} {
		writes, err := w.publish(step.in)
		records, _ := byPublisher(w)
		if err != nil || len(writes) != step.writes || records[0].Spec.ExportVersion != step.want {
			t.Errorf("%s: error %v, writes %v, version %s; want %d writes, %s", step.name, err, writes, records[0].Spec.ExportVersion, step.writes, step.want)
		}
	}
}

// FAULT 43: what was restored without managedFields, and with other labels, is still the
// agent's own, and follows what is to be published.
func TestFault43RestoredRecordsAreTheAgentsOwn(t *testing.T) {
	restore := func(w *world) {
		for ref, o := range w.objects {
			o.SetManagedFields(nil)
			o.SetLabels(map[string]string{"velero.io/restore-name": "x"})
			delete(w.applied, ref)
		}
	}
	ended, narrower, same := publication(), publication("comity-a"), publication("comity-a")
	ended.Record = nil
	spec := *narrower.Record
	spec.Labels, spec.Slices = nil, spec.Slices[:1]
	narrower.Record, narrower.Slices = &spec, narrower.Slices[:1]
	for name, in := range map[string]plan.PublishInput{"it ended": ended, "it has fewer labels and slices": narrower, "it is the same": same} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			if _, err := w.publish(publication("comity-a")); err != nil {
				t.Fatal(err)
			}
			restore(w)
			foreign := in
			foreign.CurrentRecords, foreign.CurrentSlices = byPublisher(w)
			if p := plan.Publish(foreign); len(everything(p)) > 0 {
				t.Errorf("without its Lease: %v", verbs(everything(p)))
			}
			in.Own, w.own = true, true
			if _, err := w.publish(in); err != nil {
				t.Fatal(err)
			}
			records, copies := byPublisher(w)
			want := exchange.WithdrawnRecord(*publication().Record, model.Withdrawal{}, &metav1.Time{Time: now})
			if in.Record != nil {
				want = *in.Record
			}
			if diff := cmp.Diff(want, records[0].Spec); diff != "" || len(copies) != len(in.Slices) && in.Record != nil || in.Record == nil && len(copies) > 0 {
				t.Errorf("%d copies (-want +got):\n%s", len(copies), diff)
			}
			if again, err := w.publish(in); err != nil || len(again) > 0 || !model.IsManaged(records[0]) {
				t.Errorf("not done after one plan: %v, error %v", again, err)
			}
		})
	}
}

// When the grace of a denied export began is kept on its records, and nowhere else.
func TestAnnotationsAreThoseOfRecordsThatPublish(t *testing.T) {
	w := newWorld()
	kept := func() []string {
		var out []string
		records, copies := byPublisher(w)
		for _, r := range records {
			out = append(out, r.Annotations[model.AnnotationDeniedSince])
		}
		for _, c := range copies {
			if since, has := c.Annotations[model.AnnotationDeniedSince]; has {
				t.Errorf("a copy has %q", since)
			}
		}
		return out
	}
	in := publication("comity-a")
	for _, step := range []struct {
		name, since string
	}{
		{"none", ""}, {"one is added", "owner=2026-06-01T12:00:00Z"}, {"it changes", "owner=2026-06-01T13:00:00Z"}, {"it is no longer desired", ""},
	} {
		in.Annotations = nil
		if step.since != "" {
			in.Annotations = map[string]string{model.AnnotationDeniedSince: step.since}
		}
		if _, err := w.publish(in); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{step.since}, kept()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		if again, err := w.publish(in); err != nil || len(again) > 0 {
			t.Errorf("%s: not done after one plan: %v, error %v", step.name, again, err)
		}
	}
	in.Annotations = map[string]string{model.AnnotationDeniedSince: "owner=2026-06-01T12:00:00Z"}
	if _, err := w.publish(in); err != nil {
		t.Fatal(err)
	}
	in.Record, in.Audience = nil, nil
	if _, err := w.publish(in); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{""}, kept()); diff != "" {
		t.Errorf("the statement of the withdrawal (-want +got):\n%s", diff)
	}
}

func TestPublicationsConvergeWhateverTheyWereBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			in := publication(rapid.SliceOfDistinct(rapid.SampledFrom([]string{"comity-a", "comity-a-to-b", "comity-a-to-c"}),
				func(s string) string { return s }).Draw(t, "audience")...)
			in.Slices = in.Slices[:rapid.IntRange(0, 2).Draw(t, "slices")]
			if rapid.Bool().Draw(t, "withdrawn") {
				in.Record, in.Audience = nil, nil
			}
			in.Moved = in.Record != nil && len(in.Audience) > 0 && rapid.Bool().Draw(t, "moved")
			if _, err := w.publish(in); err != nil {
				t.Fatal(err)
			}
			if again, err := w.publish(in); err != nil || len(again) > 0 {
				t.Fatalf("not done after one plan: %v, error %v", again, err)
			}
			stand(t, w, in)
		}
	})
}

// stand checks that what is in the exchange is what in publishes, and statements of
// withdrawal beside it unless what was there moved.
func stand(t *rapid.T, w *world, in plan.PublishInput) {
	records, copies := byPublisher(w)
	if want := len(in.Audience) * len(in.Slices); len(copies) != want {
		t.Fatalf("%d slices stand in the exchange, want %d", len(copies), want)
	}
	live := 0
	for _, r := range records {
		switch published := slices.Contains(in.Audience, r.Namespace); {
		case published == r.Spec.Withdrawn, !published && in.Moved:
			t.Fatalf("the record in %s is withdrawn: %v", r.Namespace, r.Spec.Withdrawn)
		case published:
			live++
		}
	}
	if live != len(in.Audience) {
		t.Fatalf("%d records publish it, want %d", live, len(in.Audience))
	}
}

func namespaceRecord(name string, desired *exchangev1alpha1.NamespaceRecordSpec, current *exchangev1alpha1.NamespaceRecord, own bool) []plan.Action {
	var want *exchangev1alpha1.NamespaceRecord
	if desired != nil {
		want = &exchangev1alpha1.NamespaceRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-a", Name: name}, Spec: *desired}
	}
	actions, problems := plan.Record(want, current, own)
	if isForeign := !own && current != nil && !model.IsManaged(current); len(problems) > 0 != (isForeign && desired != nil) {
		panic(fmt.Sprintf("problems of %s: %v", name, problems))
	}
	return actions
}

func memberRecord(desired exchangev1alpha1.MemberRecordSpec, current *exchangev1alpha1.MemberRecord, own bool) []plan.Action {
	actions, _ := plan.Record(&exchangev1alpha1.MemberRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-a", Name: desired.ClusterID}, Spec: desired}, current, own)
	return actions
}

func TestNamespacesAndMember(t *testing.T) {
	record := func(name, managedBy string, identity map[string]string) *exchangev1alpha1.NamespaceRecord {
		r := &exchangev1alpha1.NamespaceRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: "comity-a", Name: name, UID: "uid", ResourceVersion: "1"},
			Spec:       exchangev1alpha1.NamespaceRecordSpec{Labels: identity},
		}
		if managedBy != "" {
			r.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: managedBy, Operation: metav1.ManagedFieldsOperationApply}}
		}
		return r
	}
	spec := func(identity map[string]string) *exchangev1alpha1.NamespaceRecordSpec {
		return &exchangev1alpha1.NamespaceRecordSpec{Labels: identity}
	}
	got := slices.Concat(
		namespaceRecord("changed", spec(map[string]string{"id": "2"}), record("changed", "comity", map[string]string{"id": "1"}), false),
		namespaceRecord("new", spec(nil), nil, false),
		namespaceRecord("gone", nil, record("gone", "comity", nil), false),
		namespaceRecord("theirs", spec(nil), record("theirs", "helm", nil), false),
		namespaceRecord("also-theirs", nil, record("also-theirs", "", nil), false),
		namespaceRecord("none", nil, nil, false))
	want := []string{
		"update NamespaceRecord comity-a/changed", "create NamespaceRecord comity-a/new", "delete NamespaceRecord comity-a/gone",
	}
	if diff := cmp.Diff(want, verbs(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	desired := exchangev1alpha1.MemberRecordSpec{ClusterID: "a", ClusterSet: "set", Version: "1"}
	made := memberRecord(desired, nil, false)
	if diff := cmp.Diff([]string{"create MemberRecord comity-a/a"}, verbs(made)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	stored, _ := made[0].Object.(*exchangev1alpha1.MemberRecord)
	stored.UID, stored.ManagedFields = "uid", []metav1.ManagedFieldsEntry{{Manager: "comity", Operation: metav1.ManagedFieldsOperationApply}}
	if again := memberRecord(desired, stored, false); len(again) > 0 {
		t.Errorf("a member that says the same writes again: %v", verbs(again))
	}
	desired.Version = "2"
	if diff := cmp.Diff([]string{"update MemberRecord comity-a/a"}, verbs(memberRecord(desired, stored, false))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FAULT 43: so are the other records beside the own Lease.
func TestFault43RestoredNamespaceAndMemberRecordsAreTheAgentsOwn(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "comity-a", Name: "shop", UID: "uid", ResourceVersion: "1"}
	namespace := &exchangev1alpha1.NamespaceRecord{ObjectMeta: meta, Spec: exchangev1alpha1.NamespaceRecordSpec{Labels: map[string]string{"id": "1", "old": "x"}}}
	meta.Name = "a"
	member := &exchangev1alpha1.MemberRecord{ObjectMeta: meta, Spec: exchangev1alpha1.MemberRecordSpec{ClusterID: "a", Version: "1", PodCIDRs: []string{"10.0.0.0/8"}}}
	desired := exchangev1alpha1.MemberRecordSpec{ClusterID: "a", ClusterSet: "set", Version: "2"}
	adopted := append(namespaceRecord("shop", &exchangev1alpha1.NamespaceRecordSpec{Labels: map[string]string{"id": "2"}}, namespace, true),
		memberRecord(desired, member, true)...)
	for _, a := range adopted { // an apply replaces the spec
		if a.Strip != nil || a.Verb != plan.Adopt {
			t.Errorf("%s strips %v; want to adopt alone", a, a.Strip)
		}
	}
	if gone := namespaceRecord("shop", nil, namespace, true); len(adopted) != 2 || len(gone) != 1 || gone[0].Verb != plan.Delete {
		t.Errorf("adopted %v, deleted %v", verbs(adopted), verbs(gone))
	}
}

func TestReports(t *testing.T) {
	report := func(reason string, second int64) exchangev1alpha1.ImportRecordSpec {
		return exchangev1alpha1.ImportRecordSpec{
			Service: exchangev1alpha1.ServiceReference{Namespace: "default", Name: "web"}, ExportUID: "uid",
			Imported: reason == model.ReasonImported, Reason: reason, Since: metav1.Unix(second, 0),
		}
	}
	again := report(model.ReasonImported, 50)
	again.ExportUID = "another"
	said := report(model.ReasonNamespaceMissing, 50)
	said.Message = "create it"
	cases := []struct {
		name  string
		in    map[string]exchangev1alpha1.ImportRecordSpec
		want  []string
		since map[string]int64
	}{
		{"the same, later: no write, and it began when it began",
			map[string]exchangev1alpha1.ImportRecordSpec{"comity-b-to-a": report(model.ReasonImported, 50), "comity-b-to-c": report(model.ReasonNamespaceMissing, 50)},
			nil, map[string]int64{"comity-b-to-a": 10, "comity-b-to-c": 10}},
		{"another reason begins now",
			map[string]exchangev1alpha1.ImportRecordSpec{"comity-b-to-a": report(model.ReasonRefused, 50), "comity-b-to-c": report(model.ReasonNamespaceMissing, 50)},
			[]string{"update ImportRecord comity-b-to-a/web.default"}, map[string]int64{"comity-b-to-a": 50, "comity-b-to-c": 10}},
		{"another message is written and changes nothing about when it began",
			map[string]exchangev1alpha1.ImportRecordSpec{"comity-b-to-a": report(model.ReasonImported, 50), "comity-b-to-c": said},
			[]string{"update ImportRecord comity-b-to-c/web.default"}, map[string]int64{"comity-b-to-a": 10, "comity-b-to-c": 10}},
		{"an export that was made again begins again; one that is gone is told of no more",
			map[string]exchangev1alpha1.ImportRecordSpec{"comity-b-to-a": again},
			[]string{"update ImportRecord comity-b-to-a/web.default", "delete ImportRecord comity-b-to-c/web.default"}, map[string]int64{"comity-b-to-a": 50}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			first, _ := plan.Reports(keyOf("web"), map[string]exchangev1alpha1.ImportRecordSpec{
				"comity-b-to-c": report(model.ReasonNamespaceMissing, 10), "comity-b-to-a": report(model.ReasonImported, 10),
			}, nil, false)
			w.doAll(t, first)
			p, _ := plan.Reports(keyOf("web"), c.in, w.reports(), false)
			if diff := cmp.Diff(c.want, verbs(p)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			w.doAll(t, p)
			since := map[string]int64{}
			for _, r := range w.reports() {
				since[r.Namespace] = r.Spec.Since.Unix()
			}
			if diff := cmp.Diff(c.since, since); diff != "" {
				t.Errorf("since (-want +got):\n%s", diff)
			}
		})
	}
	theirs := &exchangev1alpha1.ImportRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "comity-b-to-a", Name: "web.default", UID: "theirs"}}
	p, problems := plan.Reports(keyOf("web"), map[string]exchangev1alpha1.ImportRecordSpec{"comity-b-to-a": again}, []*exchangev1alpha1.ImportRecord{theirs}, false)
	if len(p) > 0 || len(problems) != 1 || problems[0].Reason != model.ReasonNameTaken {
		t.Errorf("a foreign record: actions %v, problems %v", verbs(p), problems)
	}
	p, problems = plan.Reports(keyOf("web"), map[string]exchangev1alpha1.ImportRecordSpec{"comity-b-to-a": again}, []*exchangev1alpha1.ImportRecord{theirs}, true)
	if len(p) == 0 || p[0].Verb == plan.Delete || len(problems) > 0 {
		t.Errorf("one beside the own Lease: actions %v, problems %v", verbs(p), problems)
	}
}
