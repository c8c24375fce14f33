// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/comity-mcs/comity/policies/decision"
)

func TestEffectOf(t *testing.T) {
	denied := func(graces ...time.Duration) decision.Verdict {
		v := decision.Verdict{Outcome: decision.Denied}
		for _, grace := range graces {
			v.Violations = append(v.Violations, decision.Violation{Message: "no", Grace: grace})
		}
		return v
	}
	excluding := func(clusters ...string) decision.Verdict {
		return decision.Verdict{Outcome: decision.Allowed, Excluded: clusters, Violations: []decision.Violation{{Message: "not there"}}}
	}
	halfFailed := func(clusters ...string) decision.Verdict {
		v := excluding(clusters...)
		v.Outcome = decision.NotEvaluated
		return v
	}
	warning := decision.Verdict{Outcome: decision.Allowed, Warnings: []decision.Violation{{Message: "hm"}}}
	allowed, failed := decision.Verdict{Outcome: decision.Allowed}, decision.Verdict{Problem: "it broke"}
	for name, tc := range map[string]struct {
		before, after decision.Verdict
		published     bool
		want          *Effect
	}{
		"nothing changes":                                   {allowed, allowed, true, nil},
		"a denial withdraws what is published":              {allowed, denied(0), true, &Effect{Kind: Withdraw}},
		"and denies what is not":                            {allowed, denied(0), false, &Effect{Kind: Deny}},
		"a grace period is announced":                       {allowed, denied(time.Hour), true, &Effect{Kind: Withdraw, Grace: time.Hour}},
		"the first one ends it":                             {allowed, denied(time.Hour, time.Minute), true, &Effect{Kind: Withdraw, Grace: time.Minute}},
		"a violation without one withdraws at once":         {allowed, denied(time.Hour, 0), true, &Effect{Kind: Withdraw}},
		"what is not published has none":                    {allowed, denied(time.Hour), false, &Effect{Kind: Deny}},
		"a grace period that is taken away":                 {denied(time.Hour), denied(0), true, &Effect{Kind: Withdraw}},
		"what is denied already":                            {denied(0), denied(0), false, nil},
		"what is no longer denied":                          {denied(0), allowed, false, &Effect{Kind: Allow}},
		"what can no longer be evaluated":                   {allowed, failed, true, &Effect{Kind: Block}},
		"a denial that nobody can ask for any more":         {denied(0), failed, false, &Effect{Kind: Block}},
		"what cannot be evaluated either way":               {failed, failed, true, nil},
		"what can be evaluated again":                       {failed, allowed, true, &Effect{Kind: Allow}},
		"a cluster loses it although another policy fails":  {failed, halfFailed("b"), true, &Effect{Kind: Exclude, Clusters: []string{"b"}}},
		"every cluster does, although another policy fails": {failed, halfFailed("b", "c", "d"), true, &Effect{Kind: Withdraw}},
		"what is not published, and still is not":           {failed, halfFailed("b"), false, nil},
		"and is denied":                                     {failed, denied(0), true, &Effect{Kind: Withdraw}},
		"a cluster loses it":                                {excluding("b"), excluding("b", "c"), true, &Effect{Kind: Exclude, Clusters: []string{"c"}}},
		"a cluster gets it":                                 {excluding("b", "c"), excluding("b"), true, &Effect{Kind: Include, Clusters: []string{"c"}}},
		"one of each is a loss":                             {excluding("b"), excluding("c"), true, &Effect{Kind: Exclude, Clusters: []string{"c"}}},
		"a cluster that is no member loses nothing":         {allowed, excluding("x"), true, nil},
		"no cluster is left":                                {allowed, excluding("b", "c", "d"), true, &Effect{Kind: Withdraw}},
		"a new warning":                                     {allowed, warning, true, &Effect{Kind: Warn}},
		"the same warning":                                  {warning, warning, true, nil},
		"a warning that is gone":                            {warning, allowed, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := effectOf(tc.before, tc.after, tc.published, decision.Audience{Self: "a", All: true, Clusters: []string{"b", "c", "d"}})
			if !ok && tc.want == nil {
				return
			}
			if tc.want == nil {
				t.Fatalf("got %+v, want none", got)
			}
			if diff := cmp.Diff(*tc.want, got); diff != "" || !ok {
				t.Errorf("effect %v (-want +got):\n%s", ok, diff)
			}
		})
	}
}

func effects(kind Kind, n int) (out []Effect) {
	for i := range n {
		out = append(out, Effect{Kind: kind, Namespace: "shop", Name: fmt.Sprintf("web-%02d", i)})
	}
	return out
}

