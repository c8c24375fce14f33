// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package confirm has the commands by which an administrator ends what waits: exports
// that are missing, takeovers of imports, and exports that a restore lost.
//
// It reads lists of imports, conditions and ExportRecords of one cluster, shows what a
// confirmation is about, and writes the field or annotation that the agent reads. What
// waits is found here for status, too. It decides nothing and removes nothing itself.
package confirm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/status/condition"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

// New is the command confirm.
func New(env *command.Env) *cobra.Command {
	return command.Group("confirm", "Confirm what waits for an administrator", `Confirm what waits for an administrator in the cluster of --context.
kubectl comity status lists what waits.`, newMissing(env), newTakeover(env), newLost(env))
}

// proposal is what a command confirms, with one line for each thing.
type proposal struct {
	lines   []string
	heading string
	// none is printed if there are no lines, and done after the last change.
	none, done string
	changes    []change
}

// change is a merge patch of an object, with its UID, so that another one of its name is
// not patched.
type change struct {
	object client.Object
	patch  string
}

func annotate(object client.Object, key, value string) change {
	return change{object, fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, object.GetUID(), key, value)}
}

// confirms is the command that shows what find gives, asks unless one object was named, and
// writes it.
func confirms(env *command.Env, use, short, long, example string, args cobra.PositionalArgs, s *selection,
	find func(context.Context, *command.Target) (proposal, error),
) *cobra.Command {
	cmd := command.New(use, short, long, example, args, func(ctx context.Context, _ []string) error {
		targets, err := env.OpenAll(ctx, nil)
		if err != nil {
			return err
		}
		target := targets[0]
		p, err := find(ctx, target)
		if err != nil {
			return target.Errorf("%w", err)
		}
		if len(p.lines) == 0 {
			env.Printf("%s\n", p.none)
			return nil
		}
		if err := env.Confirm(s.yes || s.key.Name != "", p.heading+"\n  "+strings.Join(p.lines, "\n  ")+"\n"); err != nil {
			return err
		}
		for _, c := range p.changes {
			patch := client.RawPatch(types.MergePatchType, []byte(c.patch))
			if err := target.Client.Patch(ctx, c.object, patch, client.FieldOwner("kubectl-comity")); err != nil {
				return command.Incomplete(target.Errorf("%T %s: %w", c.object, client.ObjectKeyFromObject(c.object), err))
			}
		}
		env.Printf("Confirmed: %s.\n", p.done)
		return nil
	})
	command.AddYes(cmd, &s.yes)
	return cmd
}

// selection is what the arguments select: an object, or all.
type selection struct {
	yes, all bool
	key      types.NamespacedName
}

// parse reads NAMESPACE/NAME, or nothing with --all.
func (s *selection) parse(_ *cobra.Command, args []string) (err error) {
	if s.all && len(args) == 0 {
		return nil
	}
	if s.all || len(args) != 1 {
		return fmt.Errorf("expected either NAMESPACE/NAME or --all")
	}
	s.key, err = command.ParseKey(args[0])
	return err
}

