// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package drain has the commands that take a cluster out of traffic, and put it back.
//
// They set and remove spec.drained of its Peer in each importing cluster, or an annotation
// of its MemberRecord, on which the agents act. They show which imports only that cluster
// serves.
package drain

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

const drainLong = `Take a cluster out of traffic, such as for maintenance, until kubectl comity resume.

In the clusters of --context, a list of contexts with commas, endpoints of CLUSTER are
used only where no other cluster has a ready endpoint: its imports there are listed, and
go on. Open connections are not closed. The agents act on spec.drained of the Peers.

With --self, CLUSTER is drained in all clusters whose Peers do not refuse it
(spec.ignoreDrain). The context is that of CLUSTER, or of the hub.

Traffic cannot be weighed, because kube-proxy has no weights. --over drains one import
after the other.`

// drain are the flags of both commands.
type drain struct {
	env *command.Env
	// resume removes what drains the cluster.
	resume bool
	self   bool
	over   time.Duration
	// force withholds the last endpoints, which is asked.
	force bool
	yes   bool
}

// New is the command drain.
func New(env *command.Env) *cobra.Command {
	d := &drain{env: env}
	cmd := d.command("drain", "Take a cluster out of traffic", drainLong, `  # The clusters of contexts a and c avoid the endpoints of cluster b.
  kubectl comity drain b --context a,c

  # The same in all clusters, one import after the other within five minutes.
  kubectl comity drain b --self --over 5m --context b`)
	cmd.Flags().DurationVar(&d.over, "over", 0, "Drain one import after the other in this time")
	cmd.Flags().BoolVar(&d.force, "force", false, "Make its endpoints not ready also where no other cluster has a ready one")
	command.AddYes(cmd, &d.yes)
	return cmd
}

// NewResume is the command resume.
func NewResume(env *command.Env) *cobra.Command {
	d := &drain{env: env, resume: true}
	return d.command("resume", "Put a cluster that was drained back into traffic", `Put a cluster back into traffic that kubectl comity drain took out of it.`,
		"  kubectl comity resume b --context a,c\n  kubectl comity resume b --self --context b")
}

func (d *drain) command(name, short, long, example string) *cobra.Command {
	cmd := command.New(name+" CLUSTER", short, long, example, cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		id, err := model.ParseClusterID(args[0])
		if err != nil {
			return err
		}
		if d.over < 0 || d.over%time.Second != 0 {
			return fmt.Errorf("--over: %s given, expected whole seconds, such as 5m", d.over)
		}
		contexts := strings.FieldsFunc(d.env.Context, func(r rune) bool { return r == ',' })
		targets, err := d.env.OpenAll(ctx, contexts)
		if err != nil {
			return err
		}
		for _, target := range targets { // before anything is written
			if err := d.confirm(ctx, target, id); err != nil {
				return err
			}
		}
		for n, target := range targets {
			err := d.write(ctx, target, id)
			if n > 0 {
				err = command.Incomplete(err)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	cmd.Flags().BoolVar(&d.self, "self", false, "In all clusters that import from it; the context is its own, or that of the hub")
	return cmd
}

// confirm shows the imports of a cluster that is drained here, and asks where some lose their
// last endpoints.
func (d *drain) confirm(ctx context.Context, target *command.Target, id model.ClusterID) error {
	if d.self || d.resume {
		return nil
	}
	var list discoveryv1.EndpointSliceList
	if err := target.Client.List(ctx, &list, client.HasLabels{model.LabelServiceName, model.LabelSourceCluster}); err != nil {
		return target.Errorf("list EndpointSlices: %w", err)
	}
	// Imports with endpoints of the cluster, and those of which another one has a ready endpoint.
	has, others := sets.New[string](), sets.New[string]()
	for i := range list.Items {
		s := &list.Items[i]
		key := s.Namespace + "/" + s.Labels[model.LabelServiceName]
		switch {
		case !model.IsManaged(s) || len(s.Endpoints) == 0:
		case s.Labels[model.LabelSourceCluster] == string(id):
			has.Insert(key)
		case slices.ContainsFunc(s.Endpoints, model.IsReady):
			others.Insert(key)
		}
	}
	only := sets.List(has.Difference(others))
	text := fmt.Sprintf("%s: %d imports have endpoints of cluster %s.\n", target.Context, len(has), id)
	if len(only) > 0 {
		then := "it goes on serving them"
		if d.force {
			then = "with --force they have no ready endpoint any more"
		}
		text += fmt.Sprintf("Only cluster %s serves these %d, and %s:\n  %s\n", id, len(only), then, strings.Join(only, "\n  "))
	}
	return d.env.Confirm(d.yes || !d.force || len(only) == 0, text)
}

// write sets what drains the cluster, or removes it.
func (d *drain) write(ctx context.Context, target *command.Target, id model.ClusterID) error {
	done, drained := "drained", &model.Drained{Since: metav1.Now().Rfc3339Copy(), Over: metav1.Duration{Duration: d.over}, Force: d.force}
	if d.resume {
		done, drained = "resumed", nil
	}
	peer, record := &exchangev1alpha1.Peer{}, &exchangev1alpha1.MemberRecord{}
	object, namespace := client.Object(peer), ""
	if d.self {
		object, namespace = record, model.ExchangeNamespace(id)
	}
	if err := target.Get(ctx, namespace, string(id), object); err != nil {
		return err
	}
	before := object.DeepCopyObject().(client.Object)
	for _, was := range exchange.Drains(&peer.Spec, record.Annotations[model.AnnotationDrained]) {
		switch {
		case drained == nil || drained.Over.Duration == 0:
		case was.Over == drained.Over: // the command is repeated
			drained.Since = was.Since
		default:
			return target.Errorf("cluster %s is drained since %s, over %s; to begin again, which puts it back into traffic first, run kubectl comity resume %s",
				id, was.Since.UTC().Format(time.RFC3339), was.Over.Duration, id)
		}
	}
	peer.Spec.Drained = drained
	delete(record.Annotations, model.AnnotationDrained)
	if drained != nil {
		text, _ := json.Marshal(drained) // times, numbers and strings
		metav1.SetMetaDataAnnotation(&record.ObjectMeta, model.AnnotationDrained, string(text))
	}
	if err := target.Client.Patch(ctx, object, client.MergeFrom(before), client.FieldOwner("kubectl-comity")); err != nil {
		return target.Errorf("%w", err)
	}
	d.env.Printf("%s: cluster %s is %s.\n", target.Context, id, done)
	return nil
}
