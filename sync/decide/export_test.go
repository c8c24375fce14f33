// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// exported is a view of cluster a, in which Service shop/web is exported, with one
// slice, and published already. The API server has what the view has, unless change says
// otherwise.
func exported(change ...func(*ExportView)) ExportView {
	record := &exchangev1alpha1.ExportRecord{ObjectMeta: ours(model.RecordName("shop", "web"), nil)}
	record.Namespace, record.Spec.ExportUID = "comity-a", "u"
	v := ExportView{
		Self: "a",
		Local: LocalExport{
			Key:       web,
			Export:    &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}},
			Service:   &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
			Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
			Slices:    []*discoveryv1.EndpointSlice{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}, AddressType: "IPv4"}},
			Verdict:   decision.Verdict{Outcome: decision.Allowed},
		},
		Members: []model.Member{{ID: "b"}, {ID: "c"}},
		Records: []*exchangev1alpha1.ExportRecord{record},
	}
	for _, c := range change {
		c(&v)
	}
	if !v.Live.Read {
		v.Live = Live{Read: true, HasService: v.Local.Service != nil, Version: "1000"}
		if v.Local.Export != nil {
			v.Live.Export = v.Local.Export.UID
		}
	}
	return v
}

func to(scope string) func(*ExportView) {
	return func(v *ExportView) { v.Local.Export.Annotations = map[string]string{model.AnnotationExportTo: scope} }
}

func TestWhatIsPublishedOfAnExport(t *testing.T) {
	type want struct {
		publication model.Publication
		record      bool // something is published or stays
		audience    []string
		slices      int
		current     int // records that the plan may change
		retry       bool
		says        string
	}
	for name, tc := range map[string]struct {
		view ExportView
		want want
	}{
		"an export to everybody": {exported(),
			want{publication: model.Published, record: true, audience: []string{"comity-a"}, slices: 1, current: 1}},
		"an export to two members": {exported(to("b,c")),
			want{publication: model.Published, record: true, audience: []string{"comity-a-to-b", "comity-a-to-c"}, slices: 1, current: 1}},
		"an export to this cluster alone": {exported(to("a")),
			want{publication: model.Published, record: true, slices: 1, current: 1}},
		"an export to a cluster that is no member waits for its join, not for a timer": {exported(to("b,mars")),
			want{publication: model.PublicationFailed, record: true, audience: []string{"comity-a-to-b"}, slices: 1, current: 1, says: "cluster mars in annotation"}},
		"an exchange namespace that cannot be written": {exported(to("b,c"), func(v *ExportView) {
			v.Unavailable = map[string]string{"comity-a-to-b": "comity-a-to-b is missing"}
			v.Records[0].Namespace = "comity-a-to-b"
		}), want{publication: model.PublicationFailed, record: true, audience: []string{"comity-a-to-c"}, slices: 1, retry: true, says: "comity-a-to-b is missing"}},
		"no export": {exported(func(v *ExportView) { v.Local.Export = nil }),
			want{publication: model.PublicationNone, current: 1}},
		"no Service": {exported(func(v *ExportView) { v.Local.Service = nil }),
			want{publication: model.PublicationNone, current: 1, says: "does not exist"}},
		"a namespace of the cluster's own": {exported(func(v *ExportView) { v.Local.Key.Namespace = "kube-system" }),
			want{publication: model.PublicationWithheld, current: 1, says: "kube-system"}},
		"a scope that cannot be read": {exported(to("b,,c")),
			want{publication: model.PublicationWithheld, current: 1, says: "exported nowhere"}},
		"an export that policies deny": {exported(func(v *ExportView) {
			v.Local.Verdict = decision.Verdict{Outcome: decision.Denied, Violations: []decision.Violation{{Policy: "p", Message: "no"}}}
		}), want{publication: model.PublicationWithheld, current: 1, says: "[p] no"}},
		"policies that cannot be evaluated: the endpoints of what is published follow": {exported(func(v *ExportView) { v.Local.Verdict = decision.Verdict{Problem: "deadline"} }),
			want{publication: model.PublicationPending, record: true, audience: []string{"comity-a"}, slices: 1, current: 1, retry: true, says: "deadline"}},
		"policies that cannot be evaluated, for an earlier export of that name": {exported(func(v *ExportView) {
			v.Local.Verdict, v.Local.Export.UID = decision.Verdict{}, "new"
		}), want{publication: model.PublicationPending, retry: true, says: "could not be evaluated"}},
		"another cluster with this one's id": {exported(func(v *ExportView) { v.Duplicate = "duplicate" }),
			want{publication: model.PublicationFailed, says: "duplicate"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := Export(tc.view)
			got := want{d.Finding.Publication, d.Plan.Record != nil, d.Plan.Audience, len(d.Plan.Slices), len(d.Plan.CurrentRecords), d.Retry, tc.want.says}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !strings.Contains(d.Finding.Detail, tc.want.says) || (d.Finding.Detail == "") != (tc.want.says == "") {
				t.Errorf("says %q, want %q", d.Finding.Detail, tc.want.says)
			}
			if diff := cmp.Diff(d, Export(tc.view), cmp.AllowUnexported(model.Scope{})); diff != "" {
				t.Errorf("the same view decides something else:\n%s", diff)
			}
		})
	}
}

func TestAWriteThatFailedIsNoPublication(t *testing.T) {
	published := ExportDecision{Finding: ExportFinding{Publication: model.Published}}
	if got, _ := published.AfterWrite(nil, nil); got.Publication != model.Published || got.Detail != "" {
		t.Errorf("without a problem: %+v", got)
	}
	obstacle, _ := published.AfterWrite([]model.Problem{{Message: "in the way"}}, nil)
	if obstacle.Publication != model.PublicationFailed || obstacle.Detail != "in the way" {
		t.Errorf("with an object in the way: %+v", obstacle)
	}
}

func TestTheFirstPassWaitsForWhatMayStillBePublished(t *testing.T) {
	missing := func(v *ExportView) { v.Unavailable = map[string]string{"comity-a-to-b": "missing"} }
	for name, tc := range map[string]struct {
		decided  ExportDecision
		problems []model.Problem
		err      error
		done     bool
	}{
		"published":                           {Export(exported()), nil, nil, true},
		"a write failed":                      {Export(exported()), nil, errors.New("down"), false},
		"a foreign object is in the way":      {Export(exported()), []model.Problem{{}}, nil, false},
		"an exchange namespace is missing":    {Export(exported(to("b"), missing)), nil, nil, false},
		"a cluster in the scope never joined": {Export(exported(to("b,mars"))), nil, nil, true},
	} {
		if _, got := tc.decided.AfterWrite(tc.problems, tc.err); got != tc.done {
			t.Errorf("%s: done: %v, want %v", name, got, tc.done)
		}
	}
}
