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
	opametrics "github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/topdown"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// HasImportPolicies reports whether EvaluateImport may answer anything but Allowed
// without a warning: there is a policy with stage Import, or nothing was loaded yet.
func (e *Engine) HasImportPolicies() bool {
	snap := e.current.Load()
	return snap.digest == "" || slices.ContainsFunc(snap.all, func(v *version) bool {
		return v.isOf(v1alpha1.StageImport) && (v.err == nil || v.Enforcement == v1alpha1.Deny)
	})
}

// Front has subjects evaluated, and records the results.
type Front struct {
	*Records
	Writer Writer
	Decide func(ctx context.Context, on *Subject) (decision.Verdict, []Evaluation)
}

// Evaluate evaluates all policies with stage Export that match the export. Each answers for
// itself: one that fails, whose answer has another form than INPUT.md says, or that exceeds
// the deadline of the engine or of ctx, has the effect of its enforcement. With Warn or Audit it
// has none. With Deny, as with a policy with enforcement Deny that cannot be used, the verdict
// has a Problem that names it, and is NotEvaluated unless another policy denies the export: a
// denial holds whatever the rest would answer.
//
// The verdict is NotEvaluated as well when nothing was loaded yet. A policy that can only
// audit is evaluated in audits alone.
func (f Front) Evaluate(ctx context.Context, in decision.Input) decision.Verdict {
	if in.Object == nil {
		return decision.Verdict{Problem: "there is no ServiceExport to evaluate"}
	}
	on, err := f.Writer.Export(in)
	return f.decide(ctx, on, err)
}

// EvaluateImport is Evaluate for the import of one export from one source cluster, by
// the policies with stage Import. It is an audit.
//
// While the source cluster is not read, of its export no more than the name is known
// (ImportInput.Unread). A policy that reads more of it, or the labels of a cluster
// while they are not known, is not evaluated then. With enforcement Deny it makes the
// verdict NotEvaluated, unless another policy denies the import: what that one knows
// is enough for it.
func (f Front) EvaluateImport(ctx context.Context, in decision.ImportInput) decision.Verdict {
	on, err := f.Writer.Import(in)
	return f.decide(ctx, on, err)
}

func (f Front) decide(ctx context.Context, on *Subject, err error) decision.Verdict {
	if err != nil {
		return decision.Verdict{Problem: err.Error()}
	}
	verdict, evaluations := f.Decide(ctx, on)
	f.Record(on, evaluations)
	return verdict
}

// EvaluateSubject is Evaluate, or EvaluateImport; it returns what is to be recorded. Policies that are in
// failed are not evaluated: they fail, for what it says of them.
func (e *Engine) EvaluateSubject(ctx context.Context, on *Subject, failed map[string]string) (decision.Verdict, []Evaluation) {
	snap := e.current.Load()
	if snap.digest == "" {
		return decision.Verdict{Problem: ErrNotLoaded.Error()}, nil
	}
	d := deciding{engine: e, snap: snap, on: on, failed: failed, Verdict: decision.Verdict{Digest: snap.digest}}
	if err := on.read(e.terms); err != nil {
		d.Problem = err.Error()
		return d.Verdict, nil
	}
	d.matching = snap.matching(on)
	d.Matched = make([]string, 0, len(d.matching))
	for _, v := range d.matching {
		d.Matched = append(d.Matched, v.Name)
	}
	d.Matched = slices.Compact(d.Matched)
	d.answers = d.ask(ctx, on, d.matching)
	d.conclude(ctx)
	d.block()
	return d.Verdict, d.evaluations(ctx)
}

// deciding is one decision, and what it needs.
type deciding struct {
	engine *Engine
	snap   *snapshot
	on     *Subject
	failed map[string]string // why policies are not evaluated, by name
	decision.Verdict
	matching []*version
	// answers are those on the subject, before those on the export as it was before an update.
	answers, before []answer
}

// matching are the policies that match, sorted by name, those that cannot be used among them.
func (s *snapshot) matching(on *Subject) []*version {
	return slices.DeleteFunc(slices.Clone(s.all), func(v *version) bool { return !on.matches(v) })
}

