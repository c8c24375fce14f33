// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package confirm

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

// LostExport is an export that is still published although its ServiceExport disappeared
// with a restore of the publisher's API server.
type LostExport struct {
	Cluster model.ClusterID
	Key     types.NamespacedName
}

// Lost are the records of the lost exports in the exchange namespaces of one API server, one
// for each audience. In a hub they are those of all members. published is true if any
// cluster publishes there.
func Lost(ctx context.Context, c client.Client) (lost map[LostExport][]*exchangev1alpha1.ExportRecord, published bool, err error) {
	var namespaces corev1.NamespaceList
	if err := c.List(ctx, &namespaces, client.HasLabels{model.LabelExchangeFrom}); err != nil {
		return nil, false, fmt.Errorf("list the exchange namespaces: %w", err)
	}
	publishers := map[string]model.ClusterID{}
	for _, namespace := range namespaces.Items {
		publishers[namespace.Name] = model.ClusterID(namespace.Labels[model.LabelExchangeFrom])
	}
	lost = map[LostExport][]*exchangev1alpha1.ExportRecord{}
	err = join.EachPage(ctx, c, &exchangev1alpha1.ExportRecordList{}, func(page *exchangev1alpha1.ExportRecordList) error {
		for i := range page.Items {
			record := &page.Items[i]
			if from, is := publishers[record.Namespace]; is && record.Spec.Lost && record.Annotations[model.AnnotationConfirmLost] != "true" {
				export := LostExport{from, types.NamespacedName{Namespace: record.Spec.Service.Namespace, Name: record.Spec.Service.Name}}
				lost[export] = append(lost[export], record)
			}
		}
		return nil
	})
	if meta.IsNoMatchError(err) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, fmt.Errorf("list the ExportRecords: %w", err)
	}
	return lost, len(publishers) > 0, nil
}

func newLost(env *command.Env) *cobra.Command {
	var s selection
	cmd := &cobra.Command{
		Use:   "lost NAMESPACE/NAME|--all",
		Short: "Confirm that exports that a restore lost are gone",
		Long: `Confirm that exports are gone whose ServiceExports disappeared when the API server of
their cluster was restored from a backup. They are withdrawn then. To keep such an
export, create its ServiceExport again instead.

The context is that of the cluster that exports, or of the hub.`,
		Example: "  kubectl comity confirm lost shop/web --context b\n  kubectl comity confirm lost --all --context b",
		Args:    s.parse,
	}
	cmd.Flags().BoolVar(&s.all, "all", false, "Confirm all lost exports")
	return confirms(env, cmd, &s, func(ctx context.Context, target *command.Target) (proposal, error) {
		p := proposal{heading: "These lost exports are withdrawn:", none: "No export is lost."}
		lost, _, err := Lost(ctx, target.Client)
		for export, records := range lost {
			if !s.all && export.Key != s.key {
				continue
			}
			p.lines = append(p.lines, fmt.Sprintf("%s of cluster %s", export.Key, export.Cluster))
			for _, record := range records {
				p.changes = append(p.changes, annotate(record, model.AnnotationConfirmLost, "true"))
			}
		}
		slices.Sort(p.lines)
		if err == nil && !s.all && len(p.lines) == 0 {
			err = fmt.Errorf("no export %s is lost in this cluster", s.key)
		}
		p.done = fmt.Sprintf("%d lost exports are gone", len(p.lines))
		return p, err
	})
}
