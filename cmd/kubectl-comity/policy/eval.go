// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
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

// operations are what can be evaluated.
var operations = []string{string(decision.Create), string(decision.Update), string(decision.Audit)}

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
			results := t.evaluate(ctx)
			if len(results) == 0 {
				return errors.New("the manifests have no ServiceExport; expected at least one, or exports of members for policies with stage Import")
			}
			return conclude(env.Out, o, "PolicyEvaluation", map[string]any{}, results, func(out io.Writer) {
				table := command.NewTable(out, "KIND", "NAME", "OPERATION", "OUTCOME", "WARNINGS")
				for _, r := range results {
					table.Row(r.Class, r.Name, r.Operation, r.Outcome, len(r.Warnings))
				}
				table.Flush()
			})
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
func (t *trial) evaluate(ctx context.Context) []Result {
	var all []Result
	add := func(one Result, evaluate func(context.Context) decision.Verdict) {
		ctx, explanation := ctx, func() []string { return nil }
		if t.explain {
			ctx, explanation = engine.Explain(ctx)
		}
		before := t.engine.Failures()
		verdict := evaluate(ctx)
		one.Outcome, one.Problem, one.Violations, one.Warnings = verdict.Outcome.String(), verdict.Problem, verdict.Violations, verdict.Warnings
		if one.Problem != "" {
			one.Messages = append(one.Messages, one.Problem)
		}
		one.Messages = slices.Concat(one.Messages, model.Map(one.Violations, decision.Violation.String),
			model.Map(one.Warnings, func(warning decision.Violation) string { return "warning: " + warning.String() }))
		failures := t.engine.Failures()
		for _, name := range slices.Sorted(maps.Keys(failures)) {
			if failures[name].Count > before[name].Count && !slices.Contains(verdict.Failed, name) {
				one.Messages = append(one.Messages, fmt.Sprintf("failed, and denies nothing: [%s] %s", name, inFile(failures[name].Message, t.policies...)))
			}
		}
		for _, line := range explanation() {
			one.Messages = append(one.Messages, inFile(line, t.policies...))
		}
		all = append(all, one)
	}
	for _, key := range t.manifests.keys() {
		one := Result{Operation: t.operation}
		one.Class, one.Name = mcsv1beta1.ServiceExportKindName, key.String()
		one.Place = t.manifests.objects[idOf(&mcsv1beta1.ServiceExport{}, key)].place
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
			one := Result{Operation: decision.Audit}
			one.Class, one.Name = mcsv1beta1.ServiceImportKindName, fmt.Sprintf("%s/%s from %s", in.Export.Namespace, in.Export.Name, in.Source.Cluster)
			add(one, func(ctx context.Context) decision.Verdict { return t.engine.EvaluateImport(ctx, in) })
		}
	}
	return all
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
	if t.manifests, err = readManifests(t.files...); err != nil {
		return err
	}
	if t.before, err = readManifests(t.beforeFiles...); err != nil {
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
	if err := load(agent, t.policies...); err != nil {
		return err
	}
	t.engine, t.imports = agent.Front, agent.HasImportPolicies()
	if t.explain { // which is done in this process, now that the other has survived them
		here := engine.New(options)
		here.Load(model.Map(t.policies, compiled))
		t.engine = here.Front
	}
	return nil
}
