// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// conclude combines the answers into the verdict. First match wins:
//
//	a denial of a policy with                   becomes
//	an exception for it in force                a warning
//	enforcement Audit or Warn                   a warning
//	existing Keep, in an audit                  a warning if it is published or imported
//	existing Keep, in an UPDATE                 a warning if it was violated before the update
//	anything else                               a violation
//
// What a policy calls a warning is one.
func (d *deciding) conclude(ctx context.Context) {
	for _, a := range d.answers {
		if a.err != nil {
			continue
		}
		d.Warnings = append(d.Warnings, a.warn...)
		softening, exception := a.policy.softening(d.on)
		if softening == decision.NotSoftened {
			d.Violations = append(d.Violations, a.deny...)
			continue
		}
		for _, v := range a.deny {
			if softening == decision.ByExisting && len(v.Clusters) > 0 {
				// Whether these clusters read it now is not known here. Kept because of
				// the others, it would be published to them again once it was withdrawn.
				d.Violations = append(d.Violations, v)
				continue
			}
			v.Softening, v.Exception = softening, exception
			d.Warnings = append(d.Warnings, v)
		}
	}
	d.ratchet(ctx)
	d.Violations, d.Warnings = sorted(d.Violations), sorted(d.Warnings)
	d.Outcome = decision.Allowed
	if len(d.Violations) > 0 {
		d.Outcome = decision.Denied
	}
	d.exclude()
}

// softening is why what the policy denies of a subject is only a warning; of an exception, until
// when it holds, and why.
func (v *version) softening(on *Subject) (why decision.Softening, exception string) {
	for _, e := range v.Exceptions {
		if e.Namespace == on.Namespace && (e.Name == "" || e.Name == on.Name) {
			return decision.ByException, fmt.Sprintf("until %s (%s)", e.Until, e.Reason)
		}
	}
	switch {
	case v.Enforcement == v1alpha1.Warn, v.Enforcement == v1alpha1.Audit:
		return decision.ByEnforcement, ""
	case v.Existing == v1alpha1.Keep:
		return on.Stands, ""
	}
	return decision.NotSoftened, ""
}

// ratchet moves to the warnings what was wrong with a published export before an
// update of it, if the policy keeps what is published: an update is refused for what it
// makes worse. It evaluates the old export only by the policies that refuse the update. What
// one refuses that fails for the old export stays refused.
func (d *deciding) ratchet(ctx context.Context) {
	old := d.on.Before
	refuses := func(policy *version) bool {
		return policy.Existing == v1alpha1.Keep && slices.ContainsFunc(d.Violations, func(v decision.Violation) bool { return v.Policy == policy.Name })
	}
	if old == nil || !slices.ContainsFunc(d.snap.all, refuses) || old.read(d.engine.terms) != nil {
		return
	}
	d.before = d.ask(ctx, old, slices.DeleteFunc(d.snap.matching(old), func(v *version) bool { return !refuses(v) }))
	var refused []decision.Violation
	for _, v := range d.Violations {
		isOld := func(was decision.Violation) bool { return isNoWorse(v, was) }
		if slices.ContainsFunc(d.before, func(a answer) bool { return slices.ContainsFunc(a.deny, isOld) }) {
			v.Softening = decision.ByExisting
			d.Warnings = append(d.Warnings, v)
			continue
		}
		refused = append(refused, v)
	}
	d.Violations = refused
}

// isNoWorse reports whether a violation is one that was there before, for the same
// clusters or fewer.
func isNoWorse(now, was decision.Violation) bool {
	if now.Policy != was.Policy || now.Field != was.Field || now.Message != was.Message {
		return false
	}
	if len(was.Clusters) == 0 {
		return true
	}
	return len(now.Clusters) > 0 && !slices.ContainsFunc(now.Clusters, func(id string) bool { return !slices.Contains(was.Clusters, id) })
}

// exclude limits a denial in an audit to the clusters that its violations name, if
// every one names some: only these lose the export.
func (d *deciding) exclude() {
	if d.on.Operation != decision.Audit || d.Outcome != decision.Denied {
		return
	}
	var excluded []string
	for _, v := range d.Violations {
		if len(v.Clusters) == 0 {
			return
		}
		excluded = append(excluded, v.Clusters...)
	}
	slices.Sort(excluded)
	d.Outcome, d.Excluded = decision.Allowed, slices.Compact(excluded)
}