// ask gives the answers of those of the policies that can be evaluated with what is known, and
// whose answer may have an effect. Each is evaluated alone, so that none suffers from another, and what
// fails, and the time that it took, are its own.
func (d *deciding) ask(ctx context.Context, on *Subject, matching []*version) []answer {
	answers, attempts := make([]answer, 0, len(matching)), 1
	if on.Operation == decision.Audit {
		attempts = auditAttempts
	}
	if e := d.engine; !e.opts.Apart { // each should have stopped before
		defer e.opts.Watch(on.String(), e.opts.Timeout*time.Duration(attempts*len(matching)+1))()
	}
	for i, v := range matching {
		if v.err != nil || v.Enforcement == v1alpha1.Audit && on.Operation != decision.Audit || on.unknown(v) != "" {
			continue
		}
		a, begin := answer{policy: v, err: errTooSlow}, time.Now()
		if why, failed := d.failed[v.Name]; failed {
			a.err = errors.New(why)
			answers = append(answers, a)
			continue
		}
		for n := 0; n < attempts && errors.Is(a.err, errTooSlow) && ctx.Err() == nil; n++ {
			a.deny, a.warn, a.err = d.run(ctx, len(matching)-i, on, v)
		}
		a.took = time.Since(begin)
		answers = append(answers, a)
	}
	return answers
}

// auditAttempts is how often a policy is evaluated in an audit that takes longer than the
// Options.Timeout. Nobody waits for the answer, and on a busy machine, as at a start, a policy of a
// few rules may take that long by the clock: that would be a change of the status of the export, of
// the policy and an event, and soon the same again.
const auditAttempts = 3

// ShareOf is ctx for one of several that share the time that is left.
func ShareOf(ctx context.Context, left int) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
}

// block adds to the verdict which policies failed that might deny the subject and, if nothing
// else denies it, which cannot be used, or not with what is known.
func (d *deciding) block() {
	var problems []string
	fail := func(v *version, problem string) {
		problems, d.Failed = append(problems, problem), append(d.Failed, v.Name)
	}
	for _, a := range d.answers {
		if a.err != nil && a.policy.Enforcement == v1alpha1.Deny {
			fail(a.policy, fmt.Sprintf("policy %s: %v", a.policy.Name, a.err))
		}
	}
	for _, v := range d.matching {
		if d.Outcome != decision.Allowed || v.Enforcement != v1alpha1.Deny {
			continue
		}
		if v.err != nil {
			fail(v, v.problem())
		} else if why := d.on.unknown(v); why != "" {
			problems = append(problems, why)
		}
	}
	slices.Sort(d.Failed)
	d.Problem = strings.Join(problems, "; ")
	if len(problems) > 0 && d.Outcome == decision.Allowed {
		d.Outcome = decision.NotEvaluated
	}
}

// run evaluates one of the policies that are left, which share the time.
func (d *deciding) run(ctx context.Context, left int, on *Subject, v *version) (deny, warn []decision.Violation, err error) {
	input, err := on.value(v.whole)
	if err != nil {
		return nil, nil, err
	}
	limit := d.engine.opts.Timeout
	if d.engine.opts.Apart {
		defer d.engine.opts.Watch(v.Name, 2*limit)() // it should have stopped before
	}
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)/time.Duration(left))
	}
	cancel := topdown.NewCancel()
	defer time.AfterFunc(limit, cancel.Cancel).Stop()
	txn, err := v.store.NewTransaction(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer v.store.Abort(ctx, txn)
	query := topdown.NewQuery(v.query).WithCompiler(v.compiler).WithStore(v.store).WithTransaction(txn).
		WithInput(input).WithCancel(cancel).WithStrictBuiltinErrors(true).WithMetrics(withoutMetrics).WithRequestMetadata(noMetadata)
	explaining(ctx, query)
	answered := false
	err = query.Iter(ctx, func(found topdown.QueryResult) (err error) {
		answered = true
		if deny, err = v.violations(denySet, found[denySet]); err == nil {
			warn, err = v.violations(warnSet, found[warnSet])
		}
		return err
	})
	switch {
	case topdown.IsCancel(err):
		return nil, nil, errTooSlow
	case err == nil && !answered:
		err = errors.New("the policy gave no answer")
	}
	return deny, warn, Described(err)
}

