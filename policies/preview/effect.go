// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/comity-mcs/comity/policies/decision"
)

// Kind is what would happen to an object.
type Kind int

// The kinds of effects, in the order in which they are shown. The zero value is none.
const (
	// Withdraw: an export is published, and would be withdrawn, after Effect.Grace; what is
	// imported would be imported no longer.
	Withdraw Kind = iota + 1
	// Deny: it is not published, or not imported, and would be denied.
	Deny
	// Exclude: it stays published, and Effect.Clusters would lose it.
	Exclude
	// Block: the policies could not be evaluated for it. What is published or imported
	// stays, and requests are refused.
	Block
	// Allow: it would no longer be denied, withdrawn or not evaluated.
	Allow
	// Include: Effect.Clusters would get it as well.
	Include
	// Warn: it would get other warnings, and nothing else would change.
	Warn
)

// Effect is what would happen to one object.
type Effect struct {
	Kind            Kind
	Namespace, Name string
	// Cluster is the source cluster of an import; empty for an export.
	Cluster string
	// Grace is how long it would stay published, to the first of Clusters if it is limited
	// to some; 0: it would be withdrawn at once.
	Grace time.Duration
	// Clusters are those of Exclude and Include, sorted.
	Clusters []string
}

// fate is what becomes of an object because of a verdict.
type fate struct {
	outcome decision.Outcome
	// grace is how long a published object stays so although it is denied.
	grace time.Duration
	// excluded are the clusters to which it is not published, or will not be.
	excluded []string
}

// audienceOf is where an export goes, but for what policies exclude. Imports have the zero
// value.
func audienceOf(in decision.Input) decision.Audience {
	if in.EffectiveScope.All {
		return decision.Audience{Self: in.Cluster, All: true, Clusters: slices.Sorted(maps.Keys(in.Peers))}
	}
	return decision.Audience{Self: in.Cluster, Clusters: in.EffectiveScope.Clusters}
}

// fateOf reads a verdict as the publisher does (decide.Export): a published object
// that is denied stays published for a while if every violation has a grace period.
// Those of imports have none. What policies forbid to some clusters counts although others may
// have failed.
func fateOf(v decision.Verdict, published bool, to decision.Audience) fate {
	_, lost, stays := to.Without(v.Excluded)
	f := fate{outcome: v.Outcome, excluded: lost}
	if !stays {
		f.outcome = decision.Denied
	}
	if f.outcome == decision.Denied && published {
		f.grace = leastGrace(v.Violations)
	}
	return f
}

// graceOf is after how long the first of some clusters loses an export that is published now.
func graceOf(v decision.Verdict, published bool, clusters []string) time.Duration {
	if !published {
		return 0
	}
	return leastGrace(slices.DeleteFunc(slices.Clone(v.Violations), func(violation decision.Violation) bool {
		return len(missing(violation.Clusters, clusters)) == len(violation.Clusters)
	}))
}

// leastGrace is the shortest grace period of violations; 0 if there are none.
func leastGrace(violations []decision.Violation) time.Duration {
	if len(violations) == 0 {
		return 0
	}
	return slices.MinFunc(violations, func(a, b decision.Violation) int { return cmp.Compare(a.Grace, b.Grace) }).Grace
}

// effectOf compares two verdicts on one object; false if nothing would happen.
//
//	before \ after   Allowed            Denied                        NotEvaluated
//	Allowed          Exclude, Include   Withdraw if published, or Deny   Block
//	Denied           Allow              Withdraw if it is sooner         Block
//	NotEvaluated     Allow              Withdraw if published, or Deny   Exclude, Include if published
func effectOf(before, after decision.Verdict, published bool, to decision.Audience) (Effect, bool) {
	was, is := fateOf(before, published, to), fateOf(after, published, to)
	switch {
	case is.outcome == decision.NotEvaluated && was.outcome != decision.NotEvaluated:
		return Effect{Kind: Block}, true
	case is.outcome == decision.NotEvaluated && !published:
		return Effect{}, false
	case is.outcome == decision.Denied && was.outcome != decision.Denied, is.outcome == decision.Denied && is.grace < was.grace:
		kind := Deny
		if published {
			kind = Withdraw
		}
		return Effect{Kind: kind, Grace: is.grace}, true
	case is.outcome == decision.Denied:
		return warnings(before, after)
	case was.outcome != is.outcome:
		return Effect{Kind: Allow}, true
	}
	if lost := missing(is.excluded, was.excluded); len(lost) > 0 {
		return Effect{Kind: Exclude, Clusters: lost, Grace: graceOf(after, published, lost)}, true
	}
	if gained := missing(was.excluded, is.excluded); len(gained) > 0 {
		return Effect{Kind: Include, Clusters: gained}, true
	}
	return warnings(before, after)
}

// warnings is the effect of warnings that are new.
func warnings(before, after decision.Verdict) (Effect, bool) {
	isNew := func(warning decision.Violation) bool {
		return !slices.ContainsFunc(before.Warnings, func(w decision.Violation) bool { return w.String() == warning.String() })
	}
	return Effect{Kind: Warn}, slices.ContainsFunc(after.Warnings, isNew)
}

// missing are the elements of a that are not in b.
func missing(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}