func newMissing(env *command.Env) *cobra.Command {
	var id model.ClusterID
	return confirms(env, "missing CLUSTER", "Confirm that exports of a cluster that are missing are gone",
		`Confirm that exports of a cluster that disappeared without a statement are gone, such
as those of an exchange namespace that was deleted. The command lists them and asks.
What was imported of them is removed.`, "  kubectl comity confirm missing b --context a",
		cobra.MatchAll(cobra.ExactArgs(1), func(_ *cobra.Command, args []string) (err error) {
			id, err = model.ParseClusterID(args[0])
			return err
		}), &selection{}, func(ctx context.Context, target *command.Target) (proposal, error) {
			p := proposal{
				heading: fmt.Sprintf("These exports of cluster %s are missing. What cluster %s imports of them is removed:", id, target.Context),
				none:    fmt.Sprintf("No export of cluster %s is missing.", id),
			}
			imports, err := join.Imports(ctx, target.Client)
			var latest time.Time
			for _, key := range slices.SortedFunc(maps.Keys(imports), model.CompareKeys) {
				if entry, _ := imports[key].Find(id); entry.Absent == model.SourceMissing {
					p.lines = append(p.lines, fmt.Sprintf("%s, since %s", key, entry.Since.UTC().Format(time.RFC3339)))
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
				return p, fmt.Errorf("there is no Peer %s; to remove all that is imported from cluster %s, run kubectl comity leave --id %s %s (with --hub if members publish in a hub)", id, id, id, target.Context)
			} else if err != nil {
				return p, fmt.Errorf("read Peer %s: %w", id, err)
			}
			// Not the time of this machine: its clock may differ from that of the cluster, and
			// what disappeared meanwhile was not shown.
			if ahead := time.Until(latest); ahead > time.Minute {
				return p, fmt.Errorf("the newest is missing since %s, %s from now, and what disappears until then would be confirmed, too; correct the clock of the cluster or of this machine, and repeat the command then",
					latest.UTC().Format(time.RFC3339), ahead.Round(time.Second))
			}
			if before := peer.Spec.ConfirmMissingBefore; before == nil || before.Time.Before(latest) {
				p.changes = []change{{peer, fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"confirmMissingBefore":%q}}`, peer.UID, latest.UTC().Format(time.RFC3339))}}
			}
			return p, nil
		})
}

// Record states an export to the cluster To, or to all if it is empty.
type Record struct {
	From, To model.ClusterID
	*exchangev1alpha1.ExportRecord
}

// Service is the Service that is exported.
func (r Record) Service() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Spec.Service.Namespace, Name: r.Spec.Service.Name}
}

// IsLost is true for an export that is still published although its ServiceExport disappeared
// with a restore of the publisher's API server.
func (r Record) IsLost() bool {
	return r.Spec.Lost && r.Annotations[model.AnnotationConfirmLost] != "true"
}

// Published are the records in the exchange namespaces of one API server. isHub is true if a
// join marked these namespaces as those of a hub, or they are of several members: a cluster
// that is no hub has only its own.
func Published(ctx context.Context, c client.Client) (published []Record, isHub bool, err error) {
	var namespaces corev1.NamespaceList
	if err := c.List(ctx, &namespaces, client.HasLabels{model.LabelExchangeFrom}); err != nil {
		return nil, false, fmt.Errorf("list the exchange namespaces: %w", err)
	}
	audience, members := map[string]Record{}, sets.New[string]()
	for _, n := range namespaces.Items {
		members.Insert(n.Labels[model.LabelExchangeFrom])
		isHub = isHub || n.Annotations[model.AnnotationClusterUID] != "" // of the member: a join to a hub notes it
		audience[n.Name] = Record{From: model.ClusterID(n.Labels[model.LabelExchangeFrom]), To: model.ClusterID(n.Labels[model.LabelExchangeTo])}
	}
	var records exchangev1alpha1.ExportRecordList
	if err := c.List(ctx, &records); meta.IsNoMatchError(err) {
		return nil, false, nil
	} else if err != nil {
		return nil, false, fmt.Errorf("list the ExportRecords: %w", err)
	}
	for i := range records.Items {
		if r, is := audience[records.Items[i].Namespace]; is {
			r.ExportRecord = &records.Items[i]
			published = append(published, r)
		}
	}
	return published, isHub || members.Len() > 1, nil
}

func newLost(env *command.Env) *cobra.Command {
	var s selection
	cmd := confirms(env, "lost NAMESPACE/NAME|--all", "Confirm that exports that a restore lost are gone",
		`Confirm that exports are gone whose ServiceExports disappeared when the API server of
their cluster was restored from a backup. They are withdrawn then. To keep such an
export, create its ServiceExport again instead.

The context is that of the cluster that exports, or of the hub.`,
		"  kubectl comity confirm lost shop/web --context b\n  kubectl comity confirm lost --all --context b", s.parse, &s,
		func(ctx context.Context, target *command.Target) (proposal, error) {
			p := proposal{heading: "These lost exports are withdrawn:", none: "No export is lost."}
			published, _, err := Published(ctx, target.Client)
			for _, record := range published {
				if !record.IsLost() || !s.all && record.Service() != s.key {
					continue
				}
				p.lines = append(p.lines, fmt.Sprintf("%s of cluster %s", record.Service(), record.From))
				p.changes = append(p.changes, annotate(record.ExportRecord, model.AnnotationConfirmLost, "true"))
			}
			slices.Sort(p.lines)
			p.lines = slices.Compact(p.lines) // an export has a record for each audience
			if err == nil && !s.all && len(p.lines) == 0 {
				err = fmt.Errorf("no export %s is lost in this cluster", s.key)
			}
			p.done = fmt.Sprintf("%d lost exports are gone", len(p.lines))
			return p, err
		})
	cmd.Flags().BoolVar(&s.all, "all", false, "Confirm all lost exports")
	return cmd
}

// Waiting are the exports that wait to decide an import, by cluster: while condition
// TakeoverHeld is true, those that are older than one before them in the list.
func Waiting(list model.List, conditions []metav1.Condition) map[model.ClusterID]types.UID {
	waiting := map[model.ClusterID]types.UID{}
	for _, e := range list.Older() {
		if e.UID != "" && e.Absent == "" && meta.IsStatusConditionTrue(conditions, condition.TypeTakeoverHeld) {
			waiting[e.Cluster] = e.UID
		}
	}
	return waiting
}

// candidate is the export of a cluster that may decide an import once that is confirmed: one
// that waits, or, if the import was named, any that it lists while it is frozen. An import is
// frozen also while a cluster is not read for a moment, and then nothing is known to wait, so
// that all of these are not confirmed together.
func (s selection) candidate(imported *mcsv1beta1.ServiceImport, from model.ClusterID) (types.UID, bool) {
	list, _ := model.ParseList(imported.Annotations[model.AnnotationList]) // nothing waits if it cannot be read
	if uid, waits := Waiting(list, imported.Status.Conditions)[from]; waits || s.all {
		return uid, waits
	}
	entry, _ := list.Find(from)
	return entry.UID, entry.UID != "" && entry.Absent == "" && meta.IsStatusConditionTrue(imported.Status.Conditions, condition.TypeFrozen)
}

func newTakeover(env *command.Env) *cobra.Command {
	var s selection
	var from string
	cmd := confirms(env, "takeover NAMESPACE/NAME|--all --from CLUSTER", "Let the export of a cluster decide the properties of an import",
		`Let the export of a cluster decide the properties of an import, such as its ports and
its type. This also ends that an import stays as it is because the cluster that
decides it is not read.`,
		"  kubectl comity confirm takeover shop/web --from c --context a\n  kubectl comity confirm takeover --all --from c --context a", s.parse, &s,
		func(ctx context.Context, target *command.Target) (proposal, error) {
			id, err := model.ParseClusterID(from)
			if err != nil {
				return proposal{}, fmt.Errorf("--from: %w", err)
			}
			return s.takeovers(ctx, target, id)
		})
	cmd.Flags().BoolVar(&s.all, "all", false, "Confirm all imports that an export of the cluster waits for")
	cmd.Flags().StringVar(&from, "from", "", "The id of the cluster whose export is to decide")
	_ = cmd.MarkFlagRequired("from")
	return cmd
}

// takeovers proposes to confirm the export of a cluster for the import that was named, or for
// all that wait for it.
func (s selection) takeovers(ctx context.Context, target *command.Target, from model.ClusterID) (proposal, error) {
	p := proposal{
		heading: fmt.Sprintf("The export of cluster %s decides these imports of cluster %s from now on:", from, target.Context),
		none:    fmt.Sprintf("No import waits for an export of cluster %s.", from),
	}
	var imports mcsv1beta1.ServiceImportList
	err := target.Client.List(ctx, &imports)
	for i := range imports.Items {
		imported := &imports.Items[i]
		key := client.ObjectKeyFromObject(imported)
		uid, is := s.candidate(imported, from)
		if !is || !s.all && key != s.key {
			continue
		}
		p.lines = append(p.lines, key.String())
		if value := fmt.Sprintf("%s/%s", from, uid); imported.Annotations[model.AnnotationConfirmTakeover] != value {
			p.changes = append(p.changes, annotate(imported, model.AnnotationConfirmTakeover, value))
		}
	}
	if err == nil && !s.all && len(p.lines) == 0 {
		err = fmt.Errorf("no export of cluster %s waits for ServiceImport %s, or there is no such import; see its condition %s", from, s.key, condition.TypeTakeoverHeld)
	}
	p.done = fmt.Sprintf("the export of cluster %s decides %d imports", from, len(p.lines))
	return p, err
}
