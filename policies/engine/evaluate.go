// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// Evaluate evaluates all policies that match the export. The verdict is
// NotEvaluated, with a Problem that names the policy if one is the cause, when
// nothing was loaded yet, when a policy fails or its answer has another form than
// INPUT.md says, when the deadline of the engine or of ctx passes, and when no slot
// becomes free in time. It returns within two and a half times Options.Timeout, even
// if a policy cannot be stopped.
func (e *Engine) Evaluate(ctx context.Context, in decision.Input) decision.Verdict {
	snap := e.current.Load()
	if snap == nil {
		return decision.Verdict{Problem: "policies are not loaded yet"}
	}
	verdict := decision.Verdict{Digest: snap.digest}
	if in.Object == nil {
		verdict.Problem = "there is no ServiceExport to evaluate"
		return verdict
	}
	at := &progress{policies: snap.matching(in)}
	if len(at.policies) == 0 {
		verdict.Outcome = decision.Allowed
		return verdict
	}
	answers, err := e.run(ctx, snap, in, at)
	if err != nil {
		verdict.Problem = err.Error()
		return verdict
	}
	conclude(&verdict, in.Operation, answers)
	return verdict
}

// matching are the policies that match the export, by package.
func (s *snapshot) matching(in decision.Input) map[string]*version {
	matching := make(map[string]*version, len(s.order))
	for pkg, v := range s.byPackage {
		if v.matches(in) {
			matching[pkg] = v
		}
	}
	return matching
}

// run waits for a slot and evaluates in another goroutine, because not every
// builtin of OPA can be interrupted: then the answer does not wait for it, and it
// keeps its slot for as long as it runs. The goroutine does not use in, which belongs
// to the caller again once run returns.
func (e *Engine) run(ctx context.Context, snap *snapshot, in decision.Input, at *progress) ([]answer, error) {
	input, err := inputValue(in)
	if err != nil {
		return nil, err
	}
	if err := e.acquire(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	type outcome struct {
		answers []answer
		err     error
	}
	done := make(chan outcome, 1)
	go func() {
		defer cancel()
		defer func() { <-e.slots }()
		answers, err := snap.evaluate(ctx, input, at)
		done <- outcome{answers, err}
	}()
	select {
	case o := <-done:
		return o.answers, o.err
	case <-ctx.Done():
	}
	// OPA notices the deadline a little later, and then names the policy.
	grace := time.NewTimer(e.timeout / 2)
	defer grace.Stop()
	select {
	case o := <-done:
		return o.answers, o.err
	case <-grace.C:
		return nil, at.blame(errors.New("it took too long and does not stop"))
	}
}

// acquire takes a slot; the evaluation releases it.
func (e *Engine) acquire(ctx context.Context) error {
	select {
	case e.slots <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(e.timeout)
	defer timer.Stop()
	select {
	case e.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the request ended before the policies could be evaluated: %w", context.Cause(ctx))
	case <-timer.C:
		return fmt.Errorf("%d evaluations are running and none ended within %s", cap(e.slots), e.timeout)
	}
}

// answer is the answer of one policy.
type answer struct {
	policy     *version
	deny, warn []decision.Violation
}

// read reads ["<package>", deny, warn] of every policy that was evaluated.
func (s *snapshot) read(set *ast.Term, at *progress) ([]answer, error) {
	given, ok := set.Value.(ast.Set)
	if !ok || given.Len() != len(at.policies) {
		return nil, fmt.Errorf("%d policies were evaluated, and not every one gave an answer", len(at.policies))
	}
	var answers []answer
	err := given.Iter(func(term *ast.Term) error {
		triple, ok := term.Value.(*ast.Array)
		if !ok || triple.Len() != 3 {
			return errors.New("a policy's answer has an unknown form")
		}
		pkg, _ := triple.Elem(0).Value.(ast.String)
		a := answer{policy: at.policies[string(pkg)]}
		if a.policy == nil {
			return fmt.Errorf("package %s%s gave an answer without being evaluated", packagePrefix, pkg)
		}
		var err error
		if a.deny, err = a.policy.violations(denySet, triple.Elem(1)); err != nil {
			return err
		}
		a.warn, err = a.policy.violations(warnSet, triple.Elem(2))
		answers = append(answers, a)
		return err
	})
	return answers, err
}

// violations reads one set of {msg, field, remedy}.
func (v *version) violations(name string, term *ast.Term) ([]decision.Violation, error) {
	set, ok := term.Value.(ast.Set)
	if !ok {
		return nil, fmt.Errorf("policy %s: %s is no set", v.name, name)
	}
	var violations []decision.Violation
	err := set.Iter(func(item *ast.Term) error {
		object, ok := item.Value.(ast.Object)
		if !ok {
			return fmt.Errorf("policy %s: %s holds %s; expected objects {\"msg\": ..., \"field\": ..., \"remedy\": ...}", v.name, name, item)
		}
		violation := decision.Violation{Policy: v.name, Reason: v.reason}
		for key, into := range map[string]*string{"msg": &violation.Message, "field": &violation.Field, "remedy": &violation.Remedy} {
			given := object.Get(ast.StringTerm(key))
			if given == nil {
				continue
			}
			text, ok := given.Value.(ast.String)
			if !ok {
				return fmt.Errorf("policy %s: %s holds %s %s; expected a string", v.name, name, key, given)
			}
			*into = string(text)
		}
		if violation.Message == "" {
			return fmt.Errorf("policy %s: %s holds %s without msg; expected a sentence that says what is wrong", v.name, name, item)
		}
		violations = append(violations, violation)
		return nil
	})
	return violations, err
}

// conclude combines the answers into the verdict:
//
//	enforcement   deny becomes             warn becomes
//	Deny          a violation              a warning
//	Warn          a warning                a warning
//	Audit         a warning in an audit    a warning in an audit
func conclude(verdict *decision.Verdict, operation decision.Operation, answers []answer) {
	for _, a := range answers {
		switch {
		case a.policy.enforcement == v1alpha1.Audit && operation != decision.Audit:
			continue
		case a.policy.enforcement == v1alpha1.Deny:
			verdict.Violations = append(verdict.Violations, a.deny...)
		default:
			verdict.Warnings = append(verdict.Warnings, a.deny...)
		}
		verdict.Warnings = append(verdict.Warnings, a.warn...)
	}
	verdict.Violations = sorted(verdict.Violations)
	verdict.Warnings = sorted(verdict.Warnings)
	verdict.Outcome = decision.Allowed
	if len(verdict.Violations) > 0 {
		verdict.Outcome = decision.Denied
	}
}

// sorted sorts by policy, field and message, and removes repetitions.
func sorted(violations []decision.Violation) []decision.Violation {
	slices.SortFunc(violations, func(a, b decision.Violation) int {
		return cmp.Or(
			cmp.Compare(a.Policy, b.Policy),
			cmp.Compare(a.Field, b.Field),
			cmp.Compare(a.Message, b.Message),
			cmp.Compare(a.Remedy, b.Remedy),
		)
	})
	return slices.Compact(violations)
}
