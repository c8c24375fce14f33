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
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// snapshot is a set of policies that are evaluated together. It never changes.
type snapshot struct {
	// versions are the policies of all stages by name, those that cannot be used among
	// them. The other fields are of one stage, but for the digest.
	versions map[string]*version
	// blocking are the policies whose exports cannot be evaluated, sorted by name.
	blocking []*version
	// usable are the policies that can be used, sorted by package.
	usable []*version
	digest string
	// whole: a policy needs all of the input.
	whole bool
	query rego.PreparedEvalQuery
	// imports are the policies with stage Import; this has those with stage Export.
	imports *snapshot
}

// of are the policies of a stage.
func (s *snapshot) of(stage v1alpha1.Stage) *snapshot {
	if stage == v1alpha1.StageImport {
		return s.imports
	}
	return s
}

// newSnapshots has the policies of both stages; the queries are missing.
func newSnapshots(versions []*version) *snapshot {
	snap := newSnapshot(versions, v1alpha1.StageExport)
	snap.imports = newSnapshot(versions, v1alpha1.StageImport)
	return snap
}

// newSnapshot sorts the versions of a stage by whether they can be used.
func newSnapshot(versions []*version, stage v1alpha1.Stage) *snapshot {
	snap := &snapshot{versions: map[string]*version{}, digest: digestOf(versions)}
	for _, v := range versions {
		if v.err == nil || snap.versions[v.Name] == nil {
			snap.versions[v.Name] = v
		}
		switch {
		case !v.isOf(stage):
		case v.err == nil:
			snap.usable = append(snap.usable, v)
			snap.whole = snap.whole || v.whole
		case v.blocks():
			snap.blocking = append(snap.blocking, v)
		}
	}
	slices.SortFunc(snap.usable, func(a, b *version) int { return cmp.Compare(a.pkg, b.pkg) })
	slices.SortFunc(snap.blocking, func(a, b *version) int { return cmp.Compare(a.Name, b.Name) })
	return snap
}

// digestOf names a set of versions, in any order: sets that answer alike have one
// digest.
func digestOf(versions []*version) string {
	var sources []string
	for _, v := range versions {
		sources = append(sources, sum(v.Name, v.source, v.errText()))
	}
	slices.Sort(sources)
	return sum(sources...)
}

// errText is why the version cannot be used; empty if it can.
func (v *version) errText() string {
	if v.err == nil {
		return ""
	}
	return v.err.Error()
}

// The generated module collects the answers of all policies:
//
//	answers contains ["<package>", <deny>, <warn>] if comity.asked("<package>")
//
// so that one query evaluates all of them, each only if it matches the export, and
// a policy without an answer differs from one without an objection.
const (
	answersFile   = "comity/engine.rego"
	answersModule = "package comity.engine\n\n"
	answersQuery  = "data.comity.engine.answers"
)

// answers is the text of the generated module.
func (s *snapshot) answers() string {
	var b strings.Builder
	b.WriteString(answersModule)
	for _, v := range s.usable {
		fmt.Fprintf(&b, "answers contains [%q, %s, %s] if comity.asked(%[1]q)\n\n", v.pkg, v.set(denySet), v.set(warnSet))
	}
	return b.String()
}

// build compiles the versions that can be used into one prepared query for each stage.
func (e *Engine) build(versions []*version) (*snapshot, error) {
	defer e.opts.Watch("", compileTime*time.Duration(1+len(versions)))()
	snap := newSnapshots(versions)
	return snap, cmp.Or(e.prepare(snap, v1alpha1.StageExport), e.prepare(snap.imports, v1alpha1.StageImport))
}

// prepare compiles what is evaluated together.
func (e *Engine) prepare(snap *snapshot, stage v1alpha1.Stage) error {
	if len(snap.usable) == 0 {
		return nil
	}
	modules := map[string]*ast.Module{}
	params := map[string]any{}
	for _, v := range snap.usable {
		modules[v.file()] = v.module
		params[v.pkg] = v.params
	}
	answers, err := e.parse(answersFile, snap.answers())
	if err != nil {
		return err
	}
	modules[answersFile] = answers
	compiler, err := e.compile(stage, modules, e.together)
	if err != nil {
		return err
	}
	store := inmem.NewFromObjectWithOpts(
		map[string]any{"comity": map[string]any{"params": params}},
		// Terms, not Go values: what is stored is converted once and not in
		// every evaluation.
		inmem.OptReturnASTValuesOnRead(true),
	)
	snap.query, err = rego.New(
		rego.Query(answersQuery),
		rego.Compiler(compiler),
		rego.Store(store),
		rego.StrictBuiltinErrors(true),
		rego.Function1(&rego.Function{Name: asked.Name, Decl: asked.Decl, Nondeterministic: true}, askedFunc),
		// The answer stays a term.
		rego.GenerateJSON(func(term *ast.Term, _ *rego.EvalContext) (any, error) { return term, nil }),
	).PrepareForEval(context.Background())
	return err
}

// set is the Rego of one of the policy's sets.
func (v *version) set(name string) string {
	if !v.sets[name] {
		return "set()"
	}
	return "data." + packagePrefix + v.pkg + "." + name
}

// progress is that of one evaluation. It is passed in the context.
type progress struct {
	policies map[string]*version // those that are evaluated, by package
	// spans are when the policies ran, one after the other.
	spans []span
}

// span is the time from when the rules of a policy began to be evaluated.
type span struct {
	policy *version
	start  time.Time
}

// took is how long a policy took in an evaluation that ended then.
func (p *progress) took(v *version, end time.Time) time.Duration {
	for _, span := range slices.Backward(p.spans) {
		if span.policy == v {
			return end.Sub(span.start)
		}
		end = span.start
	}
	return 0
}

type progressKey struct{}

// askedFunc is the builtin comity.asked.
func askedFunc(bctx rego.BuiltinContext, pkg *ast.Term) (*ast.Term, error) {
	at, ok := bctx.Context.Value(progressKey{}).(*progress)
	if !ok {
		return nil, errors.New("comity.asked: not called by the engine")
	}
	name, _ := pkg.Value.(ast.String)
	v, concerned := at.policies[string(name)]
	if concerned {
		at.spans = append(at.spans, span{v, time.Now()})
	}
	return ast.InternedTerm(concerned), nil
}

// withoutMetrics keeps OPA from measuring itself, which nobody reads.
var withoutMetrics = rego.EvalMetrics(opametrics.NoOp())

// evaluate evaluates the query until ctx ends.
func (s *snapshot) evaluate(ctx context.Context, input ast.Value, at *progress) (answers []answer, err error) {
	defer recovered(&err, "the evaluation failed")
	cancel := topdown.NewCancel()
	stop := context.AfterFunc(ctx, cancel.Cancel)
	defer stop()
	options := append([]rego.EvalOption{rego.EvalParsedInput(input), rego.EvalExternalCancel(cancel), withoutMetrics}, explaining(ctx)...)
	results, err := s.query.Eval(context.WithValue(ctx, progressKey{}, at), options...)
	switch {
	case topdown.IsCancel(err):
		return nil, errTooSlow
	case err != nil:
		return nil, Described(err)
	case len(results) != 1 || len(results[0].Expressions) != 1:
		return nil, errors.New("the policies gave no answer")
	}
	return s.read(results[0].Expressions[0].Value.(*ast.Term).Value, at) // see GenerateJSON
}
