// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/source"
	"github.com/comity-mcs/comity/webhook/facts"
)

// trial has the flags of eval that name what is evaluated.
type trial struct {
	files, policies []string
	before          []string
	operation       string
}

// tried is what the flags of a trial name.
type tried struct {
	manifests, before *manifests
	policies          []source.Policy
	engine            *engine.Engine
	operation         decision.Operation
	explain           bool
}

func (t *trial) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&t.files, "filename", "f", nil, "Manifests, or a folder of them: ServiceExports, Services, Namespaces, ExportPolicies, a Clusterset; may be repeated")
	cmd.Flags().StringArrayVar(&t.policies, "policies", nil, "A folder of policies, or a manifest of ExportPolicies, besides those among the manifests; may be repeated")
	cmd.Flags().StringArrayVar(&t.before, "before", nil, "Manifests of the exports that an UPDATE replaces; without them an UPDATE changes nothing")
	cmd.Flags().StringVar(&t.operation, "operation", string(decision.Create), "What is evaluated: a request to CREATE or UPDATE, or an AUDIT of what is stored")
	_ = cmd.RegisterFlagCompletionFunc("operation", cobra.FixedCompletions(
		[]string{string(decision.Create), string(decision.Update), string(decision.Audit)}, cobra.ShellCompDirectiveNoFileComp))
}

// read reads manifests and policies, and loads the policies. Every error keeps the
// command from running.
func (t *trial) read(env *command.Env) (*tried, error) {
	operation := decision.Operation(strings.ToUpper(t.operation))
	if !slices.Contains([]decision.Operation{decision.Create, decision.Update, decision.Audit}, operation) {
		return nil, command.Refusedf("flag --operation is %q; expected one of: CREATE, UPDATE, AUDIT", t.operation)
	}
	if len(t.files) == 0 {
		return nil, command.Refusedf("no manifests are given; expected -f with a file or a folder")
	}
	if len(t.before) > 0 && operation != decision.Update {
		return nil, command.Refusedf("flag --before is for --operation UPDATE alone, which replaces an export; expected no --before with %s", operation)
	}
	out := &tried{operation: operation}
	var err error
	if out.manifests, err = readManifests(t.files); err != nil {
		return nil, command.Refused(err)
	}
	if len(t.before) > 0 {
		if out.before, err = readManifests(t.before); err != nil {
			return nil, command.Refused(err)
		}
	}
	if env.As != "" {
		out.manifests.clusterset.User = &decision.UserInfo{Username: env.As, Groups: append([]string{}, env.AsGroups...)}
	}
	out.policies = out.manifests.policies
	if len(t.policies) > 0 {
		more, err := source.Read(t.policies...)
		if err != nil {
			return nil, command.Refused(err)
		}
		out.policies = append(out.policies, more...)
	}
	out.policies = slices.DeleteFunc(out.policies, source.Policy.Library)
	if len(out.policies) == 0 {
		return nil, command.Refusedf("no policies are given; expected ExportPolicies among the manifests, or --policies")
	}
	if out.engine, err = load(out.policies); err != nil {
		return nil, command.Refused(err)
	}
	return out, nil
}

// load gives an engine with the policies in use. The error has every finding.
func load(policies []source.Policy) (*engine.Engine, error) {
	e, err := newEngine()
	if err != nil {
		return nil, err
	}
	var list []engine.Policy
	for _, policy := range policies {
		list = append(list, compiled(policy))
	}
	var lines []string
	for i, result := range e.Load(list) {
		for _, finding := range located(policies[i], result.Err) {
			lines = append(lines, finding.String())
		}
	}
	if len(lines) > 0 {
		return nil, errors.New("the policies cannot be used:\n" + strings.Join(lines, "\n"))
	}
	return e, nil
}

func (t *tried) reviewer() facts.Reviewer {
	return facts.Reviewer{Reader: t.manifests.facts(), Evaluator: t.engine}
}

// file is a line of the engine, which begins with <policy>.rego:row, with the file of the
// user.
func (t *tried) file(line string) string {
	name, row, _ := strings.Cut(line, ".rego:")
	for _, policy := range t.policies {
		switch {
		case policy.Name() != name:
		case policy.Folder == "":
			return fmt.Sprintf("%s, spec.rego:%s", policy.Path, row)
		default:
			return fmt.Sprintf("%s:%s", policy.Path, row)
		}
	}
	return line
}
