// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// maxRounds bounds how often one import is planned in a row: once for the
// Service, once for what needs its addresses, and twice more for a replacement.
const maxRounds = 4

// ReasonRefused is the reason of a Problem: the API server does not accept what
// an import needs.
const ReasonRefused = "Refused"

// importer keeps the imported objects in line with the exports that reach this
// cluster, its own included.
type importer struct {
	*base
	names *names
	// met are slices that had a name of ours without our label, by import: plan
	// cannot know them from the label index.
	met sync.Map // types.NamespacedName → []string
}

func setupImport(mgr ctrl.Manager, b *base) error {
	i := &importer{base: b, names: newNames()}
	members := make(chan struct{}, 1)
	all := &waking{
		ready: []<-chan struct{}{b.Peers.Listed(), b.PolicyLoaded},
		wakes: []<-chan struct{}{b.policies.listen(), members},
		list:  i.everything,
		before: func(ctx context.Context, q queue) {
			cancel := b.Peers.Subscribe(
				func(key types.NamespacedName) { q.Add(request(key)) },
				func(model.ClusterID) { kick(members) },
			)
			context.AfterFunc(ctx, cancel)
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
	slices, err := listSlices(ctx, i.client, client.HasLabels{model.LabelServiceName})
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
	return keys
}

// Reconcile brings one import up to date.
func (i *importer) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	local, err := i.readExport(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read the export %s: %w", req, err)
	}
	in, found := i.resolve(ctx, local)
	if !i.isDestination(local.namespace) {
		found.resolved = nil
		i.tell(req.NamespacedName, found)
		return reconcile.Result{}, nil
	}
	if in.Current, err = i.current(ctx, req.NamespacedName); err != nil {
		return reconcile.Result{}, fmt.Errorf("read the import %s: %w", req, err)
	}
	planned, err := i.bring(ctx, &in)
	found.problems, found.stands = planned.Problems, planned.DerivedName != ""
	class := apply.ClassOf(err)
	if err == nil || class == apply.Refused {
		i.tell(req.NamespacedName, found)
	}
	if err != nil {
		i.remember(req.NamespacedName, err)
		return i.retry(ctx, req, err)
	}
	i.settled(req)
	return reconcile.Result{}, nil
}

// bring plans and applies until nothing is outstanding.
func (i *importer) bring(ctx context.Context, in *plan.ImportInput) (plan.ImportPlan, error) {
	var planned plan.ImportPlan
	for range maxRounds {
		i.names.choose(in.Key, func(taken []string) string {
			in.Taken = taken
			planned = plan.Import(*in)
			return planned.DerivedName
		})
		applied, err := i.applier.Apply(ctx, planned.Actions)
		if err != nil {
			var failed *apply.Error
			if errors.As(err, &failed) && failed.Class == apply.Refused {
				planned.Problems = append(planned.Problems, model.Problem{Reason: ReasonRefused, Message: err.Error()})
			}
			return planned, err
		}
		if !planned.AwaitsService || len(planned.Actions) == 0 {
			return planned, nil
		}
		fold(&in.Current, planned.Actions, applied)
	}
	return planned, nil // the next event goes on from here
}

// resolve merges the exports that reach this cluster.
func (i *importer) resolve(ctx context.Context, local *localExport) (plan.ImportInput, imported) {
	in := plan.ImportInput{Key: local.key, Self: i.Self, Sources: map[model.ClusterID][]*discoveryv1.EndpointSlice{}}
	for _, m := range i.Peers.Members() {
		if !m.Synced {
			in.Unread = append(in.Unread, m.ID)
		}
	}
	exports := i.Peers.Exports(local.key)
	for _, e := range exports {
		in.Sources[e.Cluster] = i.Peers.Slices(e.Cluster, local.key)
	}
	found := imported{exported: local.export != nil}
	switch own, admitted := i.own(ctx, local); {
	case admitted == decision.Allowed:
		exports = append(exports, own)
		in.Sources[i.Self] = withoutHostNames(local.sources)
	case admitted == decision.NotEvaluated && local.export != nil:
		// Not known is not withdrawn: what is here of our own stays.
		in.Unread = append(in.Unread, i.Self)
	}
	in.Desired, found.conflicts = merge.Resolve(exports)
	found.resolved = in.Desired
	found.unread = in.Unread
	return in, found
}

// own is this cluster's export, and whether it counts: NotEvaluated if policy
// cannot tell, Denied also if there is nothing to export.
func (i *importer) own(ctx context.Context, local *localExport) (model.Export, decision.Outcome) {
	if local.export == nil {
		return model.Export{}, decision.Denied
	}
	export, err := exchange.LocalExport(i.Self, local.export, local.service)
	if err != nil {
		return model.Export{}, decision.Denied
	}
	return export, i.Admitter.Admit(ctx, local.export).Outcome
}

func withoutHostNames(in []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, s := range in {
		if s.AddressType != discoveryv1.AddressTypeFQDN {
			out = append(out, s)
		}
	}
	return out
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
		s, err := get[discoveryv1.EndpointSlice](ctx, i.client, types.NamespacedName{Namespace: key.Namespace, Name: name})
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
func (i *importer) tell(key types.NamespacedName, found imported) {
	if !found.exported && !found.stands && found.resolved == nil && len(found.problems) == 0 {
		i.met.Delete(key)
		i.observations.importing(key, nil)
		return
	}
	i.observations.importing(key, &found)
}

// fold puts what was just written into what is known to exist, as the cache
// will only show it some milliseconds later.
func fold(current *plan.Current, done []plan.Action, applied []plan.Object) {
	for _, action := range done {
		if action.Verb != plan.Delete {
			continue
		}
		switch o := action.Object.(type) {
		case *corev1.Service:
			current.Services = without(current.Services, o.Name)
		case *discoveryv1.EndpointSlice:
			current.Slices = without(current.Slices, o.Name)
		case *mcsv1beta1.ServiceImport:
			current.Import = nil
		}
	}
	for _, object := range applied {
		switch o := object.(type) {
		case *corev1.Service:
			current.Services = append(without(current.Services, o.Name), o)
		case *discoveryv1.EndpointSlice:
			current.Slices = append(without(current.Slices, o.Name), o)
		case *mcsv1beta1.ServiceImport:
			current.Import = o
		}
	}
}

func without[T client.Object](list []T, name string) []T {
	out := make([]T, 0, len(list))
	for _, o := range list {
		if o.GetName() != name {
			out = append(out, o)
		}
	}
	return out
}
