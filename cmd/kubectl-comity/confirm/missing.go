// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package confirm

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
