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
	var sure command.Confirmation
	cmd := &cobra.Command{
		Use:   "missing CLUSTER",
		Short: "Confirm that exports of a cluster that are missing are gone",
		Long: `Confirm that the exports of a cluster that disappeared without a statement are gone,
such as those of an exchange namespace that was deleted, or of a cluster that was made
again. The command lists them and asks. What was imported of them is removed. Exports
that disappear later wait again.`,
		Example: "  kubectl comity confirm missing b --context a",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return missing(cmd.Context(), env, sure, args[0]) },
	}
	sure.AddFlags(cmd)
	return cmd
}

func missing(ctx context.Context, env *command.Env, sure command.Confirmation, text string) error {
	id, err := model.ParseClusterID(text)
	if err != nil {
		return command.Refused(err)
	}
	target, err := open(ctx, env)
	if err != nil {
		return err
	}
	imports, err := join.Imports(ctx, target.Client)
	if err != nil {
		return command.Refused(target.Errorf("%w", err))
	}
	var lines []string
	var latest time.Time
	for _, i := range imports {
		if entry, _ := i.List.Find(id); entry.Absent == model.SourceMissing {
			lines = append(lines, fmt.Sprintf("%s, since %s", i.Key, entry.Since.UTC().Format(time.RFC3339)))
			if entry.Since.After(latest) {
				latest = entry.Since
			}
		}
	}
	if len(lines) == 0 {
		env.Printf("No export of cluster %s is missing.\n", id)
		return nil
	}
	var peer exchangev1alpha1.Peer
	err = target.Client.Get(ctx, client.ObjectKey{Name: string(id)}, &peer)
	if apierrors.IsNotFound(err) {
		return command.Refused(target.Errorf("there is no Peer %s; to remove all that is imported from cluster %s, run kubectl comity leave --id %s %s", id, id, id, target.Context))
	} else if err != nil {
		return command.Refused(target.Errorf("read Peer %s: %w", id, err))
	}
	if err := sure.Ask(env, list(fmt.Sprintf("These exports of cluster %s are missing. What cluster %s imports of them is removed:", id, target.Context), lines)); err != nil {
		return err
	}
	// Not the time of this machine: its clock may differ from that of the cluster, and
	// what disappeared meanwhile was not shown.
	if before := peer.Spec.ConfirmMissingBefore; before == nil || before.Time.Before(latest) {
		content := map[string]any{"spec": map[string]any{"confirmMissingBefore": latest.UTC().Format(time.RFC3339)}}
		if err := patch(ctx, target, &peer, "Peer "+peer.Name, content); err != nil {
			return err
		}
	}
	env.Printf("Confirmed: %d missing exports of cluster %s are gone.\n", len(lines), id)
	return nil
}
