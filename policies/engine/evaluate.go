// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
// if a policy cannot be stopped; an audit that takes too long is repeated, and returns
// within auditAttempts times that.
//
// It is NotEvaluated as well when a policy matches that has enforcement Deny and
// cannot be used, unless another policy denies the export: a denial holds whatever
// the rest would answer.
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
	verdict.Matched = snap.matched(in)
	answers, err := e.ask(ctx, snap, in)
	if err == nil {
		err = e.conclude(ctx, snap, &verdict, in, answers)
	}
	if err != nil {
		verdict.Problem = err.Error()
		if v := failedPolicy(ctx, err); v != nil {
			verdict.Failed = []string{v.name}
			e.recordFailure(v, fmt.Sprintf("ServiceExport %s/%s", in.Object.Namespace, in.Object.Name), in.Operation, err)
		}
		e.metrics.count(nil, &verdict)
		return verdict
	}
	exclude(&verdict, in.Operation)
	if verdict.Outcome == decision.Allowed {
		snap.block(&verdict, in)
	}
	e.metrics.count(answers, &verdict)
	return verdict
}

// ask is answers; for an audit, patiently.
func (e *Engine) ask(ctx context.Context, snap *snapshot, in decision.Input) ([]answer, error) {
	if in.Operation != decision.Audit {
		return e.answers(ctx, snap, in)
	}
	return patiently(ctx, func() ([]answer, error) { return e.answers(ctx, snap, in) })
}

// answers are those of the policies that match.
func (e *Engine) answers(ctx context.Context, snap *snapshot, in decision.Input) ([]answer, error) {
	at := &progress{policies: snap.matching(in)}
	if len(at.policies) == 0 {
		return nil, nil
	}
	at.spans = make([]span, 0, len(at.policies))
	return e.run(ctx, snap, in, at)
}

// auditAttempts is how often an audit is evaluated that takes too long.
const auditAttempts = 3

// patiently repeats an audit that took too long, or found no slot. Nobody waits for the
// answer, and on a busy machine, as at a start, a policy of a few rules may take longer
// than Options.Timeout by the clock: that would be a change of the status of the export,
// of the policy and an event, and soon the same again. Each attempt has a slot of its
// own, so that requests have their turn in between.
func patiently(ctx context.Context, evaluate func() ([]answer, error)) ([]answer, error) {
	for attempt := 1; ; attempt++ {
		answers, err := evaluate()
		busy := errors.Is(err, errTooSlow) || errors.Is(err, errNoSlot)
		if !busy || attempt == auditAttempts || ctx.Err() != nil {
			return answers, err
		}
	}
}

// block makes the verdict NotEvaluated if a policy that cannot be used might have
// denied the export.
func (s *snapshot) block(verdict *decision.Verdict, in decision.Input) {
	var problems []string
	for _, v := range s.blocking {
		if v.matches(in) {
			problems = append(problems, v.problem())
			verdict.Failed = append(verdict.Failed, v.name)
		}
	}
	if len(problems) > 0 {
		verdict.Outcome, verdict.Problem = decision.NotEvaluated, strings.Join(problems, "; ")
	}
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

// matched are the names of the policies that match the export, sorted, those that
// cannot be used among them.
func (s *snapshot) matched(in decision.Input) []string {
	names := make([]string, 0, len(s.versions))
	for name, v := range s.versions {
		if v.isOf(v1alpha1.StageExport) && v.matches(in) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// run waits for a slot and evaluates in another goroutine, because not every
// builtin of OPA can be interrupted: then the answer does not wait for it, and it
// keeps its slot for as long as it runs. The goroutine does not use in, which belongs
// to the caller again once run returns.
func (e *Engine) run(ctx context.Context, snap *snapshot, in decision.Input, at *progress) ([]answer, error) {
	input, err := e.terms.inputFor(snap, in)
	if err != nil {
		return nil, err
	}
	return e.runWith(ctx, snap, input, at)
}

// runWith is run with an input that is read already.
func (e *Engine) runWith(ctx context.Context, snap *snapshot, input ast.Value, at *progress) ([]answer, error) {
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
		e.metrics.time(at)
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
		return fmt.Errorf("%d evaluations are running and %w within %s", cap(e.slots), errNoSlot, e.timeout)
	}
}

var errNoSlot = errors.New("none ended")

// answer is the answer of one policy.
type answer struct {
	policy     *version
	deny, warn []decision.Violation
}

// read reads ["<package>", deny, warn] of every policy that was evaluated.
func (s *snapshot) read(value ast.Value, at *progress) ([]answer, error) {
	given, ok := value.(interface {
		Len() int
		Iter(func(*ast.Term) error) error
	})
	if !ok || given.Len() != len(at.policies) {
		return nil, fmt.Errorf("%d policies were evaluated, and not every one gave an answer", len(at.policies))
	}
	answers := make([]answer, 0, given.Len())
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

// violations reads one set of {msg, field, remedy, clusters}.
func (v *version) violations(name string, term *ast.Term) ([]decision.Violation, error) {
	set, ok := term.Value.(ast.Set)
	if !ok {
		return nil, v.failed(fmt.Errorf("%s is no set", name))
	}
	if set.Len() == 0 {
		return nil, nil
	}
	var violations []decision.Violation
	err := set.Iter(func(item *ast.Term) error {
		object, ok := item.Value.(ast.Object)
		if !ok {
			return v.failed(fmt.Errorf("%s contains %s; %s", name, item, v.expectedEntry()))
		}
		violation := decision.Violation{Policy: v.name, Reason: v.reason, Grace: v.grace}
		for key, into := range map[string]*string{keyMsg: &violation.Message, keyField: &violation.Field, keyRemedy: &violation.Remedy} {
			given := object.Get(ast.StringTerm(key))
			if given == nil {
				continue
			}
			text, ok := given.Value.(ast.String)
			if !ok {
				return v.failed(fmt.Errorf("%s contains an object whose %s is %s; %s", name, key, given, v.expectedEntry()))
			}
			*into = string(text)
		}
		if violation.Message == "" {
			return v.failed(fmt.Errorf("%s contains %s, which has no msg; expected a sentence that says what is wrong", name, item))
		}
		var problem string
		switch violation.Clusters, problem = clusters(object.Get(ast.StringTerm(keyClusters))); {
		case v.stage == v1alpha1.StageImport && object.Get(ast.StringTerm(keyClusters)) != nil:
			return v.failed(fmt.Errorf("%s contains %s; %s", name, entryWithClusters, v.expectedEntry()))
		case problem != "":
			return v.failed(fmt.Errorf("%s contains an object whose clusters %s; %s", name, problem, expectedEntry))
		}
		violations = append(violations, violation)
		return nil
	})
	return violations, err
}

// sorted sorts by policy, field and message, and removes repetitions.
func sorted(violations []decision.Violation) []decision.Violation {
	order := func(a, b decision.Violation) int {
		return cmp.Or(
			cmp.Compare(a.Policy, b.Policy),
			cmp.Compare(a.Field, b.Field),
			cmp.Compare(a.Message, b.Message),
			cmp.Compare(a.Remedy, b.Remedy),
			slices.Compare(a.Clusters, b.Clusters),
		)
	}
	slices.SortFunc(violations, order)
	return slices.CompactFunc(violations, func(a, b decision.Violation) bool { return order(a, b) == 0 })
}
