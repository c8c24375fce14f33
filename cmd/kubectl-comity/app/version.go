// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
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
		RunE: func(cmd *cobra.Command, args []string) error {
			if clientOnly {
				return printVersions(env, output, versions{Plugin: command.Version})
			}
			return runVersion(cmd.Context(), env, output, args)
		},
	}
	output.AddFlags(cmd)
	cmd.Flags().BoolVar(&clientOnly, "client", false, "Print the version of this plugin alone, without a request to a cluster")
	return cmd
}

func runVersion(ctx context.Context, env *command.Env, output command.Output, args []string) error {
	sites, err := agent.Sites(ctx, env, args)
	if err != nil {
		return err
	}
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
	if err := printVersions(env, output, found); err != nil {
		return err
	}
	if agent.Problems(sites) != nil || found.Skew != "" {
		return command.Printed(command.ExitProblem)
	}
	return nil
}

func printVersions(env *command.Env, output command.Output, found versions) error {
	return output.Print(env.Out, "Versions", &found, func() {
		env.Printf("Plugin: %s\n", found.Plugin)
		if len(found.Agents) == 0 {
			return
		}
		table := command.NewTable(env.Out, "\nCONTEXT", "CLUSTER", "NAMESPACE", "COMITY")
		for _, line := range found.Agents {
			table.Row(line.Context, line.Cluster, line.Namespace, line.Version)
		}
		table.Flush()
		for _, line := range found.Agents {
			if line.Error != "" {
				env.Warnf("%s", line.Error)
			}
		}
		if found.Skew != "" {
			env.Warnf("%s", found.Skew)
		}
	})
}
