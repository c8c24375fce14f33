// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAListIsReadAsWritten(t *testing.T) {
	at := time.Date(2026, 11, 22, 9, 30, 0, 0, time.UTC)
	elsewhere := at.In(time.FixedZone("x", 3600))
	want := List{Formed: at, Entries: []Entry{
		{SourceExport: SourceExport{Cluster: "b", UID: "of-b", CreatedAt: at}},
		{SourceExport: SourceExport{Cluster: "a", UID: "of-a", CreatedAt: at.Add(time.Second), Scoped: true}, Absent: SourceMissing, Since: at.Add(time.Minute)},
		{SourceExport: SourceExport{Cluster: "c"}},
	}}
	text := want.String()
	const form = `{"formed":"2026-11-22T09:30:00Z","exports":[{"cluster":"b","uid":"of-b","createdAt":"2026-11-22T09:30:00Z"},` +
		`{"cluster":"a","uid":"of-a","createdAt":"2026-11-22T09:30:01Z","scoped":true,"absent":"Missing","since":"2026-11-22T09:31:00Z"},{"cluster":"c"}]}`
	if text != form {
		t.Errorf("written as %s", text)
	}
	got, err := ParseList(text)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	moved := List{Formed: elsewhere, Entries: []Entry{{SourceExport: SourceExport{Cluster: "b", UID: "of-b", CreatedAt: elsewhere}}}}
	if same := (List{Formed: at, Entries: want.Entries[:1]}); moved.String() != same.String() {
		t.Errorf("equal lists differ: %s", moved)
	}
	if empty := (List{Formed: at}); empty.String() != `{"formed":"2026-11-22T09:30:00Z","exports":[]}` || !empty.Exists() || (List{}).Exists() {
		t.Errorf("a list without entries is %s", empty)
	}
	for _, state := range []SourceState{SourceEnded, SourceSuspended, SourceRefused, SourceMissing} {
		want.Entries[1].Absent = state
		if got, err := ParseList(want.String()); err != nil || got.Entries[1].Absent != state {
			t.Errorf("%s: %v, %v", state, got, err)
		}
	}
}

func TestAListThatCannotBeReadIsNone(t *testing.T) {
	const head, formed = "annotation comity.dev/exports: ", `{"formed":"2026-11-22T09:30:00Z","exports":[`
	for text, want := range map[string]string{
		"":                            "unexpected end of JSON input",
		"b/of-b/2026-11-22T09:30:00Z": "invalid character",
		"{}":                          "formed is missing; expected an RFC 3339 time",
		`{"formed":"yesterday"}`:      "parsing time",
		formed + `{"uid":"x"}]}`:      `exports[0] is of cluster ""`,
		formed + `{"cluster":"B_"}]}`: `exports[0] is of cluster "B_"`,
		formed + `{"cluster":"b"},{"cluster":"b"}]}`:                                     `exports[1] is of cluster "b"`,
		formed + `{"cluster":"b","absent":"Gone","since":"2026-11-22T09:30:00Z"}]}`:      `absent "Gone" since`,
		formed + `{"cluster":"b","absent":"Ended"}]}`:                                    "and since with absent",
		formed + `{"cluster":"b","absent":"Published","since":"2026-11-22T09:30:00Z"}]}`: `absent "Published"`,
	} {
		got, err := ParseList(text)
		if err == nil || !strings.HasPrefix(err.Error(), head) || !strings.Contains(err.Error(), want) || got.Exists() {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

func TestListedAreTheClustersOfAnObjectOfComity(t *testing.T) {
	object := &metav1.ObjectMeta{Annotations: map[string]string{AnnotationList: List{Formed: time.Unix(1, 0), Entries: []Entry{{SourceExport: SourceExport{Cluster: "c"}}, {SourceExport: SourceExport{Cluster: "b"}}}}.String()}}
	if got := Listed(object); len(got) > 0 {
		t.Errorf("of somebody else: %v", got)
	}
	object.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: FieldOwner, Operation: metav1.ManagedFieldsOperationApply}}
	if diff := cmp.Diff([]ClusterID{"c", "b"}, Listed(object)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	object.Annotations = nil
	if got := Listed(object); len(got) > 0 {
		t.Errorf("without a list: %v", got)
	}
}

// What each state means for the entry and the slices; see docs/imports.md.
func TestEachSourceStateIsOneOfFourKinds(t *testing.T) {
	for _, s := range []SourceState{
		"", SourceRemoved, SourceEnded, SourceSuspended, SourceRefused, SourceNotRead,
		SourceConfirmed, SourceMissing, SourcePublished, SourceReplaced, SourceJoined,
	} {
		kinds := 0
		for _, is := range []bool{s.IsKept(), s.IsOut(), s.IsRead(), s == SourceRemoved || s == SourceConfirmed || s == ""} {
			if is {
				kinds++
			}
		}
		if kinds != 1 || s.IsServed() != (s.IsKept() || s.IsRead()) {
			t.Errorf("%q is of %d kinds", s, kinds)
		}
	}
}
