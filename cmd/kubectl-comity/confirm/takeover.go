// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package confirm

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

// Waiting are the exports that wait to decide an import, by cluster: while condition
// TakeoverHeld is true, those that are older than one before them in the list.
func Waiting(imported *mcsv1beta1.ServiceImport) map[model.ClusterID]types.UID {
	waiting := map[model.ClusterID]types.UID{}
	list, err := model.ParseList(imported.Annotations[model.AnnotationList])
	if err != nil || !meta.IsStatusConditionTrue(imported.Status.Conditions, condition.TypeTakeoverHeld) {
		return waiting
	}
	for _, e := range list.Older() {
		if e.UID != "" && e.Absent == model.SourcePublished {
			waiting[e.Cluster] = e.UID
		}
	}
	return waiting
}

// candidate is the export of a cluster that may decide an import once that is confirmed:
// one that waits, or any that the import lists while it is frozen.
func candidate(imported *mcsv1beta1.ServiceImport, from model.ClusterID) (types.UID, bool) {
	if uid, waits := Waiting(imported)[from]; waits {
		return uid, true
	}
	list, err := model.ParseList(imported.Annotations[model.AnnotationList])
	if err != nil || !meta.IsStatusConditionTrue(imported.Status.Conditions, condition.TypeFrozen) {
		return "", false
	}
	entry, listed := list.Find(from)
	return entry.UID, listed && entry.UID != "" && entry.Absent == model.SourcePublished
}

func newTakeover(env *command.Env) *cobra.Command {
	var s selection
	var from string
	cmd := &cobra.Command{
		Use:   "takeover NAMESPACE/NAME|--all --from CLUSTER",
		Short: "Let the export of a cluster decide the properties of an import",
		Long: `Let the export of a cluster decide the properties of an import, such as its ports and
its type. It comes first in the order of the exports then. This also ends that an
import stays as it is because the cluster that decides it is not read.

With --all, all imports that an export of the cluster waits for are confirmed, such as
after a migration to that cluster. The command lists them and asks.`,
		Example: "  kubectl comity confirm takeover shop/web --from c --context a\n  kubectl comity confirm takeover --all --from c --context a",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.parse(args); err != nil {
				return err
			}
			id, err := model.ParseClusterID(from)
			if err != nil {
				return command.Refusedf("--from: %w", err)
			}
			return takeover(cmd.Context(), env, s, id)
		},
	}
	s.addFlags(cmd, "Confirm all imports that an export of the cluster waits for")
	cmd.Flags().StringVar(&from, "from", "", "The id of the cluster whose export is to decide")
	_ = cmd.MarkFlagRequired("from")
	return cmd
}

func takeover(ctx context.Context, env *command.Env, s selection, from model.ClusterID) error {
	target, err := open(ctx, env)
	if err != nil {
		return err
	}
	imports, err := selected(ctx, target, s, from)
	if err != nil {
		return command.Refused(err)
	}
	if len(imports) == 0 {
		env.Printf("No import waits for an export of cluster %s.\n", from)
		return nil
	}
	var lines []string
	for _, imported := range imports {
		lines = append(lines, client.ObjectKeyFromObject(imported).String())
	}
	if err := s.ask(env, fmt.Sprintf("The export of cluster %s decides these imports of cluster %s from now on:", from, target.Context), lines); err != nil {
		return err
	}
	for i, imported := range imports {
		uid, _ := candidate(imported, from)
		value := fmt.Sprintf("%s/%s", from, uid)
		if imported.Annotations[model.AnnotationConfirmTakeover] == value {
			continue
		}
		if err := patch(ctx, target, imported, "ServiceImport "+lines[i], annotation(model.AnnotationConfirmTakeover, value)); err != nil {
			return err
		}
	}
	env.Printf("Confirmed: the export of cluster %s decides %d imports.\n", from, len(imports))
	return nil
}

// selected is the ServiceImport that was named; or else all that an export of the cluster
// waits for. An import is frozen also while a cluster is not read for a moment, and then
// nothing is known to wait, so that all of these are not confirmed together.
func selected(ctx context.Context, target *command.Target, s selection, from model.ClusterID) ([]*mcsv1beta1.ServiceImport, error) {
	if !s.all {
		var imported mcsv1beta1.ServiceImport
		if err := target.Client.Get(ctx, s.key, &imported); err != nil {
			return nil, target.Errorf("read ServiceImport %s: %w", s.key, err)
		}
		if _, is := candidate(&imported, from); !is {
			return nil, target.Errorf("no export of cluster %s waits for ServiceImport %s; see its condition %s", from, s.key, condition.TypeTakeoverHeld)
		}
		return []*mcsv1beta1.ServiceImport{&imported}, nil
	}
	var found []*mcsv1beta1.ServiceImport
	err := command.EachPage(ctx, target.Client, func(page *mcsv1beta1.ServiceImportList) {
		for i := range page.Items {
			if _, waits := Waiting(&page.Items[i])[from]; waits {
				found = append(found, &page.Items[i])
			}
		}
	})
	if err != nil {
		return nil, target.Errorf("list the ServiceImports: %w", err)
	}
	return found, nil
}
