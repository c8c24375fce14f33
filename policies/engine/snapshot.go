// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"

	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// snapshot is a set of policies that are in use. It never changes.
type snapshot struct {
	// list is what was loaded.
	list []Policy
	// all are the policies of all stages, sorted by name, those that cannot be used and those that
	// are required and missing among them.
	all []*version
	// versions are the same by name; of two with one name the one that can be used.
	versions map[string]*version
	digest   string
	queries  map[v1alpha1.Stage]rego.PreparedEvalQuery
}

// newSnapshot has the versions that list became; the queries are missing.
func newSnapshot(list []Policy, versions []*version) *snapshot {
	snap := &snapshot{list: slices.Clone(list), all: slices.Clone(versions), versions: map[string]*version{}, digest: digestOf(versions)}
	slices.SortStableFunc(snap.all, func(a, b *version) int { return cmp.Compare(a.Name, b.Name) })
	for _, v := range snap.all {
		if v.err == nil || snap.versions[v.Name] == nil {
			snap.versions[v.Name] = v
		}
	}
	return snap
}

// digestOf names a set of versions, in any order: sets that answer alike have one
// digest.
func digestOf(versions []*version) string {
	var sources []string
	for _, v := range versions {
		sources = append(sources, sum([]string{v.Name, v.source, fmt.Sprint(v.err)}))
	}
	slices.Sort(sources)
	return sum(sources)
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

// prepare compiles the policies that can be used into one prepared query for each stage.
func (e *Engine) prepare(snap *snapshot) (err error) {
	defer e.opts.Watch("", compileTime*time.Duration(1+len(snap.all)))()
	snap.queries = map[v1alpha1.Stage]rego.PreparedEvalQuery{}
	for _, stage := range Stages {
		if snap.queries[stage], err = together(stage, snap.all); err != nil {
			return err
		}
	}
	return nil
}

// together prepares the query of the policies of a stage that can be used.
func together(stage v1alpha1.Stage, all []*version) (query rego.PreparedEvalQuery, err error) {
	modules, params := map[string]*ast.Module{}, map[string]any{}
	var answers strings.Builder
	answers.WriteString(answersModule)
	for _, v := range all {
		if v.err != nil || !v.isOf(stage) {
			continue
		}
		modules[v.file()], params[v.pkg] = v.module, v.params
		fmt.Fprintf(&answers, "answers contains [%q, %s, %s] if comity.asked(%[1]q)\n\n", v.pkg, v.set(denySet), v.set(warnSet))
	}
	if len(modules) == 0 {
		return query, nil
	}
	if modules[answersFile], err = parse(answersFile, answers.String()); err != nil {
		return query, err
	}
	compiler, err := library().compile(stage, modules, asked)
	if err != nil {
		return query, err
	}
	store := inmem.NewFromObjectWithOpts(
		map[string]any{"comity": map[string]any{"params": params}},
		// Terms, not Go values: what is stored is converted once and not in
		// every evaluation.
		inmem.OptReturnASTValuesOnRead(true),
	)
	return rego.New(
		rego.Query(answersQuery),
		rego.Compiler(compiler),
		rego.Store(store),
		rego.StrictBuiltinErrors(true),
		rego.Function1(&rego.Function{Name: asked.Name, Decl: asked.Decl, Nondeterministic: true}, askedFunc),
		// The answer stays a term.
		rego.GenerateJSON(func(term *ast.Term, _ *rego.EvalContext) (any, error) { return term, nil }),
	).PrepareForEval(context.Background())
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
	answers map[string]*answer // of the policies that are evaluated, by package
	// running is that of the policy whose rules run, since when they do.
	running *answer
	since   time.Time
}

// begin notes that the rules of a policy begin to run, one after the other; nil at the end.
func (p *progress) begin(a *answer) {
	now := time.Now()
	if p.running != nil {
		p.running.took = now.Sub(p.since)
	}
	p.running, p.since = a, now
}

type progressKey struct{}

// askedFunc is the builtin comity.asked.
func askedFunc(bctx rego.BuiltinContext, pkg *ast.Term) (*ast.Term, error) {
	at := bctx.Context.Value(progressKey{}).(*progress) // see deciding.run
	a, concerned := at.answers[string(pkg.Value.(ast.String))]
	if concerned {
		at.begin(a)
	}
	return ast.InternedTerm(concerned), nil
}