// What keeps OPA from measuring itself, and from making what nobody reads.
var (
	withoutMetrics = opametrics.NoOp()
	noMetadata     = map[string]any{}
)

var errTooSlow = errors.New("it took too long and was stopped")

// answer is the answer of one policy.
type answer struct {
	policy     *version
	deny, warn []decision.Violation
	// err is why it has no answer.
	err  error
	took time.Duration
}

// maxEntries is how many entries deny or warn may have, and maxAnswer how much memory they may
// take in all, in bytes: the agent has that of several evaluations at once.
const maxEntries, maxAnswer = 1000, 1 << 20

// violations reads one set of {msg, field, remedy, clusters}; nil for none.
func (v *version) violations(name string, term *ast.Term) (violations []decision.Violation, err error) {
	if term == nil {
		return nil, nil
	}
	items := term.Value.(ast.Set).Slice() // see readSets
	if len(items) > maxEntries {
		return nil, fmt.Errorf("%s contains %d entries; expected at most %d", name, len(items), maxEntries)
	}
	size := 0
	for _, item := range items {
		violation, problem := v.violation(item)
		if problem != "" {
			return nil, fmt.Errorf("%s contains %s; %s", name, decision.Shown(problem, maxText), v.expectedEntry())
		}
		if size += violation.Size(); size > maxAnswer {
			return nil, fmt.Errorf("%s contains entries of more than %d KiB; expected fewer, or shorter ones", name, maxAnswer>>10)
		}
		violations = append(violations, violation)
	}
	return violations, nil
}

// maxText is how long a text of an entry is: as long as an answer of the webhook.
const maxText = 4096

// violation reads one entry; or says what the set contains in place of one.
func (v *version) violation(item *ast.Term) (violation decision.Violation, problem string) {
	object, ok := item.Value.(ast.Object)
	if !ok {
		return violation, item.String()
	}
	if msg := object.Get(ast.StringTerm(keyMsg)); msg == nil || msg.Equal(ast.StringTerm("")) {
		return violation, item.String() + ", which has no msg"
	}
	violation = decision.Violation{Policy: v.Name, Reason: v.reason, Grace: v.grace}
	texts := map[string]*string{keyMsg: &violation.Message, keyField: &violation.Field, keyRemedy: &violation.Remedy}
	for _, key := range object.Keys() {
		name := key.String()
		if text, is := key.Value.(ast.String); is {
			name = string(text)
		}
		given, into := object.Get(key), texts[name]
		text, isText := given.Value.(ast.String)
		switch {
		case into != nil && isText:
			*into = decision.Shown(string(text), maxText)
		case into != nil:
			return violation, fmt.Sprintf("an object whose %s is %s", name, given)
		case v.wrongKey(name) != "":
			return violation, v.wrongKey(name)
		default:
			if violation.Clusters, problem = clusters(given); problem != "" {
				return violation, "an object whose clusters " + problem
			}
		}
	}
	return violation, ""
}

// clusters reads the clusters to which an entry is limited, sorted, each once. An empty list is a
// problem, too: it would mean that nobody is refused.
func clusters(given *ast.Term) (ids []string, problem string) {
	list, ok := given.Value.(*ast.Array)
	if !ok {
		return nil, fmt.Sprintf("is %s", given)
	}
	if list.Len() == 0 {
		return nil, "is an empty list"
	}
	for i := range list.Len() {
		id, ok := list.Elem(i).Value.(ast.String)
		if !ok || len(validation.IsDNS1123Label(string(id))) > 0 {
			return nil, fmt.Sprintf("has the element %s", list.Elem(i))
		}
		ids = append(ids, string(id))
	}
	slices.Sort(ids)
	return slices.Compact(ids), ""
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
