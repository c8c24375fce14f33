// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/status"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
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
	cmd := &cobra.Command{
		Use:               "graph [CONTEXT...]",
		Short:             "Show which cluster exports which Services to which",
		Long:              long,
		Example:           "  kubectl comity graph a b\n  kubectl comity graph a b -o dot | dot -Tsvg > graph.svg\n  kubectl comity graph a b -o mermaid",
		ValidArgsFunction: env.CompleteContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			sites, err := agent.Sites(cmd.Context(), env, args)
			if err != nil {
				return err
			}
			views := make([]view, len(sites))
			command.InParallel(sites, func(i int, site *agent.Site) { views[i] = read(cmd.Context(), site) })
			for _, v := range views {
				if v.err != nil {
					env.Warnf("%v", v.err)
				}
			}
			g := build(status.Reader{}.Read(cmd.Context(), sites), views)
			switch output.Format {
			case "dot":
				_, err = io.WriteString(command.Whole(env.Out), g.write(dot))
			case "mermaid":
				_, err = io.WriteString(command.Whole(env.Out), g.write(mermaid))
			default:
				err = output.Print(env.Out, "ServiceGraph", &g, func() { g.print(env) })
			}
			return err
		},
	}
	output.AddFlags(cmd, "dot", "mermaid")
	return cmd
}

// view is what one cluster knows.
type view struct {
	// id is that of the cluster, or else the context; empty if it was not read.
	id        string
	imports   []mcsv1beta1.ServiceImport
	published []published
	err       error
}

// published is an export that a record states. to is empty for one to every cluster.
type published struct{ service, from, to string }

func read(ctx context.Context, site *agent.Site) (v view) {
	if site.Target == nil {
		return view{err: site.Err}
	}
	c := site.Target.Client
	err := join.Each(ctx, c, &mcsv1beta1.ServiceImportList{}, func(i *mcsv1beta1.ServiceImport) error {
		v.imports = append(v.imports, *i)
		return nil
	})
	var namespaces corev1.NamespaceList
	err = errors.Join(err, c.List(ctx, &namespaces, client.HasLabels{model.LabelExchangeFrom}))
	audience := map[string]published{}
	for _, n := range namespaces.Items {
		audience[n.Name] = published{from: n.Labels[model.LabelExchangeFrom], to: n.Labels[model.LabelExchangeTo]}
	}
	err = errors.Join(err, join.Each(ctx, c, &exchangev1alpha1.ExportRecordList{}, func(record *exchangev1alpha1.ExportRecord) error {
		if p, is := audience[record.Namespace]; is && !record.Spec.Withdrawn {
			p.service = record.Spec.Service.Namespace + "/" + record.Spec.Service.Name
			v.published = append(v.published, p)
		}
		return nil
	}))
	if err != nil {
		return view{err: site.Target.Errorf("%w", err)}
	}
	v.id = cmp.Or(string(site.Agent.ID), site.Context)
	return v
}
