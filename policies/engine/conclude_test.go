// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// ownerless denies exports without an owner and, each by itself, those to cluster c or d.
func ownerless(change ...func(*engine.Policy)) engine.Policy {
	p := engine.Policy{Name: "owner", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: `package comity.policies.owner

deny contains {"msg": "no owner", "field": "metadata.labels"} if not input.object.metadata.labels.owner

deny contains {"msg": sprintf("cluster %s", [id])} if {
	some id in input.effectiveScope.clusters
	id in {"c", "d"}
}
`}}
	for _, c := range change {
		c(&p)
	}
	return p
}

func keep(p *engine.Policy)   { p.Existing = v1alpha1.Keep }
func warn(p *engine.Policy)   { p.Enforcement = v1alpha1.Warn }
func record(p *engine.Policy) { p.Enforcement = v1alpha1.Audit }
func except(p *engine.Policy) {
	p.Exceptions = []v1alpha1.Exception{{Namespace: "shop", Name: "db", Until: "2027-01-31", Reason: "migration"}}
}

// audit is the audit of an export; published says whether other clusters read it.
func audit(published bool) decision.Input {
	in := request("b", "c")
	in.Operation, in.UserInfo, in.Published = decision.Audit, nil, published
	return in
}

// scoped limits an input to clusters.
func scoped(in decision.Input, clusters ...string) decision.Input {
	in.EffectiveScope = decision.Scope{Clusters: clusters}
	return in
}

// update is the update of a published export; before is its audit as it was.
func update(before, after decision.Input) decision.Input {
	after.Operation, after.Published = decision.Update, true
	after.UserInfo = &decision.UserInfo{Username: "jane"}
	after.OldObject, after.Before = before.Object, &before
	return after
}

// labeled is in with other labels on the export.
func labeled(in decision.Input, labels map[string]string) decision.Input {
	in.Object = &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", Labels: labels}}
	return in
}

func TestWhatADenialBecomes(t *testing.T) {
	const (
		no      = "[owner] metadata.labels: no owner."
		would   = "[owner] would be refused: metadata.labels: no owner."
		already = "[owner] would be refused if it were not published already: metadata.labels: no owner."
		exempt  = "[owner] excepted until 2027-01-31 (migration): metadata.labels: no owner."
	)
	owned := map[string]string{"owner": "jane"}
	type want struct {
		Outcome              decision.Outcome
		Violations, Warnings []string
	}
	for name, tc := range map[string]struct {
		policy engine.Policy
		in     decision.Input
		want   want
	}{
		"Deny, a request":                      {ownerless(), request(), want{decision.Denied, []string{no}, nil}},
		"Deny, an audit":                       {ownerless(), audit(true), want{decision.Denied, []string{no}, nil}},
		"Warn, a request":                      {ownerless(warn), request(), want{decision.Allowed, nil, []string{would}}},
		"Warn, an audit":                       {ownerless(warn), audit(true), want{decision.Allowed, nil, []string{would}}},
		"Audit, a request":                     {ownerless(record), request(), want{decision.Allowed, nil, nil}},
		"Audit, an audit":                      {ownerless(record), audit(true), want{decision.Allowed, nil, []string{would}}},
		"Keep, an audit of what is published":  {ownerless(keep), audit(true), want{decision.Allowed, nil, []string{already}}},
		"Keep, an audit of what is not":        {ownerless(keep), audit(false), want{decision.Denied, []string{no}, nil}},
		"Keep, a CREATE":                       {ownerless(keep), request(), want{decision.Denied, []string{no}, nil}},
		"Keep and Warn":                        {ownerless(keep, warn), audit(true), want{decision.Allowed, nil, []string{would}}},
		"an exception, a request":              {ownerless(except), request(), want{decision.Allowed, nil, []string{exempt}}},
		"an exception, an audit":               {ownerless(except), audit(true), want{decision.Allowed, nil, []string{exempt}}},
		"Keep, an UPDATE that changes nothing": {ownerless(keep), update(audit(true), audit(true)), want{decision.Allowed, nil, []string{already}}},
		"Keep, an UPDATE that drops the owner": {
			ownerless(keep), update(labeled(audit(true), owned), audit(true)), want{decision.Denied, []string{no}, nil},
		},
		"Keep, an UPDATE to one more denied cluster": {
			ownerless(keep), update(scoped(audit(true), "b", "c"), scoped(audit(true), "b", "c", "d")),
			want{decision.Denied, []string{"[owner] cluster d."}, []string{"[owner] would be refused if it were not published already: cluster c.", already}},
		},
		"Keep, an UPDATE to one cluster fewer": {
			ownerless(keep), update(scoped(audit(true), "b", "c"), scoped(audit(true), "b")), want{decision.Allowed, nil, []string{already}},
		},
		"Keep, an UPDATE of what is not published": {
			ownerless(keep), func() decision.Input {
				in := update(audit(false), audit(false))
				in.Published, in.Before = false, nil
				return in
			}(), want{decision.Denied, []string{no}, nil},
		},
		"Withdraw, an UPDATE that changes nothing": {ownerless(), update(audit(true), audit(true)), want{decision.Denied, []string{no}, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			v := loaded(t, engine.Options{}, tc.policy).Evaluate(t.Context(), tc.in)
			got := want{v.Outcome, texts(v.Violations), texts(v.Warnings)}
			if diff := cmp.Diff(tc.want, got); diff != "" || v.Problem != "" {
				t.Errorf("problem %q (-want +got):\n%s", v.Problem, diff)
			}
			if diff := cmp.Diff([]string{"owner"}, v.Matched); diff != "" {
				t.Errorf("matched (-want +got):\n%s", diff)
			}
		})
	}
}

func texts(violations []decision.Violation) (out []string) {
	for _, v := range violations {
		out = append(out, v.String())
	}
	return out
}

func TestAnExceptionIsForItsExportAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		exception v1alpha1.Exception
		want      decision.Outcome
	}{
		"this one":                       {v1alpha1.Exception{Namespace: "shop", Name: "db"}, decision.Allowed},
		"every one of the namespace":     {v1alpha1.Exception{Namespace: "shop"}, decision.Allowed},
		"another one":                    {v1alpha1.Exception{Namespace: "shop", Name: "web"}, decision.Denied},
		"one of that name elsewhere":     {v1alpha1.Exception{Namespace: "bank", Name: "db"}, decision.Denied},
		"every one of another namespace": {v1alpha1.Exception{Namespace: "bank"}, decision.Denied},
	} {
		t.Run(name, func(t *testing.T) {
			tc.exception.Until, tc.exception.Reason = "2027-01-31", "migration"
			policy := ownerless(func(p *engine.Policy) { p.Exceptions = []v1alpha1.Exception{tc.exception} })
			if v := loaded(t, engine.Options{}, policy).Evaluate(t.Context(), request()); v.Outcome != tc.want {
				t.Errorf("got %s; want %s", v.Outcome, tc.want)
			}
		})
	}
}

// BAD INPUT: an exception that is over.
func TestFromObjectLeavesOutExceptionsThatAreOver(t *testing.T) {
	object := &v1alpha1.ExportPolicy{Spec: v1alpha1.ExportPolicySpec{
		Grace: &metav1.Duration{Duration: time.Minute}, Existing: v1alpha1.Keep,
		Exceptions: []v1alpha1.Exception{{Namespace: "shop", Until: "2027-01-31", Reason: "r"}, {Namespace: "bank", Until: "2027-02-01", Reason: "r"}},
	}}
	for name, tc := range map[string]struct {
		now  string
		want []string
	}{
		"long before":                        {"2026-01-01T00:00:00Z", []string{"shop", "bank"}},
		"in the last second of the day":      {"2027-01-31T23:59:59Z", []string{"shop", "bank"}},
		"after that, not one of a later day": {"2027-02-01T00:00:00Z", []string{"bank"}},
		"in another time zone, still before": {"2027-02-01T00:59:59+01:00", []string{"shop", "bank"}},
	} {
		t.Run(name, func(t *testing.T) {
			now, err := time.Parse(time.RFC3339, tc.now)
			if err != nil {
				t.Fatal(err)
			}
			policy := engine.FromObject(object, now)
			var got []string
			for _, e := range policy.Exceptions {
				got = append(got, e.Namespace)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if policy.Grace.Duration != time.Minute || policy.Existing != v1alpha1.Keep {
				t.Errorf("grace %s, existing %s", policy.Grace, policy.Existing)
			}
		})
	}
	if len(object.Spec.Exceptions) != 2 {
		t.Error("the object was changed")
	}
}

func TestAViolationHasTheGraceOfItsPolicy(t *testing.T) {
	e := loaded(t, engine.Options{}, ownerless(func(p *engine.Policy) { p.Grace = &metav1.Duration{Duration: time.Hour} }), denying("other", "no", "true"))
	v := e.Evaluate(t.Context(), audit(true))
	got := map[string]time.Duration{}
	for _, violation := range v.Violations {
		got[violation.Policy] = violation.Grace
	}
	if diff := cmp.Diff(map[string]time.Duration{"owner": time.Hour, "other": 0}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever bears on answers is in the digest that the replicas compare.
func TestTheDigestCoversThePolicyAndTheLibrary(t *testing.T) {
	digest := func(policy engine.Policy) string {
		t.Helper()
		return newEngine(t, engine.Options{}).Load([]engine.Policy{policy})[0].Digest
	}
	seen := map[string]string{}
	add := func(name, digest string) {
		if other, has := seen[digest]; has || digest == "" {
			t.Errorf("%s and %s have the digest %q", name, other, digest)
		}
		seen[digest] = name
	}
	add("as it is", digest(ownerless()))
	t.Run("another library", func(t *testing.T) {
		if err := engine.UseLibrary(t, map[string]string{"x.rego": "package comity.lib.x\n\ny := 1\n"}); err != nil {
			t.Fatal(err)
		}
		add("another library", digest(ownerless()))
	})
	for name, change := range map[string]func(*engine.Policy){
		"keep": keep, "warn": warn, "an exception": except,
		"grace":      func(p *engine.Policy) { p.Grace = &metav1.Duration{Duration: time.Minute} },
		"parameters": func(p *engine.Policy) { p.Parameters = &apiextensionsv1.JSON{Raw: []byte(`{"a": 1}`)} },
		"match":      func(p *engine.Policy) { p.Match = &v1alpha1.Match{ObjectSelector: &metav1.LabelSelector{}} },
	} {
		add(name, digest(ownerless(change)))
	}
	if other := digest(ownerless()); seen[other] != "as it is" {
		t.Errorf("the same policy has another digest, %s", other)
	}
}

// A selector that selects nothing, and a policy that cannot be used.
func TestMatchedNamesThePoliciesThatMatch(t *testing.T) {
	nothing := ownerless(func(p *engine.Policy) {
		p.Match = &v1alpha1.Match{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"nobody": "has"}}}
	})
	broken := engine.Policy{Name: "broken", ExportPolicySpec: v1alpha1.ExportPolicySpec{Rego: "no rego", Enforcement: v1alpha1.Warn}}
	e := newEngine(t, engine.Options{Required: []string{"missing"}})
	e.Load([]engine.Policy{denying("zeta", "no", "true"), nothing, broken})
	v := e.Evaluate(t.Context(), audit(true))
	if diff := cmp.Diff([]string{"broken", "missing", "zeta"}, v.Matched); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
