// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

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
		ValidArgsFunction: env.CompleteContexts(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.Validate(); err != nil {
				return err
			}
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
	names, err := env.ContextNames(args)
	if err != nil {
		return err
	}
	found := versions{Plugin: command.Version}
	var agents []agent.Agent
	var failed error
	for _, name := range names {
		line := agentVersion{Context: name}
		installed, err := findAgent(ctx, env, name)
		if err != nil {
			line.Error, failed = err.Error(), errors.Join(failed, err)
		}
		if installed.Version != "" {
			line.Cluster, line.Namespace, line.Version = string(installed.ID), installed.Namespace, installed.Version
			agents = append(agents, installed)
		}
		found.Agents = append(found.Agents, line)
	}
	found.Skew = agent.Skew(command.Version, agents)
	if err := printVersions(env, output, found); err != nil {
		return err
	}
	if failed != nil || found.Skew != "" {
		return command.Printed(command.ExitProblem)
	}
	return nil
}

func findAgent(ctx context.Context, env *command.Env, name string) (agent.Agent, error) {
	target, err := env.Open(ctx, name)
	if err != nil {
		return agent.Agent{}, err
	}
	return agent.Find(ctx, target)
}

func printVersions(env *command.Env, output command.Output, found versions) error {
	if output.Structured() {
		return output.Print(env.Out, "Versions", found)
	}
	env.Printf("Plugin: %s\n", found.Plugin)
	table := tabwriter.NewWriter(env.Out, 0, 8, 3, ' ', 0)
	if len(found.Agents) > 0 {
		_, _ = fmt.Fprintln(table, "\nCONTEXT\tCLUSTER\tNAMESPACE\tCOMITY")
	}
	for _, line := range found.Agents {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", line.Context, dash(line.Cluster), dash(line.Namespace), dash(line.Version))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, line := range found.Agents {
		if line.Error != "" {
			env.Warnf("%s", line.Error)
		}
	}
	if found.Skew != "" {
		env.Warnf("%s", found.Skew)
	}
	return nil
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
