// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/loop/internal/memory"
	"github.com/comity-mcs/comity/sync/loop/internal/wake"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// maxRounds bounds how often one import is planned in a row: once for the
// Service, once for what needs its addresses, and twice more for a replacement.
const maxRounds = 4

// importer keeps the imported objects in line with the exports that reach this
// cluster, its own included.
type importer struct {
	*base
	names *memory.Names
	// met are slices that had a name of ours without our label, by import: plan
	// cannot know them from the label index.
	met sync.Map // types.NamespacedName → []string
	// contest knows the objects that somebody else keeps changing.
	contest *memory.Contest
	// announced are the problems told by an event, by import.
	announced sync.Map // types.NamespacedName → string
	// sight changes before the imports of a member that is heard of less are
	// listed, so that none that is being worked on is missed.
	sight atomic.Int64
}

func setupImport(mgr ctrl.Manager, b *base) error {
	i := &importer{base: b, names: memory.NewNames(), contest: memory.NewContest(time.Now)}
	members, known := make(chan struct{}, 1), memory.NewMembers()
	all := &wake.Keys{
		Ready:   []<-chan struct{}{b.Peers.Listed(), b.PolicyLoaded},
		Patient: b.LocalClusterKnown,
		Wakes:   []<-chan struct{}{b.policies.Listen(), b.localClusters.Listen(), members},
		List:    i.everything,
		Before: func(ctx context.Context, q wake.Queue) {
			add := func(key types.NamespacedName) { q.Add(request(key)) }
			cancel := b.Peers.Subscribe(add, func(id model.ClusterID) {
				if !known.LostSight(id, b.Peers.Members()) {
					wake.Kick(members)
					return
				}
				i.sight.Add(1)
				for _, key := range i.observations.From(id) {
					add(key)
				}
			})
			context.AfterFunc(ctx, cancel)
			if b.Prober != nil {
				context.AfterFunc(ctx, b.Prober.Subscribe(add))
			}
		},
	}
	return ctrl.NewControllerManagedBy(mgr).Named("import").
		Watches(&mcsv1beta1.ServiceExport{}, &handler.EnqueueRequestForObject{}).
		Watches(&mcsv1beta1.ServiceImport{}, &handler.EnqueueRequestForObject{}).
		Watches(&corev1.Service{}, mapped(b.exportedService)).
		Watches(&corev1.Service{}, mapped(b.importedObject)).
		Watches(&discoveryv1.EndpointSlice{}, afterOthers(b.exportedSlice)).
		Watches(&discoveryv1.EndpointSlice{}, mapped(b.importedObject)).
		Watches(&corev1.Namespace{}, mapped(i.inNamespace), builder.WithPredicates(namespaceLifecycle)).
		WatchesRawSource(all).
		WithOptions(b.controllerOptions()).
		Complete(i)
}

