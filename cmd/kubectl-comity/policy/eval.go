// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/engine/child"
	"github.com/comity-mcs/comity/policies/source"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/webhook/facts"
)

const evalLong = `Evaluate policies for the ServiceExports in manifests, without a cluster.

An object of kind Clusterset among the manifests describes the other clusters.

Policies with enforcement Audit are evaluated with --operation AUDIT alone, as in a cluster.

Exit codes: 0 if every export is allowed, 1 if one is denied, 2 if one cannot be
evaluated or an input is invalid. See "Evaluate" in policies/README.md.`

// maxExplained is how much of a line of an explanation is printed, in bytes; -o json has
// all of it.
const maxExplained = 240

// operations are what can be evaluated.
var operations = []string{string(decision.Create), string(decision.Update), string(decision.Audit)}

// Verdict is the verdict on one export, or on the import of what a member exports.
type Verdict struct {
	// Cluster is the member; empty for an export of this cluster.
	Cluster   string `json:"cluster,omitempty"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Operation string `json:"operation"`
	Outcome   string `json:"outcome"`
	// Problem says why it could not be evaluated, or of a denial by no policy, why the
	// webhook refuses the request.
	Problem    string      `json:"problem,omitempty"`
	Violations []Violation `json:"violations,omitempty"`
	Warnings   []Violation `json:"warnings,omitempty"`
	// Failures are what failed of policies that deny nothing (enforcement Warn or Audit).
	Failures []string `json:"failures,omitempty"`
	// Explanation is what the option --explain adds; see engine.Explain.
	Explanation []string `json:"explanation,omitempty"`
	// kind and title are what it is about: a ServiceExport, or a ServiceImport with the member
	// that exports; place is the manifest of the export.
	kind, title, place string
}

// Violation is one objection of a policy.
type Violation struct {
	decision.Violation `json:",inline"`
	// Text is all of it, as users see it.
	Text string `json:"text"`
}

func violationsOf(given []decision.Violation) []Violation {
	return model.Map(given, func(v decision.Violation) Violation { return Violation{v, v.String()} })
}

func newEval(env *command.Env, timeout *time.Duration) *cobra.Command {
	var t trial
	var o command.Output
	cmd := command.New("eval -f MANIFESTS", "Evaluate policies for the ServiceExports in manifests", evalLong,
		"  kubectl comity policy eval -f manifests/ --policies policies/\n  kubectl comity policy eval -f manifests/ --policies policies/ --explain\n"+
			"  kubectl comity policy eval -f manifests/ --operation AUDIT -o junit",
		cobra.NoArgs, func(ctx context.Context, _ []string) error {
			if err := t.read(env, *timeout); err != nil {
				return err
			}
			verdicts := t.evaluate(ctx)
			if len(verdicts) == 0 {
				return errors.New("the manifests have no ServiceExport; expected at least one, or exports of members for policies with stage Import")
			}
			err := printResults(env.Out, o, "PolicyEvaluation", map[string]any{"verdicts": verdicts}, []suite{junitOf(verdicts)},
				func() { printVerdicts(env.Out, verdicts) })
			has := func(outcome decision.Outcome) bool {
				return slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Outcome == outcome.String() })
			}
			return cmp.Or(err, exitCode(has(decision.NotEvaluated), has(decision.Denied)))
		})
	o.AddFlags(cmd, formatJUnit)
	flags := cmd.Flags()
	flags.StringArrayVarP(&t.files, "filename", "f", nil, "Manifests, or a folder of them: ServiceExports, Services, Namespaces, ExportPolicies, a Clusterset; may be repeated")
	_ = cmd.MarkFlagRequired("filename")
	flags.StringArrayVar(&t.policyPaths, "policies", nil, "A folder of policies, or a manifest of ExportPolicies, besides those among the manifests; may be repeated")
	flags.StringArrayVar(&t.beforeFiles, "before", nil, "Manifests of the exports that an UPDATE replaces; without them an UPDATE changes nothing")
	flags.StringVar((*string)(&t.operation), "operation", string(decision.Create), "What is evaluated: a request to CREATE or UPDATE, or an AUDIT of what is stored")
	_ = cmd.RegisterFlagCompletionFunc("operation", cobra.FixedCompletions(operations, cobra.ShellCompDirectiveNoFileComp))
	flags.BoolVar(&t.explain, "explain", false, "Add which rules were true, and what was not")
	return cmd
}

// evaluate evaluates every export, in the order of namespace and name.
func (t *trial) evaluate(ctx context.Context) []Verdict {
	var all []Verdict
	add := func(one Verdict, evaluate func(context.Context) decision.Verdict) {
		ctx, explanation := ctx, func() []string { return nil }
		if t.explain {
			ctx, explanation = engine.Explain(ctx)
		}
		before := t.engine.Failures()
		verdict := evaluate(ctx)
		for name, failure := range t.engine.Failures() {
			if failure.Count > before[name].Count && !slices.Contains(verdict.Failed, name) {
				one.Failures = append(one.Failures, fmt.Sprintf("[%s] %s", name, t.file(failure.Message)))
			}
		}
		slices.Sort(one.Failures)
		one.Outcome, one.Problem = verdict.Outcome.String(), verdict.Problem
		one.Violations, one.Warnings = violationsOf(verdict.Violations), violationsOf(verdict.Warnings)
		one.Explanation = model.Map(explanation(), t.file)
		all = append(all, one)
	}
	for _, key := range t.manifests.keys() {
		one := Verdict{
			Namespace: key.Namespace, Name: key.Name, Operation: string(t.operation),
			kind: mcsv1beta1.ServiceExportKindName, title: key.String(), place: t.manifests.objects[idOf(&mcsv1beta1.ServiceExport{}, key)].place,
		}
		add(one, func(ctx context.Context) decision.Verdict {
			request, unchanged, refused := t.manifests.request(key, t.operation, t.before)
			switch {
			case refused != nil:
				return decision.Verdict{Outcome: decision.Denied, Problem: refused.Error()}
			case unchanged:
				return decision.Verdict{Outcome: decision.Allowed}
			}
			return facts.Reviewer{Reader: t.manifests.facts(), Evaluator: t.engine}.Review(ctx, request)
		})
	}
	if t.imports {
		for _, in := range t.manifests.imports() {
			one := Verdict{
				Cluster: in.Source.Cluster, Namespace: in.Export.Namespace, Name: in.Export.Name, Operation: string(decision.Audit),
				kind: mcsv1beta1.ServiceImportKindName, title: fmt.Sprintf("%s/%s from %s", in.Export.Namespace, in.Export.Name, in.Source.Cluster),
			}
			add(one, func(ctx context.Context) decision.Verdict { return t.engine.EvaluateImport(ctx, in) })
		}
	}
	return all
}

// printVerdicts prints a table, and below it what the policies say.
func printVerdicts(out io.Writer, verdicts []Verdict) {
	table := command.NewTable(out, "KIND", "NAME", "OPERATION", "OUTCOME", "WARNINGS")
	for _, v := range verdicts {
		table.Row(v.kind, v.title, v.Operation, v.Outcome, len(v.Warnings))
	}
	table.Flush()
	for _, v := range verdicts {
		if lines := v.lines(); len(lines) > 0 {
			_, _ = fmt.Fprintf(out, "\n%s:\n  %s\n", v.title, strings.Join(lines, "\n  "))
		}
	}
}

// lines are what there is to say of a verdict.
func (v Verdict) lines() (lines []string) {
	switch {
	case v.Problem == "":
	case v.Outcome == decision.Denied.String(): // by no policy
		lines = append(lines, v.Problem)
	default:
		lines = append(lines, "not evaluated: "+v.Problem)
	}
	return slices.Concat(lines,
		model.Map(v.Violations, func(one Violation) string { return one.Text }),
		model.Map(v.Warnings, func(warning Violation) string { return "warning: " + warning.Text }),
		model.Map(v.Failures, func(failure string) string { return "failed, and denies nothing: " + failure }),
		model.Map(v.Explanation, func(line string) string { return model.Bound(line, maxExplained) }))
}

func junitOf(verdicts []Verdict) suite {
	out := suite{Name: "policies", Tests: len(verdicts)}
	for _, v := range verdicts {
		c := tcase{Class: v.kind, Name: v.title, File: v.place}
		text := strings.Join(v.lines(), "\n")
		switch v.Outcome {
		case decision.Allowed.String():
			c.Output = text
		case decision.Denied.String():
			c.Failure = newDetail(text)
			out.Failures++
		default:
			c.Error = newDetail(text)
			out.Errors++
		}
		out.Cases = append(out.Cases, c)
	}
	return out
}

// trial is what is evaluated.
type trial struct {
	// files, policyPaths, beforeFiles and operation are flags.
	files, policyPaths, beforeFiles []string
	operation                       decision.Operation
	explain                         bool
	// manifests, before and policies are what they name; after read.
	manifests, before *manifests
	policies          []source.Policy
	// engine has the policies, and imports is true if some are of stage Import.
	engine  engine.Front
	imports bool
}

// read reads manifests and policies, and loads the policies. Every error keeps the
// command from running.
func (t *trial) read(env *command.Env, timeout time.Duration) (err error) {
	t.operation = decision.Operation(strings.ToUpper(string(t.operation)))
	switch {
	case !slices.Contains(operations, string(t.operation)):
		return fmt.Errorf("flag --operation is %q; expected one of: %s", t.operation, strings.Join(operations, ", "))
	case len(t.beforeFiles) > 0 && t.operation != decision.Update:
		return fmt.Errorf("flag --before is for --operation UPDATE alone, which replaces an export; expected no --before with %s", t.operation)
	}
	if t.manifests, err = readManifests(t.files); err != nil {
		return err
	}
	if t.before, err = readManifests(t.beforeFiles); err != nil {
		return err
	}
	if env.As != "" {
		t.manifests.clusterset.User = &decision.UserInfo{Username: env.As, Groups: env.AsGroups}
	}
	more, err := source.Read(t.policyPaths...)
	if err != nil {
		return err
	}
	t.policies = append(t.manifests.policies, more...)
	if len(t.policies) == 0 {
		return errors.New("no policies are given; expected ExportPolicies among the manifests, or --policies")
	}
	options := engine.Options{Timeout: timeout}
	agent := child.New(options)
	if found := load(agent, t.policies...); len(found) > 0 {
		return fmt.Errorf("the policies cannot be used:\n%s", lines(found))
	}
	t.engine, t.imports = agent.Front, agent.HasImportPolicies()
	if t.explain { // which is done in this process, now that the other has survived them
		here := engine.New(options)
		here.Load(model.Map(t.policies, compiled))
		t.engine = here.Front
	}
	return nil
}

// file is a line of the engine, which begins with <policy>.rego:row, with the file of the
// user.
func (t *trial) file(line string) string {
	for _, policy := range t.policies {
		switch row, is := strings.CutPrefix(line, policy.Name()+".rego:"); {
		case is && policy.Folder == "":
			return policy.Path + ", spec.rego:" + row
		case is:
			return policy.Path + ":" + row
		}
	}
	return line
}
