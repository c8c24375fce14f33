// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

const long = `Write, check, test and try policies before they are enforced.

Every command compiles and evaluates with the engine of the agent.`

// New gives the command policy, with the commands below it.
func New(env *command.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Write, check, test and try policies",
		Long:  long,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newNew(env), newCheck(env), newBuild(env), newTest(env), newEval(env), newSimulate(env))
	return cmd
}
