// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/decide"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/plan"
)

// publishing is a plan that publishes shop/web.
func publishing(uid types.UID, audience ...string) plan.PublishInput {
	return plan.PublishInput{Key: web, Record: &exchangev1alpha1.ExportRecordSpec{ExportUID: uid, Slices: []string{"web-1"}}, Audience: audience}
}

// withdrawing is a plan that states withdrawals of shop/web.
func withdrawing(in ...string) plan.PublishInput {
	return plan.PublishInput{Key: web, CurrentRecords: recordsIn(in...)}
}

func recordsIn(namespaces ...string) (out []*exchangev1alpha1.ExportRecord) {
	for _, namespace := range namespaces {
		out = append(out, &exchangev1alpha1.ExportRecord{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web.shop"}})
	}
	return out
}

// lostOf is what was lost of the ServiceExport shop/web, which does not exist.
func (b *base) lostOf(current []*exchangev1alpha1.ExportRecord) []*exchangev1alpha1.ExportRecord {
	return b.remembered.lost(decide.LocalExport{Key: web}, current, []string{"comity-b", "comity-b-to-a", "comity-b-to-c"})
}

func TestARecordThatWasPublishedIsRememberedUntilItsWithdrawalIsStated(t *testing.T) {
	moved := publishing("u", "comity-b")
	moved.Moved = true
	unavailable := plan.PublishInput{Key: web, Moved: true}
	again := withdrawing()
	again.Lost = recordsIn("comity-b")
	for _, tc := range []struct {
		name    string
		wrote   []plan.PublishInput
		current []string
		want    []string
	}{
		{"nothing was published", nil, nil, nil},
		{"its record is there", []plan.PublishInput{publishing("u", "comity-b")}, []string{"comity-b"}, nil},
		{"its record is lost", []plan.PublishInput{publishing("u", "comity-b")}, nil, []string{"comity-b/u"}},
		{"it was exported again", []plan.PublishInput{publishing("u", "comity-b"), publishing("new", "comity-b")}, nil, []string{"comity-b/new"}},
		{"one of two is lost", []plan.PublishInput{publishing("u", "comity-b-to-a", "comity-b-to-c")}, []string{"comity-b-to-a"}, []string{"comity-b-to-c/u"}},
		{"its withdrawal is stated", []plan.PublishInput{publishing("u", "comity-b"), withdrawing("comity-b")}, nil, nil},
		{"its withdrawal is stated after it was lost", []plan.PublishInput{publishing("u", "comity-b"), again}, nil, nil},
		{"nothing could be written", []plan.PublishInput{publishing("u", "comity-b"), unavailable, withdrawing()}, nil, []string{"comity-b/u"}},
		{"its readers find it elsewhere", []plan.PublishInput{publishing("u", "comity-b-to-a"), moved}, []string{"comity-b"}, nil},
		{"its only reader left the clusterset", []plan.PublishInput{publishing("u", "comity-b-to-d")}, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &base{remembered: newPublishedRecords()}
			for _, in := range tc.wrote {
				b.remembered.wrote(in)
			}
			var got []string
			for _, record := range b.lostOf(recordsIn(tc.current...)) {
				got = append(got, fmt.Sprintf("%s/%s", record.Namespace, record.Spec.ExportUID))
				if !record.Spec.Withdrawn || len(record.Spec.Slices) > 0 {
					t.Errorf("remembered is %+v", record.Spec)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if ended := b.remembered.endedKeys(); len(tc.want) > 0 && !slices.Contains(ended, web) {
				t.Errorf("to be examined are %v", ended)
			}
		})
	}
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	r := newPublishedRecords()
	for n := range maxEnded + 10 {
		in := publishing("u", "comity-b")
		in.Key.Name = fmt.Sprint(n)
		r.wrote(in)
		r.lost(decide.LocalExport{Key: in.Key}, nil, []string{"comity-b"})
	}
	if len(r.of) != maxEnded || len(r.endedKeys()) != maxEnded {
		t.Errorf("%d exports that ended are remembered, %d to be examined", len(r.of), len(r.endedKeys()))
	}
	exported := decide.LocalExport{Key: types.NamespacedName{Namespace: web.Namespace, Name: "1"}, Export: &mcsv1beta1.ServiceExport{}}
	if r.lost(exported, nil, []string{"comity-b"}); len(r.endedKeys()) != maxEnded-1 {
		t.Error("an export that exists again counts as one that ended")
	}
	r.end()
	r.wrote(publishing("u", "comity-b"))
	if len(r.of)+len(r.ended) > 0 {
		t.Error("after a restore, something is remembered")
	}
}