func TestWarnings(t *testing.T) {
	graced := effects(Withdraw, 1)
	graced[0].Grace = 90 * time.Minute
	narrowed := effects(Exclude, 1)
	narrowed[0].Clusters = []string{"b", "c"}
	for name, tc := range map[string]struct {
		part Part
		want []string
	}{
		"nothing":          {Part{Total: 3, Looked: 3, Matched: 1}, nil},
		"one export":       {Part{Total: 3, Looked: 3, Matched: 1, Effects: effects(Withdraw, 1)}, []string{"[p] would withdraw 1 of 3 exports: shop/web-00"}},
		"the first names":  {Part{Total: 340, Looked: 340, Matched: 340, Effects: effects(Withdraw, 12)}, []string{"[p] would withdraw 12 of 340 exports: shop/web-00, shop/web-01, shop/web-02 and 9 more"}},
		"a grace period":   {Part{Total: 3, Looked: 3, Matched: 1, Effects: graced}, []string{"[p] would withdraw 1 of 3 exports after 1h30m: shop/web-00"}},
		"some clusters":    {Part{Total: 3, Looked: 3, Matched: 1, Effects: narrowed}, []string{"[p] would withdraw 1 of 3 exports from some clusters: shop/web-00 (b, c)"}},
		"no match":         {Part{Total: 3, Looked: 3, Counted: true}, []string{"[p] matches no export (there are 3)"}},
		"no export at all": {Part{Counted: true}, nil},
		"the time was over": {
			Part{Total: 10000, Looked: 200, Counted: true, Effects: effects(Allow, 1)},
			[]string{"[p] would no longer deny 1 of 200 exports: shop/web-00", "[p] looked at 200 of 10000 exports, then the time for a preview was over"},
		},
		"some could not be read": {
			Part{Total: 3, Looked: 3, Counted: true, Unread: 1, Problem: "read Namespace shop: gone"},
			[]string{"[p] 1 of 3 exports could not be read: read Namespace shop: gone"},
		},
		"every kind in order": {
			Part{Total: 9, Looked: 9, Matched: 9, Effects: append(append(append(append(effects(Warn, 1), effects(Allow, 1)...), effects(Block, 1)...), effects(Include, 1)...), append(effects(Deny, 1), effects(Withdraw, 1)...)...)},
			[]string{
				"[p] would withdraw 1 of 9 exports: shop/web-00", "[p] would deny 1 of 9 exports: shop/web-00",
				"[p] would keep policies from being evaluated for 1 of 9 exports: shop/web-00", "[p] would no longer deny 1 of 9 exports: shop/web-00",
				"[p] would publish 1 of 9 exports to more clusters: shop/web-00", "[p] would warn about 1 of 9 exports: shop/web-00",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := Report{Exports: tc.part}.Warnings("p")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("imports", func(t *testing.T) {
		items := []Effect{
			{Kind: Withdraw, Namespace: "shop", Name: "web", Cluster: "b"}, {Kind: Withdraw, Namespace: "shop", Name: "web", Cluster: "c"},
			{Kind: Deny, Namespace: "shop", Name: "db", Cluster: "b"},
		}
		got := Report{Exports: Part{Total: 2, Looked: 2}, Imports: Part{Total: 4, Looked: 4, Counted: true, Matched: 4, Effects: items}}.Warnings("p")
		want := []string{"[p] would withdraw 2 of 4 imports: shop/web from b, shop/web from c", "[p] would deny 1 of 4 imports: shop/db from b"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
		got = Report{Imports: Part{Total: 4, Looked: 4, Counted: true}}.Warnings("p")
		if diff := cmp.Diff([]string{"[p] matches no import (there are 4)"}, got); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
	})
	t.Run("ten thousand stay short", func(t *testing.T) {
		for _, line := range (Report{Exports: Part{Total: 10000, Looked: 10000, Effects: effects(Withdraw, 10000)}}).Warnings("some-policy") {
			if len(line) > 120 {
				t.Errorf("%d bytes: %s", len(line), line)
			}
		}
	})
}

func TestDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{"10m": 10 * time.Minute, "1h": time.Hour, "1h30m": 90 * time.Minute, "720h": 720 * time.Hour, "1m30s": 90 * time.Second, "10s": 10 * time.Second} {
		if got := withoutZero.Replace(d.String()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestALineSaysWhetherSomethingChanges(t *testing.T) {
	lines := Report{
		Exports: Part{Total: 4, Looked: 3, Unread: 1, Problem: "gone", Effects: append(effects(Warn, 1), effects(Deny, 1)...)},
		Imports: Part{Total: 3, Looked: 3, Counted: true},
	}.Warnings("p")
	type said struct{ change, incomplete bool }
	want := []said{{true, false}, {false, false}, {false, true}, {false, true}, {false, false}}
	var got []said
	for _, line := range lines {
		got = append(got, said{IsChange(line), IsIncomplete(line)})
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(said{})); diff != "" {
		t.Errorf("%q (-want +got):\n%s", lines, diff)
	}
	if !IsIncomplete("[p] there is no preview of what it would do: another one is being made") || IsIncomplete("unknown field \"spec.x\"") || IsChange("would") {
		t.Error("a line in place of a preview, or of somebody else")
	}
}
