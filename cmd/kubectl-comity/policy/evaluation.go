// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/source"
)

// trial is what is evaluated.
type trial struct {
	// files, policyPaths, beforeFiles and operation are flags.
	files, policyPaths, beforeFiles []string
	operation                       decision.Operation
	explain                         bool
	// manifests, before, policies and engine are what they name; after read.
	manifests, before *manifests
	policies          []source.Policy
	engine            evaluator
}

func (t *trial) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&t.files, "filename", "f", nil, "Manifests, or a folder of them: ServiceExports, Services, Namespaces, ExportPolicies, a Clusterset; may be repeated")
	_ = cmd.MarkFlagRequired("filename")
	cmd.Flags().StringArrayVar(&t.policyPaths, "policies", nil, "A folder of policies, or a manifest of ExportPolicies, besides those among the manifests; may be repeated")
	cmd.Flags().StringArrayVar(&t.beforeFiles, "before", nil, "Manifests of the exports that an UPDATE replaces; without them an UPDATE changes nothing")
	cmd.Flags().StringVar((*string)(&t.operation), "operation", string(decision.Create), "What is evaluated: a request to CREATE or UPDATE, or an AUDIT of what is stored")
	_ = cmd.RegisterFlagCompletionFunc("operation", cobra.FixedCompletions(
		[]string{string(decision.Create), string(decision.Update), string(decision.Audit)}, cobra.ShellCompDirectiveNoFileComp))
}

// read reads manifests and policies, and loads the policies. Every error keeps the
// command from running.
func (t *trial) read(env *command.Env, timeout time.Duration) (err error) {
	t.operation = decision.Operation(strings.ToUpper(string(t.operation)))
	switch {
	case t.operation != decision.Create && t.operation != decision.Update && t.operation != decision.Audit:
		return fmt.Errorf("flag --operation is %q; expected one of: CREATE, UPDATE, AUDIT", t.operation)
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
	tools, err := newTools(engine.Options{Timeout: timeout})
	if err != nil {
		return err
	}
	t.engine = tools.agent
	if found := tools.load(t.engine, t.policies); len(found) > 0 {
		return fmt.Errorf("the policies cannot be used:\n%s", lines(found))
	}
	if t.explain { // which is done in this process, now that the other has survived them
		t.engine = tools.engine
		tools.load(t.engine, t.policies)
	}
	return nil
}

// evaluator has policies and answers: an engine, or the process of the agent that has one.
type evaluator interface {
	Load(list []engine.Policy) []engine.Result
	HasImportPolicies() bool
	Evaluate(ctx context.Context, in decision.Input) decision.Verdict
	EvaluateImport(ctx context.Context, in decision.ImportInput) decision.Verdict
	Failures() map[string]engine.Failure
}

// file is a line of the engine, which begins with <policy>.rego:row, with the file of the
// user.
func (t *trial) file(line string) string {
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