// everything lists all keys that have something to import or to remove. What
// exists here is enqueued by its own first event.
func (i *importer) everything(ctx context.Context) ([]types.NamespacedName, error) {
	keys, err := i.exports(ctx)
	if err != nil {
		return nil, err
	}
	keys = append(keys, i.Peers.Keys()...)
	var imports mcsv1beta1.ServiceImportList
	if err := i.client.List(ctx, &imports, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for n := range imports.Items {
		keys = append(keys, client.ObjectKeyFromObject(&imports.Items[n]))
	}
	// An import may have left slices or a Service without a ServiceImport.
	slices, err := listCompact(ctx, i.client, client.HasLabels{model.LabelServiceName})
	if err != nil {
		return nil, err
	}
	for _, s := range slices {
		keys = append(keys, i.importedObject(ctx, s)...)
	}
	var services corev1.ServiceList
	if err := i.client.List(ctx, &services, client.HasLabels{model.LabelServiceName}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for n := range services.Items {
		keys = append(keys, i.importedObject(ctx, &services.Items[n])...)
	}
	return keys, nil
}

// Imported lists, by the cluster that exports it, what the imports that Comity
// made here are of: what a process that starts finds of the time before it. It is
// a peer.Options.Imported.
func Imported(ctx context.Context, reader client.Reader) (map[model.ClusterID][]types.NamespacedName, error) {
	var imports mcsv1beta1.ServiceImportList
	if err := reader.List(ctx, &imports, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	of := map[model.ClusterID][]types.NamespacedName{}
	for n := range imports.Items {
		i := &imports.Items[n]
		if !model.IsManaged(i) {
			continue
		}
		for _, c := range i.Status.Clusters {
			of[model.ClusterID(c.Cluster)] = append(of[model.ClusterID(c.Cluster)], client.ObjectKeyFromObject(i))
		}
	}
	return of, nil
}

// inNamespace lists what waits for a namespace.
func (i *importer) inNamespace(ctx context.Context, o client.Object) []types.NamespacedName {
	keys, err := i.exports(ctx, client.InNamespace(o.GetName()))
	if err != nil {
		return nil
	}
	for _, key := range i.Peers.Keys() {
		if key.Namespace == o.GetName() {
			keys = append(keys, key)
		}
	}
	// What is kept of a cluster that was not read is among neither.
	var imports mcsv1beta1.ServiceImportList
	if err := i.client.List(ctx, &imports, client.InNamespace(o.GetName()), client.UnsafeDisableDeepCopy); err != nil {
		return keys
	}
	for n := range imports.Items {
		keys = append(keys, client.ObjectKeyFromObject(&imports.Items[n]))
	}
	return keys
}

// Reconcile brings one import up to date.
func (i *importer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	epoch, key := i.sight.Load(), req.NamespacedName
	local, err := i.readExport(ctx, key)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read the export %s: %w", req, err)
	}
	in, found, contacts := i.resolve(ctx, local)
	destination := i.isDestination(local.namespace)
	if !destination || i.AddOn {
		if !destination {
			found.Resolved, found.Sources = nil, nil
			i.lose(&in, nil)
			// What had the name went, or goes, with the namespace.
			i.names.Choose(key, func([]string) string { return "" })
		}
		i.tell(key, found)
		return reconcile.Result{}, nil
	}
	if in.Current, err = i.current(ctx, key); err != nil {
		return reconcile.Result{}, fmt.Errorf("read the import %s: %w", req, err)
	}
	found.Sources = sourcesOf(in, contacts)
	var unclear []model.Problem
	in.OnLost, unclear = onLost(key, in.Current, local.namespace)
	i.lose(&in, found.Sources)
	planned, err := i.bring(ctx, &in)
	disputed, again := i.disputes(key)
	found.Problems = slices.Concat(planned.Problems, found.Problems, unclear, disputed)
	found.Stands = planned.DerivedName != ""
	for n := range found.Sources {
		found.Sources[n].Withdrawn = slices.Contains(planned.Withdrawn, found.Sources[n].Cluster)
	}
	if err == nil || apply.ClassOf(err) == apply.Refused {
		i.tell(key, found)
		i.announce(key, in.Current, planned.Problems)
	}
	if err != nil {
		i.remember(key, err)
		return i.retry(ctx, req, err)
	}
	i.settled(req)
	if i.sight.Load() != epoch {
		again = time.Millisecond // a member was lost sight of meanwhile
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// bring plans and applies until nothing is outstanding.
func (i *importer) bring(ctx context.Context, in *plan.ImportInput) (plan.ImportPlan, error) {
	var planned plan.ImportPlan
	for range maxRounds {
		i.names.Choose(in.Key, func(taken []string) string {
			in.Taken = taken
			planned = plan.Import(*in)
			return planned.DerivedName
		})
		actions := i.unless(in.Key, planned.Actions)
		applied, err := i.applier.Apply(ctx, actions)
		i.fought(in, actions, applied)
		if err != nil {
			var failed *apply.Error
			if errors.As(err, &failed) && failed.Class == apply.Refused {
				planned.Problems = append(planned.Problems, model.Problem{Reason: model.ReasonRefused, Message: err.Error()})
			}
			return planned, err
		}
		if !planned.AwaitsService || len(actions) == 0 {
			return planned, nil
		}
		in.Current = in.Current.After(actions, applied)
	}
	return planned, nil // the next event goes on from here
}

// isDestination guards the namespaces that are nobody's to import into, and
// those where nothing can be written.
func (i *importer) isDestination(namespace *corev1.Namespace) bool {
	return namespace != nil && !terminating(namespace) && i.isUserNamespace(namespace)
}

// isUserNamespace is false for the cluster's own, Comity's and the exchange's namespaces.
func (b *base) isUserNamespace(namespace *corev1.Namespace) bool {
	_, isExchange := namespace.Labels[model.LabelExchangeFrom]
	return !isExchange && namespace.Name != b.Namespace && !exchange.ReservedNamespace(namespace.Name)
}

// current reads what exists of an import, whoever made it.
func (i *importer) current(ctx context.Context, key types.NamespacedName) (plan.Current, error) {
	var current plan.Current
	var err error
	inNamespace := client.InNamespace(key.Namespace)
	if current.Import, err = get[mcsv1beta1.ServiceImport](ctx, i.client, key); err != nil {
		return current, err
	}
	var services corev1.ServiceList
	if err := i.client.List(ctx, &services, inNamespace, client.MatchingFields{indexImport: key.Name}); err != nil {
		return current, err
	}
	seen := map[string]bool{}
	for _, s := range pointers(services.Items) {
		current.Services, seen[s.Name] = append(current.Services, s), true
	}
	for _, name := range []string{model.DerivedName(key.Name), model.AlternateDerivedName(key.Name)} {
		s, err := get[corev1.Service](ctx, i.client, types.NamespacedName{Namespace: key.Namespace, Name: name})
		if err != nil {
			return current, err
		}
		if s != nil && !seen[name] {
			current.Services = append(current.Services, s)
		}
	}
	if current.Slices, err = listSlices(ctx, i.client, inNamespace, client.MatchingFields{indexImport: key.Name}); err != nil {
		return current, err
	}
	return current, i.addMet(ctx, key, &current)
}

// addMet adds the slices that an earlier create met and the label does not show.
func (i *importer) addMet(ctx context.Context, key types.NamespacedName, current *plan.Current) error {
	value, ok := i.met.Load(key)
	if !ok {
		return nil
	}
	have := map[string]bool{}
	for _, s := range current.Slices {
		have[s.Name] = true
	}
	for _, name := range value.([]string) {
		s, err := getSlice(ctx, i.client, types.NamespacedName{Namespace: key.Namespace, Name: name})
		if err != nil {
			return err
		}
		if s != nil && !have[name] {
			current.Slices, have[name] = append(current.Slices, s), true
		}
	}
	return nil
}

// remember keeps the name of a slice that a create met.
func (i *importer) remember(key types.NamespacedName, err error) {
	var failed *apply.Error
	if !errors.As(err, &failed) || failed.Class != apply.NameTaken {
		return
	}
	if _, isSlice := failed.Action.Object.(*discoveryv1.EndpointSlice); !isSlice {
		return
	}
	names := []string{failed.Action.Object.GetName()}
	if value, ok := i.met.Load(key); ok {
		names = append(names, value.([]string)...)
	}
	i.met.Store(key, names[:min(len(names), 100)])
}

// tell stores what was found; nothing at all is forgotten.
func (i *importer) tell(key types.NamespacedName, found memory.Imported) {
	if found.Resolved == nil && !found.Stands {
		i.met.Delete(key)
	}
	i.observations.Import(key, &found)
}
