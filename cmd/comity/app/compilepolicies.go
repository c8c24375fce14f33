// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/policies/engine/limited"
)

// newCompilePoliciesCommand is what the agent runs to compile a policy that it does not
// know yet. It is hidden: nobody else has a use for it.
func newCompilePoliciesCommand() *cobra.Command {
	return &cobra.Command{
		Use:    limited.Argument,
		Short:  "Compile policies from the standard input with limits, for the agent",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return limited.Main(cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}
