// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

// versions is what `kubectl comity version` prints.
type versions struct {
	Plugin string         `json:"plugin"`
	Agents []agentVersion `json:"agents"`
	// Skew says which versions differ by too much.
	Skew string `json:"skew,omitempty"`
}

type agentVersion struct {
	Context   string `json:"context"`
	Cluster   string `json:"cluster,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Version   string `json:"version,omitempty"`
	// Error says why the agent's version is not known.
	Error string `json:"error,omitempty"`
}

func newVersion(env *command.Env) *cobra.Command {
	var output command.Output
	var clientOnly bool
	cmd := &cobra.Command{
		Use:   "version [CONTEXT...]",
		Short: "Print the versions of this plugin and of the agents",
		Long: `Print the versions of this plugin and of the agents in the given contexts, and
whether they differ by more than one minor version.

The exit code is 1 if an agent's version cannot be read or differs by too much.`,
		Example:           "  kubectl comity version a b\n  kubectl comity version --client",
		ValidArgsFunction: env.CompleteContexts,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			var sites []*agent.Site
			if !clientOnly {
				if sites, err = agent.Sites(cmd.Context(), env, args); err != nil {
					return err
				}
			}
			found := versionsOf(sites)
			err = output.Print(env.Out, "Versions", &found, func() { found.print(env) })
			if err == nil && (agent.Problems(sites) != nil || found.Skew != "") {
				err = command.Printed(command.ExitProblem)
			}
			return err
		},
	}
	output.AddFlags(cmd)
	cmd.Flags().BoolVar(&clientOnly, "client", false, "Print the version of this plugin alone, without a request to a cluster")
	return cmd
}

func versionsOf(sites []*agent.Site) versions {
	found := versions{Plugin: command.Version}
	var agents []agent.Agent
	for _, s := range sites {
		line := agentVersion{Context: s.Context}
		if s.Err != nil {
			line.Error = s.Err.Error()
		}
		if !errors.Is(s.Err, agent.ErrNotInstalled) {
			line.Cluster, line.Namespace, line.Version = string(s.Agent.ID), s.Agent.Namespace, s.Agent.Version
			agents = append(agents, s.Agent)
		}
		found.Agents = append(found.Agents, line)
	}
	found.Skew = agent.Skew(command.Version, agents)
	return found
}

func (v versions) print(env *command.Env) {
	env.Printf("Plugin: %s\n", v.Plugin)
	if len(v.Agents) == 0 {
		return
	}
	table := command.NewTable(env.Out, "\nCONTEXT", "CLUSTER", "NAMESPACE", "COMITY")
	for _, line := range v.Agents {
		table.Row(line.Context, line.Cluster, line.Namespace, line.Version)
	}
	table.Flush()
	for _, line := range v.Agents {
		if line.Error != "" {
			env.Warnf("%s", line.Error)
		}
	}
	if v.Skew != "" {
		env.Warnf("%s", v.Skew)
	}
}
