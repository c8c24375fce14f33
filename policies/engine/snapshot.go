// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// snapshot is a set of policies that are evaluated together. It never changes.
type snapshot struct {
	// versions are the policies by name; order are their packages, sorted.
	versions map[string]*version
	order    []string
	// byPackage finds a policy by the last element of its package.
	byPackage map[string]*version
	digest    string
	query     rego.PreparedEvalQuery
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

// build compiles versions, by name, into one prepared query.
func (e *Engine) build(versions map[string]*version) (*snapshot, error) {
	snap := &snapshot{versions: versions, byPackage: map[string]*version{}}
	modules := map[string]*ast.Module{}
	params := map[string]any{}
	for _, v := range versions {
		snap.byPackage[v.pkg] = v
		snap.order = append(snap.order, v.pkg)
		modules[v.file()] = v.module
		params[v.pkg] = v.params
	}
	slices.Sort(snap.order)

	text, sources := answersModule, []string(nil)
	for _, pkg := range snap.order {
		v := snap.byPackage[pkg]
		text += fmt.Sprintf("answers contains [%q, %s, %s] if comity.asked(%[1]q)\n\n", pkg, v.set(denySet), v.set(warnSet))
		sources = append(sources, v.name, v.source)
	}
	snap.digest = sum(sources...)
	if len(snap.order) == 0 {
		return snap, nil
	}
	answers, err := e.parse(answersFile, text)
	if err != nil {
		return nil, err
	}
	modules[answersFile] = answers
	compiler, err := e.compile(modules, e.sandbox.together)
	if err != nil {
		return nil, err
	}
	return snap, snap.prepare(compiler, params)
}

// set is the Rego of one of the policy's sets.
func (v *version) set(name string) string {
	if !v.sets[name] {
		return "set()"
	}
	return "data." + packagePrefix + v.pkg + "." + name
}

func (s *snapshot) prepare(compiler *ast.Compiler, params map[string]any) (err error) {
	store := inmem.NewFromObjectWithOpts(
		map[string]any{"comity": map[string]any{"params": params}},
		// Terms, not Go values: what is stored is converted once and not in
		// every evaluation.
		inmem.OptReturnASTValuesOnRead(true),
	)
	s.query, err = rego.New(
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

// progress is which policy runs in one evaluation. It is passed in the context.
type progress struct {
	policies map[string]*version // those that match the export, by package
	current  atomic.Pointer[version]
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
		at.current.Store(v)
	}
	return ast.InternedTerm(concerned), nil
}

// evaluate evaluates the query until ctx ends. The error names the policy that failed.
func (s *snapshot) evaluate(ctx context.Context, input ast.Value, at *progress) (answers []answer, err error) {
	defer func() {
		if r := recover(); r != nil {
			answers, err = nil, at.blame(fmt.Errorf("the evaluation failed: %v", r))
		}
	}()
	cancel := topdown.NewCancel()
	stop := context.AfterFunc(ctx, cancel.Cancel)
	defer stop()
	results, err := s.query.Eval(context.WithValue(ctx, progressKey{}, at),
		rego.EvalParsedInput(input), rego.EvalExternalCancel(cancel))
	switch {
	case topdown.IsCancel(err):
		return nil, at.blame(errTooSlow)
	case err != nil:
		return nil, s.located(err, at)
	case len(results) != 1 || len(results[0].Expressions) != 1:
		return nil, errors.New("the policies gave no answer")
	}
	set, ok := results[0].Expressions[0].Value.(*ast.Term)
	if !ok {
		return nil, fmt.Errorf("the policies answered with %T", results[0].Expressions[0].Value)
	}
	return s.read(set, at)
}

var errTooSlow = errors.New("it took too long and was stopped")

// blame adds the name of the policy that was running.
func (p *progress) blame(err error) error {
	if v := p.current.Load(); v != nil {
		return fmt.Errorf("policy %s: %w", v.name, err)
	}
	return err
}

// located is an evaluation error as policy, file:row:column and message. OPA
// reports a failed builtin only at the end, when another policy runs, so the policy
// is found by its file. An error in the library names no policy.
func (s *snapshot) located(err error, at *progress) error {
	var failed *topdown.Error
	if !errors.As(err, &failed) || failed.Location == nil {
		return at.blame(err)
	}
	located := fmt.Errorf("%s: %s", place(failed.Location), strings.TrimSpace(failed.Message))
	name, _ := strings.CutSuffix(failed.Location.File, ".rego")
	if v := s.versions[name]; v != nil {
		return fmt.Errorf("policy %s: %w", v.name, located)
	}
	return located
}
