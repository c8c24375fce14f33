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
	"github.com/comity-mcs/comity/sync/join"
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
its type. This also ends that an import stays as it is because the cluster that
decides it is not read.`,
		Example: "  kubectl comity confirm takeover shop/web --from c --context a\n  kubectl comity confirm takeover --all --from c --context a",
		Args:    s.parse,
	}
	cmd.Flags().BoolVar(&s.all, "all", false, "Confirm all imports that an export of the cluster waits for")
	cmd.Flags().StringVar(&from, "from", "", "The id of the cluster whose export is to decide")
	_ = cmd.MarkFlagRequired("from")
	return confirms(env, cmd, &s, func(ctx context.Context, target *command.Target) (proposal, error) {
		id, err := model.ParseClusterID(from)
		if err != nil {
			return proposal{}, fmt.Errorf("--from: %w", err)
		}
		p := proposal{
			heading: fmt.Sprintf("The export of cluster %s decides these imports of cluster %s from now on:", id, target.Context),
			none:    fmt.Sprintf("No import waits for an export of cluster %s.", id),
		}
		imports, err := selected(ctx, target, s, id)
		for _, imported := range imports {
			p.lines = append(p.lines, client.ObjectKeyFromObject(imported).String())
			uid, _ := candidate(imported, id)
			if value := fmt.Sprintf("%s/%s", id, uid); imported.Annotations[model.AnnotationConfirmTakeover] != value {
				p.changes = append(p.changes, annotate(imported, model.AnnotationConfirmTakeover, value))
			}
		}
		p.done = fmt.Sprintf("the export of cluster %s decides %d imports", id, len(imports))
		return p, err
	})
}

// selected is the ServiceImport that was named; or else all that an export of the cluster
// waits for. An import is frozen also while a cluster is not read for a moment, and then
// nothing is known to wait, so that all of these are not confirmed together.
func selected(ctx context.Context, target *command.Target, s selection, from model.ClusterID) (found []*mcsv1beta1.ServiceImport, err error) {
	if !s.all {
		var imported mcsv1beta1.ServiceImport
		if err := target.Client.Get(ctx, s.key, &imported); err != nil {
			return nil, fmt.Errorf("read ServiceImport %s: %w", s.key, err)
		}
		if _, is := candidate(&imported, from); !is {
			return nil, fmt.Errorf("no export of cluster %s waits for ServiceImport %s; see its condition %s", from, s.key, condition.TypeTakeoverHeld)
		}
		return []*mcsv1beta1.ServiceImport{&imported}, nil
	}
	err = join.Each(ctx, target.Client, &mcsv1beta1.ServiceImportList{}, func(imported *mcsv1beta1.ServiceImport) error {
		if _, waits := Waiting(imported)[from]; waits {
			found = append(found, imported)
		}
		return nil
	})
	return found, err
}
