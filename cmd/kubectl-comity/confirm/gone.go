// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package confirm

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

func newMissing(env *command.Env) *cobra.Command {
	var id model.ClusterID
	cmd := &cobra.Command{
		Use:   "missing CLUSTER",
		Short: "Confirm that exports of a cluster that are missing are gone",
		Long: `Confirm that exports of a cluster that disappeared without a statement are gone, such
as those of an exchange namespace that was deleted. The command lists them and asks.
What was imported of them is removed.`,
		Example: "  kubectl comity confirm missing b --context a",
		Args: cobra.MatchAll(cobra.ExactArgs(1), func(_ *cobra.Command, args []string) (err error) {
			id, err = model.ParseClusterID(args[0])
			return err
		}),
	}
	return confirms(env, cmd, &selection{}, func(ctx context.Context, target *command.Target) (proposal, error) {
		return missing(ctx, target, id)
	})
}

func missing(ctx context.Context, target *command.Target, id model.ClusterID) (proposal, error) {
	p := proposal{
		heading: fmt.Sprintf("These exports of cluster %s are missing. What cluster %s imports of them is removed:", id, target.Context),
		none:    fmt.Sprintf("No export of cluster %s is missing.", id),
	}
	imports, err := join.Imports(ctx, target.Client)
	var latest time.Time
	for _, i := range imports {
		if entry, _ := i.List.Find(id); entry.Absent == model.SourceMissing {
			p.lines = append(p.lines, fmt.Sprintf("%s, since %s", i.Key, entry.Since.UTC().Format(time.RFC3339)))
			if entry.Since.After(latest) {
				latest = entry.Since
			}
		}
	}
	if err != nil || len(p.lines) == 0 {
		return p, err
	}
	p.done = fmt.Sprintf("%d missing exports of cluster %s are gone", len(p.lines), id)
	peer := &exchangev1alpha1.Peer{}
	if err = target.Client.Get(ctx, client.ObjectKey{Name: string(id)}, peer); apierrors.IsNotFound(err) {
		return p, fmt.Errorf("there is no Peer %s; to remove all that is imported from cluster %s, run kubectl comity leave --id %s %s", id, id, id, target.Context)
	} else if err != nil {
		return p, fmt.Errorf("read Peer %s: %w", id, err)
	}
	// Not the time of this machine: its clock may differ from that of the cluster, and
	// what disappeared meanwhile was not shown.
	if before := peer.Spec.ConfirmMissingBefore; before == nil || before.Time.Before(latest) {
		p.changes = []change{{peer, fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"confirmMissingBefore":%q}}`, peer.UID, latest.UTC().Format(time.RFC3339))}}
	}
	return p, nil
}

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
	err = join.Each(ctx, c, &exchangev1alpha1.ExportRecordList{}, func(record *exchangev1alpha1.ExportRecord) error {
		if from, is := publishers[record.Namespace]; is && record.Spec.Lost && record.Annotations[model.AnnotationConfirmLost] != "true" {
			export := LostExport{from, types.NamespacedName{Namespace: record.Spec.Service.Namespace, Name: record.Spec.Service.Name}}
			lost[export] = append(lost[export], record)
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
