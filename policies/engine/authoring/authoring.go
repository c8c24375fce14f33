// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package authoring has what authors of policies need and the agent does not: it formats
// Rego and runs its tests.
//
// It takes Rego sources and gives findings and results of tests, with the coverage of
// each policy. It compiles with the builtins, the library and the parameters that
// package engine gives to a policy. It is apart from engine so that the agent does
// not carry OPA's test runner. It reads no files.
package authoring

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/format"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/comity-mcs/comity/policies/engine"
)

// Format is a Rego file as `opa fmt` writes it. The text must parse (engine.Parse),
// which bounds what is formatted.
func Format(file, text string) (string, error) {
	formatted, err := format.SourceWithOpts(file, []byte(text), format.Opts{RegoVersion: ast.RegoV1})
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return string(formatted), nil
}

// Bench is what one run of tests is on.
type Bench struct {
	// Policy is what is tested.
	Policy engine.Policy
	// Module is the path of the policy's module in Files.
	Module string
	// Files are the Rego sources by path: the module and its tests.
	Files map[string]string
	// Fixtures are what tests find as data.fixtures: JSON values by name; not nil.
	Fixtures map[string]any
	// Timeout bounds one test.
	Timeout time.Duration
}

// The outcomes of a test.
const (
	Passed  = "Passed"
	Failed  = "Failed"
	Skipped = "Skipped" // its name begins with todo_
)

// Result is the result of one test.
type Result struct {
	// Class and Name are the package and the name of the test's rule.
	Class string `json:"class"`
	Name  string `json:"name"`
	// Place is file:row of the test.
	Place   string `json:"place,omitempty"`
	Outcome string `json:"outcome"`
	// Messages say why it failed, and what it printed.
	Messages []string `json:"messages,omitempty"`
}

// Coverage is how much of a module the tests ran.
type Coverage struct {
	// Percent is 100 for a module of which every line of a rule or an expression was run.
	Percent float64 `json:"percent"`
	// Missing are the rows of those that no test ran.
	Missing []string `json:"missing,omitempty"`
}

// Report has the results of all tests, sorted by package and name, and the coverage of the
// policy's module, if that is in Bench.Files.
type Report struct {
	Results  []Result
	Coverage Coverage
}

// Run runs the tests of a bench. It is an error if a file does not compile; a test
// that fails is none.
func Run(ctx context.Context, bench Bench) (Report, error) {
	compiler, modules, data, err := engine.Surroundings(bench.Policy)
	if err != nil {
		return Report{}, err
	}
	data["fixtures"] = bench.Fixtures
	for path, text := range bench.Files {
		if modules[path], err = engine.Parse(path, text); err != nil {
			return Report{}, err
		}
	}
	store := inmem.NewFromObject(data)
	txn, err := store.NewTransaction(ctx, storage.TransactionParams{})
	if err != nil {
		return Report{}, fmt.Errorf("read the fixtures: %w", err)
	}
	defer store.Abort(ctx, txn)
	results, err := tester.NewRunner().
		SetCompiler(compiler).
		SetDefaultRegoVersion(ast.RegoV1).
		RaiseBuiltinErrors(true).
		SetTimeout(bench.Timeout).
		SetStore(store).
		SetModules(modules).
		EnableTracing(true).
		RunTests(ctx, txn)
	if err != nil {
		return Report{}, engine.Described(err)
	}
	report, coverage := Report{}, cover.New()
	for r := range results {
		for _, event := range r.Trace { // the runner has either a trace or the coverage
			coverage.TraceEvent(*event)
		}
		report.Results = append(report.Results, describe(r))
	}
	slices.SortFunc(report.Results, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Name, b.Name))
	})
	if module := modules[bench.Module]; module != nil {
		report.Coverage = coverageOf(coverage.Report(map[string]*ast.Module{bench.Module: module}).Files[bench.Module])
	}
	return report, ctx.Err()
}

func describe(r *tester.Result) Result {
	out := Result{Class: strings.TrimPrefix(r.Package, "data."), Name: r.Name, Outcome: Passed}
	if r.Location != nil {
		out.Place = fmt.Sprintf("%s:%d", r.Location.File, r.Location.Row)
	}
	switch {
	case r.Skip:
		out.Outcome = Skipped
	case r.Error != nil:
		out.Outcome, out.Messages = Failed, []string{engine.Described(r.Error).Error()}
	case r.Fail:
		out.Outcome, out.Messages = Failed, []string{cmp.Or(reason(r), "it is not true")}
	}
	if printed := strings.TrimSpace(string(r.Output)); printed != "" {
		out.Messages = append(out.Messages, printed)
	}
	return out
}

// reason says which expression of a test does not hold, and with which values: the
// last one that failed in the file of the test.
func reason(r *tester.Result) string {
	for _, event := range slices.Backward(r.Trace) {
		expression, is := event.Node.(*ast.Expr)
		if event.Op != topdown.FailOp || !is || event.Location == nil || r.Location == nil || event.Location.File != r.Location.File {
			continue
		}
		if _, every := expression.Terms.(*ast.Every); every {
			continue // what failed is inside
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s:%d does not hold:\n", event.Location.File, event.Location.Row)
		if err := topdown.PrettyEvent(&b, event, topdown.PrettyEventOpts{PrettyVars: true}); err != nil {
			b.WriteString(string(event.Location.Text))
		}
		return engine.Renamed(strings.TrimSpace(b.String()))
	}
	return ""
}

func coverageOf(file *cover.FileReport) Coverage {
	out := Coverage{Percent: file.Coverage}
	for _, missing := range file.NotCovered {
		out.Missing = append(out.Missing, fmt.Sprint(missing.Start.Row))
	}
	out.Missing = slices.Compact(out.Missing)
	return out
}
