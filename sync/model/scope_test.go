// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/sync/model"
)

func TestParseScope(t *testing.T) {
	cases := []struct {
		name, text string
		want       string
		fails      string // a part of the error
	}{
		{"one cluster", "b", "b", ""},
		{"as the how-to prints it", "cluster-2,cluster-3", "cluster-2,cluster-3", ""},
		{"order and repetition do not matter", "c, b ,c,b", "b,c", ""},
		{"white space of all kinds is ignored", "\t b\n,  c ", "b,c", ""},
		{"nothing", "", "", "names no cluster"},
		{"only white space", "  ", "", "names no cluster"},
		{"only a comma", ",", "", "item 1"},
		{"a comma too many", "b,,c", "", "item 2"},
		{"a comma at the end", "b,", "", "item 2"},
		{"a dot", "b.c", "", "RFC 1123 label"},
		{"capital letters", "b,Cluster", "", "item 2"},
		{"a star", "*", "", "RFC 1123 label"},
		{"63 characters", strings.Repeat("b", 63), strings.Repeat("b", 63), ""},
		{"64 characters", strings.Repeat("b", 64), "", "RFC 1123 label"},
		{"spaces for commas", "b c", "", "RFC 1123 label"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := model.ParseScope(c.text)
			switch {
			case c.fails == "" && err != nil:
				t.Fatalf("unexpected error: %v", err)
			case c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)):
				t.Fatalf("got error %v, want one that says %q", err, c.fails)
			case err != nil && !got.Empty():
				t.Fatalf("a list that cannot be read gave the scope %s; it must never widen", got)
			case got.String() != c.want:
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestScopesAreSets(t *testing.T) {
	ids := rapid.SliceOf(rapid.SampledFrom([]model.ClusterID{"a", "b", "c", "d"}))
	scope := rapid.Custom(func(t *rapid.T) model.Scope {
		if rapid.Bool().Draw(t, "all") {
			return model.ScopeAll()
		}
		return model.ScopeOf(ids.Draw(t, "ids")...)
	})
	rapid.Check(t, func(t *rapid.T) {
		x, y := scope.Draw(t, "x"), scope.Draw(t, "y")
		both := x.Intersect(y)
		for _, id := range []model.ClusterID{"a", "b", "c", "d", "e"} {
			if both.Contains(id) != (x.Contains(id) && y.Contains(id)) {
				t.Fatalf("%s in %s ∩ %s = %s", id, x, y, both)
			}
		}
		if other := y.Intersect(x); both.String() != other.String() || both.All() != other.All() {
			t.Fatalf("%s ∩ %s is %s one way and %s the other", x, y, both, other)
		}
		if both.All() && len(both.Clusters()) > 0 || both.Empty() && len(both.Clusters()) > 0 {
			t.Fatalf("%s contradicts itself: %v", both, both.Clusters())
		}
		if !both.All() && !both.Empty() {
			again, err := model.ParseScope(both.String())
			if err != nil || !slices.Equal(again.Clusters(), both.Clusters()) {
				t.Fatalf("%s reads back as %s, %v", both, again, err)
			}
		}
	})
}

func TestScopeKeepsNoHandleOnItsInput(t *testing.T) {
	ids := []model.ClusterID{"b", "a"}
	scope := model.ScopeOf(ids...)
	ids[0] = "z"
	scope.Clusters()[0] = "y"
	if diff := cmp.Diff([]model.ClusterID{"a", "b"}, scope.Clusters()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var zero model.Scope
	if !zero.Empty() || zero.Contains("a") || zero.All() {
		t.Error("the zero scope must hold no cluster")
	}
}

func TestScopeOfAnExport(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations, labels map[string]string
		want                string
		fails               bool
	}{
		"none asks for every cluster":                  {want: "every cluster"},
		"the annotation counts":                        {annotations: map[string]string{model.AnnotationExportTo: "c,b"}, want: "b,c"},
		"a label stored before the webhook was there":  {labels: map[string]string{model.LabelExportTo: "b"}, want: "b"},
		"the annotation wins over a label":             {annotations: map[string]string{model.AnnotationExportTo: "b"}, labels: map[string]string{model.LabelExportTo: "c"}, want: "b"},
		"an empty annotation is no scope":              {annotations: map[string]string{model.AnnotationExportTo: ""}, fails: true},
		"a malformed label is no scope, not every one": {labels: map[string]string{model.LabelExportTo: "b.c"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			scope, err := model.ScopeOfExport(&metav1.ObjectMeta{Annotations: tc.annotations, Labels: tc.labels})
			if (err != nil) != tc.fails {
				t.Fatalf("error %v", err)
			}
			if scope.String() != tc.want || (err != nil && !scope.Empty()) {
				t.Errorf("scope %q, want %q", scope, tc.want)
			}
		})
	}
}

func TestScopeOfASelector(t *testing.T) {
	members := []model.Member{
		{ID: "c", Labels: map[string]string{"region": "eu", "tier": "test"}},
		{ID: "b", Labels: map[string]string{"region": "eu"}},
		{ID: "d", Labels: map[string]string{"region": "us"}},
		{ID: "e"},
	}
	for name, tc := range map[string]struct {
		text, want string
		fails      bool
	}{
		"one label":                                {text: "region=eu", want: "b,c"},
		"several requirements":                     {text: "region in (eu,us), tier!=test", want: "b,d"},
		"a label that is not there":                {text: "!region", want: "e"},
		"none that matches":                        {text: "region=mars", want: ""},
		"an empty selector, which would match all": {text: " ", fails: true},
		"one that cannot be read":                  {text: "region=eu=us", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			scope, err := model.ScopeOfSelector(tc.text, members)
			if (err != nil) != tc.fails {
				t.Fatalf("error %v", err)
			}
			if scope.All() || scope.String() != tc.want {
				t.Errorf("scope %q, want %q", scope, tc.want)
			}
		})
	}
}
