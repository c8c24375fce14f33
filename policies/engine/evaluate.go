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

// Evaluate evaluates all policies with stage Export that match the export. The verdict
// is NotEvaluated, with a Problem that names the policy if one is the cause, when
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
	if in.Object == nil {
		return decision.Verdict{Problem: "there is no ServiceExport to evaluate", Digest: e.Digest()}
	}
	return e.Decide(ctx, Export(in))
}

// HasImportPolicies reports whether EvaluateImport may answer anything but Allowed
// without a warning: there is a policy with stage Import, or nothing was loaded yet.
func (e *Engine) HasImportPolicies() bool {
	snap := e.current.Load()
	return snap == nil || len(snap.imports.order) > 0 || len(snap.imports.blocking) > 0
}

// EvaluateImport is Evaluate for the import of one export from one source cluster, by
// the policies with stage Import. It is an audit.
//
// While the source cluster is not read, of its export no more than the name is known
// (ImportInput.Unread). A policy that reads more of it, or the labels of a cluster
// while they are not known, is not evaluated then. With enforcement Deny it makes the
// verdict NotEvaluated, unless another policy denies the import: what that one knows
// is enough for it.
func (e *Engine) EvaluateImport(ctx context.Context, in decision.ImportInput) decision.Verdict {
	return e.Decide(ctx, Import(in))
}

// Decide is Evaluate, or EvaluateImport.
func (e *Engine) Decide(ctx context.Context, on Subject) decision.Verdict {
	loaded := e.current.Load()
	if loaded == nil {
		return decision.Verdict{Problem: "policies are not loaded yet"}
	}
	snap := loaded.of(on.stage())
	verdict := decision.Verdict{Digest: snap.digest, Matched: snap.matched(on)}
	answers, err := e.ask(ctx, snap, on)
	if err == nil {
		err = e.conclude(ctx, snap, &verdict, on, answers)
	}
	if err != nil {
		verdict.Problem = err.Error()
		if v := failedPolicy(ctx, err); v != nil {
			verdict.Failed = []string{v.Name}
			e.recordFailure(v, on, err)
		}
		e.metrics.count(nil, &verdict)
		return verdict
	}
	if verdict.Outcome == decision.Allowed {
		snap.block(&verdict, on)
	}
	e.metrics.count(answers, &verdict)
	return verdict
}

// auditAttempts is how often an audit is evaluated that takes too long.
const auditAttempts = 3

// ask is answers; for an audit, patiently.
func (e *Engine) ask(ctx context.Context, snap *snapshot, on Subject) ([]answer, error) {
	if on.operation() != decision.Audit {
		return e.answers(ctx, snap, on)
	}
	return patiently(ctx, func() ([]answer, error) { return e.answers(ctx, snap, on) })
}

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

// answers are those of the policies that match, and can be evaluated with what is known.
func (e *Engine) answers(ctx context.Context, snap *snapshot, on Subject) ([]answer, error) {
	at := &progress{policies: make(map[string]*version, len(snap.order))}
	for pkg, v := range snap.byPackage {
		if on.matches(v) && on.unknown(v) == "" {
			at.policies[pkg] = v
		}
	}
	if len(at.policies) == 0 {
		return nil, nil
	}
	at.spans = make([]span, 0, len(at.policies))
	input, err := on.value(e.terms, snap.whole)
	if err != nil {
		return nil, err
	}
	return e.run(ctx, snap, input, at)
}

// block makes the verdict NotEvaluated if a policy that cannot be used, or not with what
// is known, might have denied the subject.
func (s *snapshot) block(verdict *decision.Verdict, on Subject) {
	var problems []string
	for _, v := range s.blocking {
		if on.matches(v) {
			problems = append(problems, v.problem())
			verdict.Failed = append(verdict.Failed, v.Name)
		}
	}
	for _, pkg := range s.order {
		v := s.byPackage[pkg]
		if why := on.unknown(v); why != "" && v.Enforcement == v1alpha1.Deny && on.matches(v) {
			problems = append(problems, why)
		}
	}
	if len(problems) > 0 {
		verdict.Outcome, verdict.Problem = decision.NotEvaluated, strings.Join(problems, "; ")
	}
}

// matched are the names of the policies that match, sorted, those that cannot be used
// among them.
func (s *snapshot) matched(on Subject) []string {
	names := make([]string, 0, len(s.versions))
	for name, v := range s.versions {
		if v.isOf(on.stage()) && on.matches(v) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// run waits for a slot and evaluates in another goroutine, because not every
// builtin of OPA can be interrupted: then the answer does not wait for it, and it
// keeps its slot for as long as it runs.
func (e *Engine) run(ctx context.Context, snap *snapshot, input ast.Value, at *progress) ([]answer, error) {
	if err := e.acquire(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.opts.Timeout)
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
	grace := time.NewTimer(e.opts.Timeout / 2)
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
	timer := time.NewTimer(e.opts.Timeout)
	defer timer.Stop()
	select {
	case e.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the request ended before the policies could be evaluated: %w", context.Cause(ctx))
	case <-timer.C:
		return fmt.Errorf("%d evaluations are running and %w within %s", cap(e.slots), errNoSlot, e.opts.Timeout)
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
		triple := term.Value.(*ast.Array) // as snapshot.answers writes it; a panic is an error of the evaluation
		a := answer{policy: at.policies[string(triple.Elem(0).Value.(ast.String))]}
		var err, other error
		a.deny, err = a.policy.violations(denySet, triple.Elem(1))
		a.warn, other = a.policy.violations(warnSet, triple.Elem(2))
		answers = append(answers, a)
		return cmp.Or(err, other)
	})
	return answers, err
}

// violations reads one set of {msg, field, remedy, clusters}.
func (v *version) violations(name string, term *ast.Term) (violations []decision.Violation, err error) {
	for _, item := range term.Value.(ast.Set).Slice() { // see answerSets
		violation, problem := v.violation(item)
		if problem != "" {
			return nil, v.failed(fmt.Errorf("%s contains %s; %s", name, problem, v.expectedEntry()))
		}
		violations = append(violations, violation)
	}
	return violations, nil
}

// violation reads one entry; or says what the set contains in place of one.
func (v *version) violation(item *ast.Term) (violation decision.Violation, problem string) {
	object, ok := item.Value.(ast.Object)
	if !ok {
		return violation, item.String()
	}
	violation = decision.Violation{Policy: v.Name, Reason: v.reason, Grace: v.Grace}
	for key, into := range map[string]*string{keyMsg: &violation.Message, keyField: &violation.Field, keyRemedy: &violation.Remedy} {
		given := object.Get(ast.StringTerm(key))
		if given == nil {
			continue
		}
		text, ok := given.Value.(ast.String)
		if !ok {
			return violation, fmt.Sprintf("an object whose %s is %s", key, given)
		}
		*into = string(text)
	}
	if violation.Message == "" {
		return violation, item.String() + ", which has no msg"
	}
	for _, key := range object.Keys() {
		name, is := key.Value.(ast.String)
		if !is {
			name = ast.String(key.String())
		}
		if problem := v.wrongKey(string(name)); problem != "" {
			return violation, problem
		}
	}
	if violation.Clusters, problem = clusters(object.Get(ast.StringTerm(keyClusters))); problem != "" {
		return violation, "an object whose clusters " + problem
	}
	return violation, ""
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
