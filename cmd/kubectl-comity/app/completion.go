// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

const completionLong = `Print the program that kubectl runs to complete the commands, flags and contexts
of this plugin. Store it once on the PATH as kubectl_complete-comity:

  kubectl comity completion > ~/.local/bin/kubectl_complete-comity
  chmod +x ~/.local/bin/kubectl_complete-comity

Completion of kubectl itself must be set up in the shell: see
kubectl completion --help.`

// completionScript is what kubectl runs with the words that were typed after
// "kubectl comity"; the answer is in the protocol of cobra.
const completionScript = `#!/bin/sh
# Completes "kubectl comity" for kubectl.
exec kubectl-comity __complete "$@"
`

func newCompletion(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "completion",
		Short:   "Print the program that completes the commands of this plugin",
		Long:    completionLong,
		Example: "  kubectl comity completion > ~/.local/bin/kubectl_complete-comity",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			env.Printf("%s", completionScript)
			return nil
		},
	}
}
