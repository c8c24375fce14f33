// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package findings_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/findings"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

// summary is what is known of one policy.
type summary struct {
	Matched, Violations int
	Items               []v1alpha1.ViolationItem
}

func of(f *findings.Findings, name string) summary {
	matched, violations := f.Of(name)
	return summary{int(matched), int(violations.Total), violations.Items}
}

// denied is a verdict of policies that match, of which the first denies.
func denied(matched ...string) decision.Verdict {
	return decision.Verdict{
		Outcome: decision.Denied, Matched: matched, Digest: "d",
		Violations: []decision.Violation{{Policy: matched[0], Field: "spec", Message: "no owner"}},
	}
}

func allowed(matched ...string) decision.Verdict {
	return decision.Verdict{Outcome: decision.Allowed, Matched: matched, Digest: "d"}
}

func softened(why decision.Softening) decision.Verdict {
	v := allowed("owner")
	v.Warnings = []decision.Violation{{Policy: "owner", Message: "no owner", Softening: why, Exception: "until 2027-01-31 (migration)"}}
	return v
}

// export is the source cluster of an export of this cluster.
func export(cluster string) bool { return cluster == "" }

func TestOfCountsWhatAPolicyMatchesAndWhatViolatesIt(t *testing.T) {
	one := []v1alpha1.ViolationItem{{Namespace: key("").Namespace, Name: "web", Message: "spec: no owner."}}
	for name, tc := range map[string]struct {
		do   func(*findings.Findings)
		want summary
	}{
		"nothing was recorded":    {func(*findings.Findings) {}, summary{}},
		"a denial":                {func(f *findings.Findings) { f.Record(key("web"), "", denied("owner")) }, summary{Matched: 1, Violations: 1, Items: one}},
		"an export is allowed":    {func(f *findings.Findings) { f.Record(key("web"), "", allowed("owner")) }, summary{Matched: 1}},
		"another policy's":        {func(f *findings.Findings) { f.Record(key("web"), "", denied("ports", "owner")) }, summary{Matched: 1}},
		"a policy does not match": {func(f *findings.Findings) { f.Record(key("web"), "", allowed("ports")) }, summary{}},
		"the same verdict again counts once": {func(f *findings.Findings) {
			f.Record(key("web"), "", denied("owner"))
			f.Record(key("web"), "", denied("owner"))
		}, summary{Matched: 1, Violations: 1, Items: one}},
		"a violation that was corrected": {func(f *findings.Findings) {
			f.Record(key("web"), "", denied("owner"))
			f.Record(key("web"), "", allowed("owner"))
		}, summary{Matched: 1}},
		"an export that is gone": {func(f *findings.Findings) {
			f.Record(key("web"), "", denied("owner"))
			f.Forget(key("web"), export)
		}, summary{}},
		"what enforcement Warn or Audit softens violates": {
			func(f *findings.Findings) { f.Record(key("web"), "", softened(decision.ByEnforcement)) },
			summary{Matched: 1, Violations: 1, Items: []v1alpha1.ViolationItem{{Namespace: key("").Namespace, Name: "web", Message: "would be refused: no owner."}}},
		},
		"what existing Keep softens violates": {
			func(f *findings.Findings) { f.Record(key("web"), "", softened(decision.ByExisting)) },
			summary{Matched: 1, Violations: 1, Items: []v1alpha1.ViolationItem{{Namespace: key("").Namespace, Name: "web", Message: "would be refused if it were not published already: no owner."}}},
		},
		"an exception is no violation": {
			func(f *findings.Findings) { f.Record(key("web"), "", softened(decision.ByException)) }, summary{Matched: 1},
		},
		"a policy's own warning is no violation": {
			func(f *findings.Findings) { f.Record(key("web"), "", softened(decision.NotSoftened)) }, summary{Matched: 1},
		},
		"an import counts by source, beside the export of its name": {func(f *findings.Findings) {
			f.Record(key("web"), "c", denied("owner"))
			f.Record(key("web"), "b", denied("owner"))
			f.Record(key("web"), "", denied("owner"))
		}, summary{Matched: 3, Violations: 3, Items: []v1alpha1.ViolationItem{
			one[0], {Namespace: key("").Namespace, Name: "web", Cluster: "b", Message: "spec: no owner."}, {Namespace: key("").Namespace, Name: "web", Cluster: "c", Message: "spec: no owner."},
		}}},
		"a source that exports no longer": {func(f *findings.Findings) {
			f.Record(key("web"), "b", denied("owner"))
			f.Record(key("web"), "c", denied("owner"))
			f.Record(key("web"), "", denied("owner"))
			f.Forget(key("web"), func(cluster string) bool { return cluster == "b" })
		}, summary{Matched: 2, Violations: 2, Items: []v1alpha1.ViolationItem{one[0], {Namespace: key("").Namespace, Name: "web", Cluster: "c", Message: "spec: no owner."}}}},
		"an evaluation that failed keeps the violation": {func(f *findings.Findings) {
			f.Record(key("web"), "", denied("owner"))
			f.Record(key("web"), "", decision.Verdict{Outcome: decision.NotEvaluated, Matched: []string{"owner"}, Digest: "d"})
		}, summary{Matched: 1, Violations: 1, Items: one}},
		"facts that could not be read keep all": {func(f *findings.Findings) {
			f.Record(key("web"), "", denied("owner"))
			f.Record(key("web"), "", decision.Verdict{Outcome: decision.NotEvaluated})
		}, summary{Matched: 1, Violations: 1, Items: one}},
		"an evaluation that failed after the policy changed its match": {func(f *findings.Findings) {
			f.Record(key("web"), "", denied("owner"))
			f.Record(key("web"), "", decision.Verdict{Outcome: decision.NotEvaluated, Matched: []string{"ports"}, Digest: "e"})
		}, summary{}},
	} {
		t.Run(name, func(t *testing.T) {
			f := findings.New()
			tc.do(f)
			got := of(f, "owner")
			if len(got.Items) == 0 {
				got.Items = nil
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheFirstTwentyAreListedInOrderWhateverTheOrderOfTheReviews(t *testing.T) {
	f := findings.New()
	for _, n := range rand.Perm(50) {
		f.Record(key(fmt.Sprintf("svc-%02d", n)), "", denied("owner"))
	}
	got := of(f, "owner")
	if got.Matched != 50 || got.Violations != 50 || len(got.Items) != findings.MaxItems {
		t.Fatalf("matched %d, violations %d, listed %d; want 50, 50, %d", got.Matched, got.Violations, len(got.Items), findings.MaxItems)
	}
	for i, item := range got.Items {
		if want := fmt.Sprintf("svc-%02d", i); item.Name != want {
			t.Errorf("item %d is %s; want %s", i, item.Name, want)
		}
	}
}

func TestRetainSaysWhetherEveryExportWasReviewedAndDropsTheOthers(t *testing.T) {
	f := findings.New()
	f.Record(key("web"), "", denied("owner"))
	f.Record(key("gone"), "", denied("owner"))
	f.Record(key("gone"), "b", denied("owner")) // an import, which no list of exports names
	exist := []types.NamespacedName{key("web"), key("new")}
	if f.Retain(exist, "d") {
		t.Error("complete although one export was not reviewed")
	}
	if got := of(f, "owner").Matched; got != 2 {
		t.Errorf("matched %d; want 2: the export that is gone is dropped, the import stays", got)
	}
	f.Record(key("new"), "", allowed("owner"))
	if !f.Retain(exist, "d") {
		t.Error("not complete although every export was reviewed")
	}
	if f.Retain(exist, "e") {
		t.Error("complete although the policies are others")
	}
}

func TestChangedReceivesOnceForManyChangesAndNotWithoutOne(t *testing.T) {
	f := findings.New()
	received := func() (n int) {
		for {
			select {
			case <-f.Changed():
				n++
			default:
				return n
			}
		}
	}
	f.Record(key("a"), "", denied("owner"))
	f.Record(key("b"), "", denied("owner"))
	if n := received(); n != 1 {
		t.Errorf("received %d times after two changes; want once", n)
	}
	f.Record(key("a"), "", denied("owner"))
	f.Forget(key("c"), export)
	f.Forget(key("a"), func(cluster string) bool { return !export(cluster) })
	if n := received(); n != 0 {
		t.Errorf("received %d times without a change; want none", n)
	}
	f.Forget(key("a"), export)
	if n := received(); n != 1 {
		t.Errorf("received %d times after an export is gone; want once", n)
	}
}

// Whatever the order of the events, the counts equal those of the last verdict on each.
func TestCountsAreThoseOfTheLastVerdicts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := findings.New()
		type subject struct{ name, cluster string }
		last := map[subject]decision.Verdict{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			s := subject{rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"), rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "cluster")}
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				last[s] = denied("owner", "ports")
				f.Record(key(s.name), s.cluster, last[s])
			case 1:
				last[s] = allowed("owner")
				f.Record(key(s.name), s.cluster, last[s])
			case 2:
				last[s] = denied("ports")
				f.Record(key(s.name), s.cluster, last[s])
			case 3:
				delete(last, subject{s.name, ""})
				f.Forget(key(s.name), export)
			}
		}
		for _, policy := range []string{"owner", "ports"} {
			matched, violations := 0, 0
			for _, v := range last {
				for _, name := range v.Matched {
					if name == policy {
						matched++
					}
				}
				if len(v.Violations) > 0 && v.Violations[0].Policy == policy {
					violations++
				}
			}
			if got := of(f, policy); got.Matched != matched || got.Violations != violations {
				t.Fatalf("%s: matched %d, violations %d; want %d, %d", policy, got.Matched, got.Violations, matched, violations)
			}
		}
	})
}
