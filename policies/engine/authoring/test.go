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
// policy's module; nil if that is not in Bench.Files.
type Report struct {
	Results  []Result
	Coverage *Coverage
}

// Run runs the tests of a bench. It is an error if a file does not compile; a test
// that fails is none.
func Run(ctx context.Context, e *engine.Engine, bench Bench) (Report, error) {
	modules, data, err := e.Surroundings(bench.Policy)
	if err != nil {
		return Report{}, err
	}
	data["fixtures"] = bench.Fixtures
	for path, text := range bench.Files {
		if modules[path], err = e.Parse(path, text); err != nil {
			return Report{}, err
		}
	}
	run := func(configure func(*tester.Runner)) ([]*tester.Result, error) {
		return runTests(ctx, e.TestCompiler(bench.Policy.Stage), modules, data, bench.Timeout, configure)
	}
	coverage := cover.New()
	results, err := run(func(r *tester.Runner) { r.SetCoverageQueryTracer(coverage).SetCoverageRuns(nil) })
	if err != nil {
		return Report{}, err
	}
	reasons := map[string]string{}
	if slices.ContainsFunc(results, func(r *tester.Result) bool { return r.Fail && r.Error == nil }) {
		traced, err := run(func(r *tester.Runner) { r.EnableTracing(true) }) // OPA has either coverage or the expression that failed
		if err != nil {
			return Report{}, err
		}
		for _, r := range traced {
			reasons[r.Package+"."+r.Name] = reason(r)
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

func runTests(ctx context.Context, compiler *ast.Compiler, modules map[string]*ast.Module, data map[string]any, timeout time.Duration, configure func(*tester.Runner)) ([]*tester.Result, error) {
	store := inmem.NewFromObject(data)
	txn, err := store.NewTransaction(ctx, storage.TransactionParams{})
	if err != nil {
		return nil, fmt.Errorf("read the fixtures: %w", err)
	}
	defer store.Abort(ctx, txn)
	runner := tester.NewRunner().
		SetCompiler(compiler).
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
		out.Message = engine.Described(r.Error).Error()
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
