// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/engine/authoring"
	"github.com/comity-mcs/comity/policies/engine/child"
	"github.com/comity-mcs/comity/policies/source"
)

const testLong = `Run the Rego tests of policies, with the builtins, the library and the parameters
that the agent gives to a policy, and measure what they cover.

Exit codes: 0 if every test passed, 1 if a test failed or the coverage is too low, 2
if a file does not compile or cannot be read. See "Test" in policies/README.md.`

// Tested has the results of one policy, and the coverage of its policy.rego.
type Tested struct {
	authoring.Report
	Policy  string `json:"policy"`
	Path    string `json:"path"`
	Passed  int    `json:"passed"`
	Failed  int    `json:"failed"`
	Skipped int    `json:"skipped,omitempty"`
	// Problems are why the policy fails as a whole: no tests, too little coverage.
	Problems []string `json:"problems,omitempty"`
}

func newTest(env *command.Env, timeout *time.Duration) *cobra.Command {
	var o command.Output
	var threshold float64
	cmd := command.New("test PATH...", "Run the Rego tests of policies", testLong,
		"  kubectl comity policy test policies/\n  kubectl comity policy test policies/owner-required --coverage 90 -o junit",
		cobra.MinimumNArgs(1), func(ctx context.Context, args []string) error {
			if threshold < 0 || threshold > 100 {
				return fmt.Errorf("flag --coverage is %v; expected a percentage from 0 to 100", threshold)
			}
			all, err := Test(ctx, *timeout, threshold, args...)
			if err != nil {
				return err
			}
			err = printResults(env.Out, o, "PolicyTests", map[string]any{"policies": all}, suitesOf(all), func() { printTestTable(env.Out, all) })
			return cmp.Or(err, command.PrintedIf(slices.ContainsFunc(all, func(t Tested) bool { return t.Failed > 0 || len(t.Problems) > 0 })))
		})
	o.AddFlags(cmd, formatJUnit)
	cmd.Flags().Float64Var(&threshold, "coverage", 0, "The percentage of the lines of each policy that its tests must cover")
	return cmd
}

// Test runs the tests of the policies that the paths name; see source.Read. With a
// threshold, the tests of each policy must cover that percentage of its lines.
func Test(ctx context.Context, timeout time.Duration, threshold float64, paths ...string) ([]Tested, error) {
	policies, err := source.Read(paths...)
	if err != nil {
		return nil, err
	}
	agent := child.New(engine.Options{})
	defer agent.Close()
	var all []Tested
	for _, policy := range policies {
		if policy.Folder == "" {
			return nil, fmt.Errorf("%s: a manifest has no tests; expected the folder of policy %s", policy.Path, policy.Name())
		}
		if found := load(agent, policy); len(found) > 0 {
			return nil, fmt.Errorf("the policy cannot be used:\n%s", lines(found))
		}
		bench := authoring.Bench{Policy: compiled(policy), Module: policy.Path, Files: policy.Files, Timeout: timeout}
		if bench.Fixtures, err = readFixtures(ctx, policy.Fixtures); err != nil {
			return nil, err
		}
		report, err := authoring.Run(ctx, bench)
		if err != nil {
			return nil, fmt.Errorf("the tests cannot run:\n%s", lines(located(policy, err)))
		}
		all = append(all, testedOf(policy, report, threshold))
	}
	return all, nil
}

func testedOf(policy source.Policy, report authoring.Report, threshold float64) Tested {
	out := Tested{Report: report, Policy: policy.Name(), Path: policy.Folder}
	for _, r := range report.Results {
		switch {
		case r.Passed:
			out.Passed++
		case r.Skipped:
			out.Skipped++
		default:
			out.Failed++
		}
	}
	if out.Passed+out.Failed == 0 {
		out.Problems = append(out.Problems, "it has no tests; expected rules test_... in files *_test.rego")
	}
	if c := report.Coverage; c.Percent < threshold {
		out.Problems = append(out.Problems, fmt.Sprintf("its tests cover %.1f %% of the lines; expected at least %g %%; lines not covered: %s",
			c.Percent, threshold, strings.Join(c.Missing, ", ")))
	}
	return out
}

