// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/policies/engine"
)

const long = `Write, check, test and try policies before they are enforced.

Every command compiles and evaluates with the engine of the agent.`

// New gives the command policy, with the commands below it.
func New(env *command.Env) *cobra.Command {
	timeout := engine.DefaultTimeout
	evaluating := []*cobra.Command{newTest(env, &timeout), newEval(env, &timeout)}
	for _, one := range evaluating {
		one.Flags().DurationVar(&timeout, "timeout", timeout, "How long one evaluation or test may take: by default as long as in the agent; longer on a slow machine")
	}
	return command.Group("policy", "Write, check, test and try policies", long,
		append(evaluating, newCheck(env), newNew(env), newBuild(env), newSimulate(env))...)
}
