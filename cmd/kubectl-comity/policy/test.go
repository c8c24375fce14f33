// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
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

// Tested is how many tests of a policy passed and failed, and what they cover of its policy.rego.
type Tested struct {
	Policy string `json:"policy"`
	Passed int    `json:"passed"`
	Failed int    `json:"failed"`
	authoring.Coverage
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
			all, results, err := Test(ctx, *timeout, threshold, args...)
			if err != nil {
				return err
			}
			return conclude(env.Out, o, "PolicyTests", map[string]any{"policies": all}, results, func(out io.Writer) {
				table := command.NewTable(out, "POLICY", "PASSED", "FAILED", "COVERAGE", "NOT COVERED")
				for _, t := range all {
					table.Row(t.Policy, t.Passed, t.Failed, fmt.Sprintf("%.1f%%", t.Percent), strings.Join(t.Missing, ","))
				}
				table.Flush()
			})
		})
	o.AddFlags(cmd, formatJUnit)
	cmd.Flags().Float64Var(&threshold, "coverage", 0, "The percentage of the lines of each policy that its tests must cover")
	return cmd
}

// Test runs the tests of the policies that the paths name; see source.Read. With a
// threshold, the tests of each policy must cover that percentage of its lines. A policy that
// has no tests, or too few, is a result that failed.
func Test(ctx context.Context, timeout time.Duration, threshold float64, paths ...string) (all []Tested, results []Result, _ error) {
	policies, err := source.Read(paths...)
	if err != nil {
		return nil, nil, err
	}
	agent := child.New(engine.Options{})
	defer agent.Close()
	for _, policy := range policies {
		if policy.Folder == "" {
			return nil, nil, fmt.Errorf("%s: a manifest has no tests; expected the folder of policy %s", policy.Path, policy.Name())
		}
		if err := load(agent, policy); err != nil {
			return nil, nil, err
		}
		bench := authoring.Bench{Policy: compiled(policy), Module: policy.Path, Files: policy.Files, Timeout: timeout}
		if bench.Fixtures, err = readFixtures(ctx, policy.Fixtures); err != nil {
			return nil, nil, err
		}
		report, err := authoring.Run(ctx, bench)
		if err != nil {
			return nil, nil, fmt.Errorf("the tests cannot run:\n%s", strings.Join(located(policy, err), "\n"))
		}
		tested := Tested{Policy: policy.Name(), Coverage: report.Coverage}
		for _, r := range report.Results {
			switch r.Outcome {
			case authoring.Passed:
				tested.Passed++
			case authoring.Failed:
				tested.Failed++
			}
			results = append(results, Result{Result: r})
		}
		all = append(all, tested)
		if problem := tested.problem(threshold); problem != "" {
			results = append(results, Result{Result: authoring.Result{
				Class: source.Kind, Name: policy.Name(), Place: policy.Folder, Outcome: authoring.Failed, Messages: []string{problem},
			}})
		}
	}
	return all, results, nil
}

// problem is why the tests do not suffice; empty if they do.
func (t Tested) problem(threshold float64) string {
	switch {
	case t.Passed+t.Failed == 0:
		return "it has no tests; expected rules test_... in files *_test.rego"
	case t.Percent < threshold:
		return fmt.Sprintf("its tests cover %.1f %% of the lines; expected at least %g %%; lines not covered: %s", t.Percent, threshold, strings.Join(t.Missing, ", "))
	}
	return ""
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
		m, err := readManifests(path)
		if err != nil {
			return nil, err
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
