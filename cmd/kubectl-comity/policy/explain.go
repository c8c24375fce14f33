// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/sync/model"
)

const explainLong = `Show which rules led to the verdict on ServiceExports in manifests.

The output lists for each policy the rules that were true, with their location and
the values that they used: of variables, of input, and of parameters. A rule of deny
or warn, which decides, is shown with the entry that it added. Manifests and flags
are those of eval.

Without an argument every ServiceExport is explained. The exit codes are those of
eval.`

// maxValue is how much of a value is printed, in bytes; -o json has all of it.
const maxValue = 240

// explained is the explanation of one verdict.
type explained struct {
	Verdict
	Policies []explainedPolicy `json:"policies"`
}

type explainedPolicy struct {
	Policy string          `json:"policy"`
	Rules  []explainedRule `json:"rules"`
}

type explainedRule struct {
	Place  string           `json:"place"`
	Rule   string           `json:"rule"`
	Value  string           `json:"value,omitempty"`
	Values []engine.Binding `json:"values,omitempty"`
	entry  bool
}

func newExplain(env *command.Env) *cobra.Command {
	var t trial
	var o command.Output
	cmd := &cobra.Command{
		Use:     "explain -f MANIFESTS [NAMESPACE/NAME...]",
		Short:   "Show which rules led to the verdict on ServiceExports",
		Long:    explainLong,
		Example: "  kubectl comity policy explain -f manifests/ --policies policies/ shop/db",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			input, err := t.read(env)
			if err != nil {
				return err
			}
			return runExplain(cmd.Context(), env, o, input, args)
		},
	}
	t.addFlags(cmd)
	o.AddFlags(cmd)
	return cmd
}

func runExplain(ctx context.Context, env *command.Env, o command.Output, input *tried, names []string) error {
	if err := input.limit(names); err != nil {
		return command.Refused(err)
	}
	var all []explained
	var verdicts []Verdict
	for _, key := range input.manifests.keys() {
		all = append(all, input.explain(ctx, func(ctx context.Context) Verdict { return input.verdict(ctx, key) }))
	}
	if len(names) == 0 && input.engine.HasImportPolicies() {
		for _, in := range input.manifests.imports() {
			all = append(all, input.explain(ctx, func(ctx context.Context) Verdict { return input.importVerdict(ctx, in) }))
		}
	}
	for _, one := range all {
		verdicts = append(verdicts, one.Verdict)
	}
	if len(all) == 0 {
		return command.Refusedf("the manifests have no ServiceExport; expected at least one")
	}
	if o.Structured() {
		if err := o.Print(env.Out, "PolicyExplanation", map[string]any{"explanations": all}); err != nil {
			return err
		}
		return exitOf(verdicts)
	}
	for i, one := range all {
		if i > 0 {
			env.Printf("\n")
		}
		one.print(env.Out)
	}
	return exitOf(verdicts)
}

// limit leaves only the exports that are named.
func (t *tried) limit(names []string) error {
	if len(names) == 0 {
		return nil
	}
	named := map[types.NamespacedName]bool{}
	for _, name := range names {
		namespace, rest, _ := strings.Cut(name, "/")
		key := types.NamespacedName{Namespace: namespace, Name: rest}
		if t.manifests.exports[key] == nil {
			return fmt.Errorf("%q is not a ServiceExport among the manifests; expected <namespace>/<name>, one of: %s", name, t.manifests.names())
		}
		named[key] = true
	}
	for key := range t.manifests.exports {
		if !named[key] {
			delete(t.manifests.exports, key)
		}
	}
	return nil
}

func (m *manifests) names() string {
	var names []string
	for _, key := range m.keys() {
		names = append(names, key.String())
	}
	return strings.Join(names, ", ")
}

func (t *tried) explain(ctx context.Context, evaluate func(context.Context) Verdict) explained {
	ctx, explanation := engine.Explain(ctx)
	out := explained{Verdict: evaluate(ctx)}
	rules := explanation().Rules
	for _, policy := range t.policies {
		found := explainedPolicy{Policy: policy.Name(), Rules: []explainedRule{}}
		for _, rule := range rules[policy.Name()] {
			found.Rules = append(found.Rules, explainedRule{
				Place: t.file(rule.Place), Rule: rule.Name, Value: rule.Value, Values: rule.Bindings, entry: rule.Entry,
			})
		}
		out.Policies = append(out.Policies, found)
	}
	return out
}

func (e explained) print(out io.Writer) {
	_, _ = fmt.Fprintf(out, "%s %s, %s: %s\n", e.kind(), e.name(), e.Operation, e.Outcome)
	for _, line := range e.lines() {
		_, _ = fmt.Fprintf(out, "  %s\n", line)
	}
	for _, policy := range e.Policies {
		_, _ = fmt.Fprintf(out, "\npolicy %s\n", policy.Policy)
		if len(policy.Rules) == 0 {
			_, _ = fmt.Fprintf(out, "  no rule was true, or the policy does not match the export\n")
		}
		for _, rule := range policy.Rules {
			rule.print(out)
		}
	}
}

func (r explainedRule) print(out io.Writer) {
	_, _ = fmt.Fprintf(out, "  %s  %s\n", r.Rule, r.Place)
	if r.Value != "" {
		is := "="
		if r.entry {
			is = "contains"
		}
		_, _ = fmt.Fprintf(out, "    %s %s %s\n", r.Rule, is, model.Bound(r.Value, maxValue))
	}
	for _, value := range r.Values {
		_, _ = fmt.Fprintf(out, "    with %s = %s\n", value.Name, model.Bound(value.Value, maxValue))
	}
}
