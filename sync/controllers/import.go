// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/plan"
)

// maxRounds bounds how often one import is planned in a row: once for the
// Service, once for what needs its addresses, and twice more for a replacement.
const maxRounds = 4

// importController keeps the imported objects in line with the exports that
// reach this cluster, its own included.
type importController struct {
	*base
	names *decide.Names
	// occupied are slices that have a name of an import's without its label, by
	// import: they are not found by the label index.
	occupied sync.Map // types.NamespacedName → []string
	// drift knows the objects that something else keeps changing.
	drift *driftLimiter
	// announced are the problems for which an event was written, by import.
	announced sync.Map // types.NamespacedName → string
	// livenessChanges counts the changes of a member's liveness. It grows before the
	// imports of that member are listed, so that none that is being reconciled is missed.
	livenessChanges atomic.Int64
}

func setupImport(mgr ctrl.Manager, b *base) error {
	i := &importController{base: b, names: decide.NewNames(), drift: newDriftLimiter(time.Now)}
	all := &notify.Source{
		Required:  []<-chan struct{}{b.Peers.Listed(), b.PoliciesLoaded},
		Optional:  b.LocalClusterKnown,
		Notifiers: []*notify.Notifier{b.PoliciesChanged, b.LocalClusterChanged},
		List:      i.everything,
		Subscribe: func(key func(types.NamespacedName), all func()) func() {
			cancel := b.subscribeMembers(key, all, func(id model.ClusterID) {
				i.livenessChanges.Add(1)
				for _, imported := range i.observations.From(id) {
					key(imported)
				}
			})
			if b.Prober == nil {
				return cancel
			}
			return notify.Both(cancel, b.Prober.Subscribe(key))
		},
	}
	return ctrl.NewControllerManagedBy(mgr).Named("import").
		Watches(&mcsv1beta1.ServiceExport{}, &handler.EnqueueRequestForObject{}).
		Watches(&mcsv1beta1.ServiceImport{}, &handler.EnqueueRequestForObject{}).
		Watches(&corev1.Service{}, mapped(b.exportedService)).
		Watches(&corev1.Service{}, mapped(b.importedObject)).
		Watches(&discoveryv1.EndpointSlice{}, mapped(b.exportedSlice)).
		Watches(&discoveryv1.EndpointSlice{}, mapped(b.importedObject)).
		Watches(&corev1.Namespace{}, mapped(i.inNamespace), builder.WithPredicates(namespaceLifecycle)).
		WatchesRawSource(all).
		WithOptions(b.controllerOptions()).
		Complete(i)
}

