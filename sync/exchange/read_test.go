// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

func createdAt(namespace, name string, second int64) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(time.Unix(second, 0))}
}

func TestTheRecordCreatedLastCounts(t *testing.T) {
	shared := func(second int64) *exchangev1alpha1.ExportRecord {
		return &exchangev1alpha1.ExportRecord{ObjectMeta: createdAt("comity-b", "web.shop", second)}
	}
	scoped := func(second int64) *exchangev1alpha1.ExportRecord {
		return &exchangev1alpha1.ExportRecord{ObjectMeta: createdAt("comity-b-to-a", "web.shop", second)}
	}
	for _, c := range []struct {
		name    string
		records []*exchangev1alpha1.ExportRecord
		want    int // -1 for none
	}{
		{"there is none", []*exchangev1alpha1.ExportRecord{nil, nil}, -1},
		{"only the shared one", []*exchangev1alpha1.ExportRecord{shared(5), nil}, 0},
		{"only the scoped one", []*exchangev1alpha1.ExportRecord{nil, scoped(5)}, 1},
		{"the shared one is newer", []*exchangev1alpha1.ExportRecord{shared(6), scoped(5)}, 0},
		{"the scoped one is newer", []*exchangev1alpha1.ExportRecord{shared(5), scoped(6)}, 1},
		{"both were created in the same second", []*exchangev1alpha1.ExportRecord{shared(5), scoped(5)}, 1},
	} {
		var want *exchangev1alpha1.ExportRecord
		if c.want >= 0 {
			want = c.records[c.want]
		}
		if got := Newest(c.records...); got != want {
			t.Errorf("%s: got %v, want %v", c.name, got, want)
		}
	}
}

func TestCopiesOfBothNamespacesAreMergedByName(t *testing.T) {
	at := func(namespace, name string, second int64) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: createdAt(namespace, name, second)}
	}
	shared := []*discoveryv1.EndpointSlice{at("comity-b", "d", 5), at("comity-b", "c", 6), at("comity-b", "a", 5)}
	scoped := []*discoveryv1.EndpointSlice{at("comity-b-to-a", "c", 5), at("comity-b-to-a", "b", 5), at("comity-b-to-a", "a", 5)}
	var got []string
	for _, s := range MergeCopies(shared, scoped) {
		got = append(got, s.Namespace+"/"+s.Name)
	}
	if want := "comity-b-to-a/a comity-b-to-a/b comity-b/c comity-b/d"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if none := MergeCopies(nil, nil); len(none) > 0 {
		t.Errorf("got %v of nothing", none)
	}
}

func TestAMemberRecordHasToBeThatOfTheExpectedMember(t *testing.T) {
	for _, c := range []struct {
		name    string
		uid     types.UID // that the Peer has
		spec    *exchangev1alpha1.MemberRecordSpec
		problem string
		reused  bool
	}{
		{"no UID is expected", "", &exchangev1alpha1.MemberRecordSpec{ClusterID: "b", ClusterSet: "set", ClusterUID: "u-1"}, "spec.clusterUID: is u-1", true},
		{"the expected one", "u-1", &exchangev1alpha1.MemberRecordSpec{ClusterID: "b", ClusterSet: "set", ClusterUID: "u-1"}, "", false},
		{"none", "", nil, "MemberRecord comity-b/b: does not exist", false},
		{"another id", "u-1", &exchangev1alpha1.MemberRecordSpec{ClusterID: "c\x1b", ClusterSet: "set", ClusterUID: "u-1"}, `spec.clusterID: is "c\x1b"; expected "b"`, false},
		{"another set", "", &exchangev1alpha1.MemberRecordSpec{ClusterID: "b", ClusterSet: "other"}, `spec.clusterSet: is "other"; expected "set"`, false},
		{"no valid UID", "", &exchangev1alpha1.MemberRecordSpec{ClusterID: "b", ClusterSet: "set", ClusterUID: "u\n1"}, `spec.clusterUID: is "u\n1"`, false},
		{"a UID too long", "", &exchangev1alpha1.MemberRecordSpec{ClusterID: "b", ClusterSet: "set", ClusterUID: types.UID(strings.Repeat("u", 129))}, "spec.clusterUID: is ", false},
		{"no UID", "u-1", &exchangev1alpha1.MemberRecordSpec{ClusterID: "b", ClusterSet: "set"}, `spec.clusterUID: is ""; expected a UID`, false},
		{"another cluster has the id", "u-1", &exchangev1alpha1.MemberRecordSpec{ClusterID: "b", ClusterSet: "set", ClusterUID: "u-2"}, "spec.clusterUID: is u-2; expected u-1", true},
	} {
		var record *exchangev1alpha1.MemberRecord
		if c.spec != nil {
			record = &exchangev1alpha1.MemberRecord{Spec: *c.spec}
		}
		message, reused := MemberProblem("b", "set", c.uid, record)
		if (message == "") != (c.problem == "") || !strings.Contains(message, c.problem) || reused != c.reused {
			t.Errorf("%s: got %q, %t; want %q, %t", c.name, message, reused, c.problem, c.reused)
		}
		fitForATerminal(t, message, 700)
	}
}

func TestWhyNothingCanBePublishedInANamespace(t *testing.T) {
	namespace := func(from string, change func(*corev1.Namespace)) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "comity-a", Labels: map[string]string{model.LabelExchangeFrom: from}}}
		if change != nil {
			change(n)
		}
		return n
	}
	for _, c := range []struct {
		name      string
		namespace *corev1.Namespace
		want      string
	}{
		{"nothing is wrong", namespace("a", nil), ""},
		{"it does not exist", nil, "exchange namespace comity-a does not exist; run kubectl comity join"},
		{"it is being deleted", namespace("a", func(n *corev1.Namespace) { n.DeletionTimestamp = &metav1.Time{} }), "exchange namespace comity-a is being deleted"},
		{"it is another cluster's", namespace("b", nil), `is "b"; expected "a"`},
		{"it has no label", namespace("", func(n *corev1.Namespace) { n.Labels = nil }), `is ""; expected "a"`},
	} {
		if got := NamespaceProblem("a", "comity-a", c.namespace); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
