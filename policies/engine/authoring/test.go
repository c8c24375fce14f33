// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package authoring

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"

	"github.com/comity-mcs/comity/policies/engine"
)

// Bench is what one run of tests is on: a policy, or the library.
type Bench struct {
	// Policy is what is tested; nil for the library alone.
	Policy *engine.Policy
	// Module is the path of the policy's module in Files; empty for the library.
	Module string
	// Files are the Rego sources by path: the module and its tests.
	Files map[string]string
	// Fixtures are what tests find as data.fixtures: JSON values by name; not nil.
	Fixtures map[string]any
	// Timeout bounds one test.
	Timeout time.Duration
}

// Result is the result of one test.
type Result struct {
	// Package and Name are those of the test's rule.
	Package string `json:"package"`
	Name    string `json:"name"`
	// Place is file:row of the test.
	Place  string `json:"place"`
	Passed bool   `json:"passed"`
	// Skipped is true for a test whose name begins with todo_.
	Skipped bool `json:"skipped,omitempty"`
	// Message says why the test failed; empty if it passed.
	Message string `json:"message,omitempty"`
	// Printed is what the test printed.
	Printed string `json:"printed,omitempty"`
	// Duration is how long it took.
	Duration time.Duration `json:"-"`
}

// Coverage is how much of a module the tests ran.
type Coverage struct {
	// Covered and Total are lines of rules and expressions.
	Covered int `json:"covered"`
	Total   int `json:"total"`
	// Missing are the lines that no test ran, as rows or ranges of rows.
	Missing []string `json:"missing,omitempty"`
	// Percent is 100 for a module of which every line was run.
	Percent float64 `json:"percent"`
}

// Report has the results of all tests, sorted by place, and the coverage of the
// policy's module; nil for the library.
type Report struct {
	Results  []Result
	Coverage *Coverage
}

// Run runs the tests of a bench. It is an error if a file does not compile; a test
// that fails is none.
func Run(ctx context.Context, e *engine.Engine, bench Bench) (Report, error) {
	modules, err := bench.modules(e)
	if err != nil {
		return Report{}, err
	}
	data, err := bench.data(e)
	if err != nil {
		return Report{}, err
	}
	coverage := cover.New()
	results, err := runTests(ctx, e, modules, data, bench.Timeout, func(r *tester.Runner) {
		r.SetCoverageQueryTracer(coverage).SetCoverageRuns(nil)
	})
	if err != nil {
		return Report{}, err
	}
	failed := slices.ContainsFunc(results, func(r *tester.Result) bool { return r.Fail && r.Error == nil })
	reasons := map[string]string{}
	if failed { // OPA has either coverage or the expression that failed
		if reasons, err = failures(ctx, e, modules, data, bench.Timeout); err != nil {
			return Report{}, err
		}
	}
	report := Report{}
	for _, r := range results {
		report.Results = append(report.Results, describe(r, reasons))
	}
	slices.SortFunc(report.Results, func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Name, b.Name))
	})
	if module := modules[bench.Module]; module != nil {
		report.Coverage = coverageOf(coverage.Report(map[string]*ast.Module{bench.Module: module}), bench.Module)
	}
	return report, nil
}

// modules are the files of the bench, and the library if the files are not.
func (b Bench) modules(e *engine.Engine) (map[string]*ast.Module, error) {
	modules := map[string]*ast.Module{}
	if b.Policy != nil {
		for file, module := range e.Library(b.Policy.Stage) {
			modules["comity/"+file] = module
		}
	}
	for path, text := range b.Files {
		module, err := e.Parse(path, text)
		if err != nil {
			return nil, err
		}
		modules[path] = module
	}
	return modules, nil
}

func (b Bench) data(e *engine.Engine) (map[string]any, error) {
	data := map[string]any{}
	if b.Policy != nil {
		var err error
		if data, err = e.TestData(*b.Policy); err != nil {
			return nil, err
		}
	}
	data["fixtures"] = b.Fixtures
	return data, nil
}

func runTests(ctx context.Context, e *engine.Engine, modules map[string]*ast.Module, data map[string]any, timeout time.Duration, configure func(*tester.Runner)) ([]*tester.Result, error) {
	store := inmem.NewFromObject(data)
	txn, err := store.NewTransaction(ctx, storage.TransactionParams{})
	if err != nil {
		return nil, fmt.Errorf("read the fixtures: %w", err)
	}
	defer store.Abort(ctx, txn)
	runner := tester.NewRunner().
		SetCompiler(e.TestCompiler()).
		SetDefaultRegoVersion(ast.RegoV1).
		RaiseBuiltinErrors(true).
		SetTimeout(timeout).
		SetStore(store).
		SetModules(modules)
	configure(runner)
	channel, err := runner.RunTests(ctx, txn)
	if err != nil {
		return nil, engine.Described(err)
	}
	var results []*tester.Result
	for r := range channel {
		results = append(results, r)
	}
	return results, ctx.Err()
}

// failures are the expressions by which tests failed, by package and name.
func failures(ctx context.Context, e *engine.Engine, modules map[string]*ast.Module, data map[string]any, timeout time.Duration) (map[string]string, error) {
	results, err := runTests(ctx, e, modules, data, timeout, func(r *tester.Runner) { r.EnableTracing(true) })
	if err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	for _, r := range results {
		if r.Fail {
			reasons[r.Package+"."+r.Name] = reason(r)
		}
	}
	return reasons, nil
}

func describe(r *tester.Result, reasons map[string]string) Result {
	out := Result{
		Package: strings.TrimPrefix(r.Package, "data."), Name: r.Name,
		Passed: r.Pass(), Skipped: r.Skip,
		Printed: strings.TrimSpace(string(r.Output)), Duration: r.Duration,
	}
	if r.Location != nil {
		out.Place = fmt.Sprintf("%s:%d", r.Location.File, r.Location.Row)
	}
	switch {
	case r.Error != nil:
		out.Message = r.Error.Error()
	case r.Fail:
		out.Message = cmp.Or(reasons[r.Package+"."+r.Name], "it is not true")
	}
	return out
}

// coverageOf is the part of one file.
func coverageOf(report cover.Report, file string) *Coverage {
	found := report.Files[file]
	if found == nil {
		return &Coverage{Percent: 100}
	}
	out := &Coverage{Covered: found.CoveredLines, Total: found.CoveredLines + found.NotCoveredLines, Percent: 100}
	if out.Total > 0 {
		out.Percent *= float64(out.Covered) / float64(out.Total)
	}
	rows := map[int]bool{}
	for _, missing := range found.NotCovered {
		for row := missing.Start.Row; row <= missing.End.Row; row++ {
			rows[row] = true
		}
	}
	out.Missing = ranges(slices.Sorted(maps.Keys(rows)))
	return out
}

// ranges are sorted rows as "3" and "5-7".
func ranges(rows []int) (all []string) {
	for i := 0; i < len(rows); {
		j := i
		for j+1 < len(rows) && rows[j+1] == rows[j]+1 {
			j++
		}
		if i == j {
			all = append(all, fmt.Sprint(rows[i]))
		} else {
			all = append(all, fmt.Sprintf("%d-%d", rows[i], rows[j]))
		}
		i = j + 1
	}
	return all
}
