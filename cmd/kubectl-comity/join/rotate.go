// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join"
)

const rotateLong = `Replace the credentials by which joined clusters read each other.

Use it if a token may have leaked; the agents renew their tokens without it. Each
account is deleted and created again, and the API server refuses the old tokens after
10 s. Nothing is withdrawn meanwhile.`

// NewRotate is the command rotate. probe is agent.Probe, save in tests.
func NewRotate(env *command.Env, probe Prober) *cobra.Command {
	o := &options{env: env, probe: probe, how: join.Options{Rotate: true}}
	cmd := &cobra.Command{
		Use:     "rotate CONTEXT CONTEXT...",
		Short:   "Replace the credentials of joined clusters and invalidate the old ones",
		Long:    rotateLong,
		Example: "  kubectl comity rotate a b\n  kubectl comity rotate --hub hub a b c",
	}
	o.addFlags(cmd)
	return cmd
}