// printTestTable prints a line for each policy, and then what failed.
func printTestTable(out io.Writer, all []Tested) {
	table := command.NewTable(out, "POLICY", "PASSED", "FAILED", "COVERAGE", "NOT COVERED")
	for _, t := range all {
		table.Row(t.Policy, t.Passed, t.Failed, fmt.Sprintf("%.1f%%", t.Coverage.Percent), strings.Join(t.Coverage.Missing, ","))
	}
	table.Flush()
	for _, t := range all {
		for _, problem := range t.Problems {
			_, _ = fmt.Fprintf(out, "\n%s: %s\n", t.Policy, problem)
		}
		for _, r := range t.Results {
			if r.Passed || r.Skipped {
				continue
			}
			_, _ = fmt.Fprintf(out, "\n%s: %s failed\n", r.Place, r.Name)
			for _, text := range []string{r.Message, r.Printed} {
				if text != "" {
					_, _ = fmt.Fprintf(out, "  %s\n", strings.ReplaceAll(text, "\n", "\n  "))
				}
			}
		}
	}
}

func suitesOf(all []Tested) (suites []suite) {
	for _, t := range all {
		s := suite{Name: t.Policy, Tests: len(t.Results) + len(t.Problems), Failures: t.Failed + len(t.Problems), Skipped: t.Skipped}
		for _, r := range t.Results {
			file, _, _ := strings.Cut(r.Place, ":")
			c := tcase{Class: r.Package, Name: r.Name, File: file, Seconds: fmt.Sprintf("%.3f", r.Duration.Seconds()), Output: r.Printed}
			switch {
			case r.Skipped:
				c.Skipped = &struct{}{}
			case !r.Passed:
				c.Failure = newDetail(r.Place + ": " + r.Message)
			}
			s.Cases = append(s.Cases, c)
		}
		for _, problem := range t.Problems {
			s.Cases = append(s.Cases, tcase{Class: t.Policy, Name: "policy", File: t.Path, Failure: newDetail(problem)})
		}
		suites = append(suites, s)
	}
	return suites
}

// readFixtures are the manifests in fixtures/ and testdata/ as tests find them in
// data.fixtures, by the name of the file without its suffix:
//
//	input     the input of a CREATE of the file's ServiceExport, as from the webhook
//	audit     the input of an audit of it
//	imports   the inputs of what the members of the file's Clusterset export, for
//	          policies with stage Import, by "<cluster>/<namespace>/<name>"
//
// input and audit are there if the file has a ServiceExport; more than one are an error.
func readFixtures(ctx context.Context, paths []string) (map[string]any, error) {
	all := map[string]any{}
	for _, path := range paths {
		base := filepath.Base(path)
		name := strings.TrimSuffix(base, filepath.Ext(base))
		if all[name] != nil {
			return nil, fmt.Errorf("%s: data.fixtures[%q] is of another file already; expected another name", path, name)
		}
		m := newManifests()
		if err := m.readFile(path); err != nil {
			return nil, err
		}
		if m.unseen != nil { // a misspelled kind, say
			return nil, m.unseen
		}
		fixture, err := m.fixture(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all[name] = fixture
	}
	return all, nil
}

func (m *manifests) fixture(ctx context.Context) (_ map[string]any, err error) {
	imports := map[string]any{}
	for _, in := range m.imports() {
		if imports[importName(in)], err = engine.InputJSON(engine.Writer{}.Import(in)); err != nil {
			return nil, err
		}
	}
	fixture := map[string]any{"imports": imports}
	exports := m.keys()
	switch {
	case len(exports) == 0:
		return fixture, nil
	case len(exports) > 1:
		return nil, fmt.Errorf("the file has %d ServiceExports; expected one, whose input the fixture is", len(exports))
	}
	for key, operation := range map[string]decision.Operation{"input": decision.Create, "audit": decision.Audit} {
		request, _, refused := m.request(exports[0], operation, nil)
		if refused != nil {
			return nil, refused
		}
		in, err := m.facts().Input(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("%w; expected the Namespace in the same file", err)
		}
		if fixture[key], err = engine.InputJSON(engine.Writer{}.Export(in)); err != nil {
			return nil, err
		}
	}
	return fixture, nil
}
