// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/policy/simulate"
)

func newSimulate(env *command.Env) *cobra.Command { return simulate.New(env) }
