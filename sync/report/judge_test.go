// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
)

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

// seen is an observation in which these clusters contribute.
func seen(problems []model.Problem, clusters ...model.ClusterID) *model.Observation {
	o := &model.Observation{Import: &model.Import{Key: web}, Problems: problems}
	for _, id := range clusters {
		o.Import.Constituents = append(o.Import.Constituents, model.Constituent{Cluster: id})
	}
	return o
}

func TestJudge(t *testing.T) {
	overlap := model.Problem{Reason: model.ReasonAddressOverlap, Cluster: "a", Message: "10.1.0.1 of cluster a lies in pod range 10.1.0.0/16 of cluster b"}
	local := func(reason string) []model.Problem {
		return []model.Problem{{Reason: reason, Message: "Service shop/derived-1 of cluster c is in the way"}}
	}
	standing := seen(local(model.ReasonNameTaken), "a", "c")
	standing.Sources = []model.Source{{Cluster: "a"}}
	cases := []struct {
		name    string
		change  func(*situation)
		unknown bool
		want    verdict
		says    string
	}{
		{name: "contributes", change: func(*situation) {}, want: verdict{imported: true, reason: model.ReasonImported}},
		{name: "importing is off, whatever else", change: func(s *situation) { s.imports, s.namespace, s.seen = false, namespaceMissing, nil },
			want: verdict{reason: model.ReasonImportDisabled}, says: "cluster b runs Comity without importing"},
		{name: "the namespace is Comity's", change: func(s *situation) { s.namespace, s.seen = namespaceReserved, nil },
			want: verdict{reason: model.ReasonNamespaceReserved}, says: "namespace shop of cluster b"},
		{name: "there is no namespace", change: func(s *situation) { s.namespace, s.seen = namespaceMissing, nil },
			want: verdict{reason: model.ReasonNamespaceMissing}, says: "cluster b has no namespace shop; create it there"},
		{name: "the namespace is going", change: func(s *situation) { s.namespace = namespaceTerminating },
			want: verdict{reason: model.ReasonNamespaceMissing}, says: "is being deleted"},
		{name: "the loop has not looked", change: func(s *situation) { s.seen = nil }, unknown: true},
		{name: "the loop has looked at the others", change: func(s *situation) { s.seen = seen(nil, "c") }, unknown: true},
		{name: "the loop has imported nothing yet", change: func(s *situation) { s.seen = &model.Observation{} }, unknown: true},
		{name: "a foreign import", change: func(s *situation) { s.seen = seen(local(model.ReasonForeignImport), "a") },
			want: verdict{reason: model.ReasonForeignImport}, says: "ServiceImport shop/web that Comity did not make"},
		{name: "no name is free", change: func(s *situation) { s.seen = seen(local(model.ReasonNameTaken), "a") },
			want: verdict{reason: model.ReasonNameTaken}, says: "namespace shop of cluster b"},
		{name: "one name is taken and the other used", change: func(s *situation) { s.seen = standing },
			want: verdict{imported: true, reason: model.ReasonImported}},
		{name: "the API server refuses", change: func(s *situation) { s.seen = seen(local(model.ReasonRefused), "a") },
			want: verdict{reason: model.ReasonRefused}, says: "API server of cluster b refuses"},
		{name: "no family in common", change: func(s *situation) { s.seen = seen(local(model.ReasonIPFamilyNotSupported), "a") },
			want: verdict{reason: model.ReasonIPFamilyNotSupported}, says: "none of the IP families"},
		{name: "what is replaced or contested is imported", change: func(s *situation) {
			s.seen = seen(append(local(model.ReasonTypeChanged), local(model.ReasonContested)...), "a")
		}, want: verdict{imported: true, reason: model.ReasonImported}},
		{name: "another cluster's endpoints are left out", change: func(s *situation) {
			s.seen = seen([]model.Problem{{Reason: model.ReasonAddressOverlap, Cluster: "c", Message: "secret of c"}}, "a", "c")
		}, want: verdict{imported: true, reason: model.ReasonImported}},
		{name: "some endpoints are left out", change: func(s *situation) { s.seen = seen([]model.Problem{overlap}, "a") },
			want: verdict{imported: true, reason: model.ReasonAddressOverlap}, says: overlap.Message},
		{name: "all endpoints are left out", change: func(s *situation) {
			s.seen, s.remains = seen([]model.Problem{overlap}, "a"), func() bool { return false }
		}, want: verdict{reason: model.ReasonAddressOverlap}, says: overlap.Message},
		{name: "a message that would name a third cluster", change: func(s *situation) {
			p := overlap
			p.Message = "10.1.0.1 is of cluster a and of cluster c"
			s.seen = seen([]model.Problem{p}, "a")
		}, want: verdict{imported: true, reason: model.ReasonAddressOverlap}, says: "parts of the export are left out in cluster b (AddressOverlap)"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := situation{
				key: web, self: "b", source: "a", others: []model.ClusterID{"c", "the"}, imports: true, namespace: namespaceThere,
				seen: seen(nil, "a", "c"), remains: func() bool { return true },
			}
			c.change(&s)
			got, known := judge(s)
			if known == c.unknown {
				t.Fatalf("known is %t", known)
			}
			if got.imported != c.want.imported || got.reason != c.want.reason || !strings.Contains(got.message, c.says) || (c.says == "") != (got.message == "") {
				t.Errorf("got %+v, want %+v saying %q", got, c.want, c.says)
			}
			if mentions(got.message, s.others) || strings.Contains(got.message, "secret") {
				t.Errorf("%q tells a about another cluster", got.message)
			}
		})
	}
}

func TestMentions(t *testing.T) {
	others := []model.ClusterID{"c", "a", "eu-1"}
	for text, want := range map[string]bool{
		"a Service of cluster b is a problem":   false,
		"the oldest export, of cluster c, wins": true,
		"clusters b, c differ":                  true,
		"clusters b and eu-1":                   true,
		"Cluster c":                             true,
		"cluster c2 and cluster eu-12":          false,
		"clusterset c":                          false,
		"":                                      false,
	} {
		if got := mentions(text, others); got != want {
			t.Errorf("%q: got %t", text, got)
		}
	}
}

func TestManyProblemsFitIntoARecord(t *testing.T) {
	var problems []model.Problem
	for range 100 {
		problems = append(problems, model.Problem{Reason: model.ReasonInvalidEndpoints, Cluster: "a", Message: strings.Repeat("ü", len(problems)+1)})
	}
	s := situation{key: web, self: "b", source: "a", imports: true, namespace: namespaceThere, seen: seen(problems, "a"), remains: func() bool { return true }}
	got, _ := judge(s)
	if len(got.message) > maxMessage {
		t.Errorf("%d bytes", len(got.message))
	}
	if diff := cmp.Diff(true, got.imported); diff != "" {
		t.Error(diff)
	}
}
