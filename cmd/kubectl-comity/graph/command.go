// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/status"
)

const long = `Show who exports what to whom: each pair of an exporting and an importing cluster, with
the Services. Conflicts, exports that are held, missing or not imported, and clusters
that are not connected are marked.

What a cluster imports is read in that cluster. Of a cluster that is not given, the
command shows what the given ones import from it, and what they publish for it.

Without -o the output is a table; dot is for Graphviz, and mermaid for Markdown.`

// New gives the command graph.
func New(env *command.Env) *cobra.Command {
	var output command.Output
	cmd := env.Command("graph [CONTEXT...]", "Show which cluster exports which Services to which", long,
		"  kubectl comity graph a b\n  kubectl comity graph a b -o dot | dot -Tsvg > graph.svg\n  kubectl comity graph a b -o mermaid",
		func(ctx context.Context, env *command.Env, args []string) error {
			sites, err := agent.Sites(ctx, env, args)
			if err != nil {
				return err
			}
			report, all := status.Reader{}.Read(ctx, sites)
			for _, objects := range all {
				if objects.Err != nil {
					env.Warnf("%v", objects.Err)
				}
			}
			g := build(report, all)
			switch output.Format {
			case "dot":
				_, err = io.WriteString(command.Whole(env.Out), g.write(dot))
			case "mermaid":
				_, err = io.WriteString(command.Whole(env.Out), g.write(mermaid))
			default:
				err = output.Print(env.Out, "ServiceGraph", &g, func() { g.print(env) })
			}
			return err
		})
	output.AddFlags(cmd, "dot", "mermaid")
	return cmd
}