// everything lists all keys that have something to import or to remove. What
// exists here is enqueued by its own first event.
func (i *importController) everything(ctx context.Context) ([]types.NamespacedName, error) {
	keys, err := i.exports(ctx)
	if err != nil {
		return nil, err
	}
	keys = append(keys, i.Peers.Keys()...)
	imports, err := notify.ListKeys(ctx, i.client, &mcsv1beta1.ServiceImportList{})
	if err != nil {
		return nil, err
	}
	keys = append(keys, imports...)
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
func (i *importController) inNamespace(ctx context.Context, o client.Object) []types.NamespacedName {
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
	imports, err := notify.ListKeys(ctx, i.client, &mcsv1beta1.ServiceImportList{}, client.InNamespace(o.GetName()))
	if err != nil {
		return keys
	}
	return append(keys, imports...)
}

// Reconcile brings one import up to date.
func (i *importController) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	before, key := i.livenessChanges.Load(), req.NamespacedName
	view, err := i.view(ctx, key)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read the import %s: %w", req, err)
	}
	decided := decide.Import(view)
	if i.Prober != nil {
		i.Prober.Watch(key, decided.Probe)
	}
	if !decided.Write {
		if !decided.HasNamespace {
			i.names.Release(key)
		}
		i.store(key, decided.Finding)
		return reconcile.Result{}, nil
	}
	planned, err := i.apply(ctx, &decided.Plan)
	contested, again := i.drift.contested(key)
	found := decided.Finding.AfterPlan(key, planned, refusal(err), contested)
	if err == nil || apply.ClassOf(err) == apply.Refused {
		i.store(key, found)
		i.announce(key, decided.Plan.Current, planned.Problems)
	}
	if err != nil {
		i.rememberOccupied(key, err)
		return i.retry(ctx, req, err)
	}
	i.succeeded(req)
	if i.livenessChanges.Load() != before {
		again = time.Millisecond
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// view reads everything that decides what one import should be.
func (i *importController) view(ctx context.Context, key types.NamespacedName) (decide.ImportView, error) {
	v := decide.ImportView{
		Self: i.Self, ComityNamespace: i.Namespace, LocalCluster: i.LocalCluster(),
		ImportDisabled: i.ImportDisabled, MaintainSelectors: i.MaintainSelectors, Takeover: i.Takeover,
		Slices: map[model.ClusterID][]*discoveryv1.EndpointSlice{},
	}
	var err error
	if v.Local, err = i.readLocal(ctx, key); err != nil {
		return v, err
	}
	members := i.Peers.Members()
	v.Exports = i.Peers.Exports(key)
	for _, e := range v.Exports {
		slices, problems := i.Peers.Slices(e.Cluster, key)
		v.Slices[e.Cluster] = slices
		v.SliceProblems = append(v.SliceProblems, problems...)
	}
	v.Held = i.Peers.Held(key)
	v.Members = decide.ReadTwice(members, i.Peers.Members())
	if i.Prober != nil {
		v.Unanswered = i.Prober.Down(key)
	}
	if !i.ImportDisabled {
		v.Current, err = i.current(ctx, key)
	}
	return v, err
}

// apply plans and applies until nothing is outstanding. Only the name of the
// derived Service is chosen under the lock of the names.
func (i *importController) apply(ctx context.Context, in *plan.ImportInput) (plan.ImportPlan, error) {
	var planned plan.ImportPlan
	for range maxRounds {
		in.Taken = i.names.Choose(in.Key, func(taken []string) string {
			in.Taken = taken
			return plan.Name(*in)
		})
		planned = plan.Import(*in)
		actions := i.drift.allowed(in.Key, planned.Actions)
		applied, err := i.applier.Apply(ctx, actions)
		i.drift.applied(in, actions, applied)
		if err != nil || !planned.AwaitsService || len(actions) == 0 {
			return planned, err
		}
		in.Current = in.Current.After(actions, applied)
	}
	return planned, nil // the next event continues from here
}

// refusal is the message of an err with which the API server refused a write;
// empty for any other.
func refusal(err error) string {
	var failed *apply.Error
	if errors.As(err, &failed) && failed.Class == apply.Refused {
		return err.Error()
	}
	return ""
}

// current reads what exists of an import, whoever made it.
func (i *importController) current(ctx context.Context, key types.NamespacedName) (plan.Current, error) {
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
	return current, i.addOccupied(ctx, key, &current)
}

// addOccupied adds the slices that an earlier create met and the label does not show.
func (i *importController) addOccupied(ctx context.Context, key types.NamespacedName, current *plan.Current) error {
	value, ok := i.occupied.Load(key)
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

// rememberOccupied keeps the name of a slice that a create met.
func (i *importController) rememberOccupied(key types.NamespacedName, err error) {
	var failed *apply.Error
	if !errors.As(err, &failed) || failed.Class != apply.NameTaken {
		return
	}
	if _, isSlice := failed.Action.Object.(*discoveryv1.EndpointSlice); !isSlice {
		return
	}
	names := []string{failed.Action.Object.GetName()}
	if value, ok := i.occupied.Load(key); ok {
		names = append(names, value.([]string)...)
	}
	i.occupied.Store(key, names[:min(len(names), 100)])
}

// store keeps what was found.
func (i *importController) store(key types.NamespacedName, found decide.ImportFinding) {
	if found.Resolved == nil && !found.Exists {
		i.occupied.Delete(key)
	}
	i.observations.Import(key, &found)
}
