// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

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
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/plan"
)

// maxRounds bounds how often one import is planned in a row: once for the
// Service, once for what needs its addresses, and twice more for a replacement.
const maxRounds = 4

// waitForMembers is how long the lists of new imports wait for members that do not answer.
const waitForMembers = 10 * time.Second

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
	// sources limits how often the slices of one cluster are written.
	sources *sourceLimiter
	// large makes the writes of large slices of other clusters.
	large *largeWrites
	// creations lets each other cluster create one import at a time.
	creations creations
	// announced are the problems for which an event was written, by import.
	announced sync.Map // types.NamespacedName → string
	// refused are the sources that policies keep out, by import, as events said it.
	refused refusals
	// livenessChanges counts the changes of a member's liveness. It grows before the
	// imports of that member are listed, so that none that is being reconciled is missed.
	livenessChanges atomic.Int64
	// formsAt is from when on a list forms without the members that were not read: a
	// moment after this process became the leader, and the members were listed.
	formsAt func() time.Time
}

func setupImport(mgr ctrl.Manager, b *base) error {
	i := &importController{base: b, names: decide.NewNames(), drift: newDriftLimiter(time.Now), sources: newSourceLimiter(b.Self, time.Now, b.Registry), refused: newRefusals(),
		formsAt: sync.OnceValue(func() time.Time { return b.Clock.Now().Add(waitForMembers) })}
	i.large = newLargeWrites(b.Self, b.applier.Apply, i.drift.applied)
	all := &notify.Source{
		Required:  []<-chan struct{}{b.Peers.Listed(), b.PoliciesLoaded},
		Optional:  b.LocalClusterKnown,
		Notifiers: []*notify.Notifier{b.PoliciesChanged, b.LocalClusterChanged, &i.large.turns.come, &i.creations.turns.come},
		List:      i.everything,
		Subscribe: func(key func(types.NamespacedName), all func()) func() {
			cancel := b.subscribeMembers(key, all, func(id model.ClusterID) {
				i.livenessChanges.Add(1)
				for _, imported := range i.observations.From(id, b.concerned(id)) {
					key(imported)
				}
			})
			cancel = notify.Both(cancel, b.Peers.SubscribeNamespaces(func(name string) {
				for _, in := range i.keysIn(context.Background(), name) { // caches: it does not wait
					key(in)
				}
			}, func(model.ClusterID) {}))
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
		Watches(&corev1.Namespace{}, mapped(i.inNamespace), builder.WithPredicates(predicate.Or(namespaceLifecycle, b.identityChange(), b.importPolicyChange()))).
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
	derived, err := listCompact(ctx, i.client, client.HasLabels{model.LabelServiceName})
	if err != nil {
		return nil, err
	}
	for _, s := range derived {
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
func (i *importController) inNamespace(ctx context.Context, o client.Object) []types.NamespacedName {
	return i.keysIn(ctx, o.GetName())
}

// keysIn lists what is exported to, or imported into, the namespace.
func (i *importController) keysIn(ctx context.Context, namespace string) []types.NamespacedName {
	keys, err := i.exports(ctx, client.InNamespace(namespace))
	if err != nil {
		return nil
	}
	for _, key := range i.Peers.Keys() {
		if key.Namespace == namespace {
			keys = append(keys, key)
		}
	}
	// What is kept of a cluster that was not read is among neither.
	imports, err := notify.ListKeys(ctx, i.client, &mcsv1beta1.ServiceImportList{}, client.InNamespace(namespace))
	if err != nil {
		return keys
	}
	return append(keys, imports...)
}

// Reconcile brings one import up to date.
func (i *importController) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	before, key := i.livenessChanges.Load(), req.NamespacedName
	defer i.pass(key)
	view, err := i.view(ctx, key)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read the import %s: %w", req, err)
	}
	decided := decide.Import(view)
	if i.Prober != nil {
		i.Prober.Watch(key, decided.Probe)
	}
	if !decided.Write {
		i.forgetUnwritten(key, decided.HasNamespace)
		i.store(key, decided.Finding)
		return reconcile.Result{RequeueAfter: decided.Again}, nil
	}
	end, now := i.creations.begin(&decided.Plan)
	if !now {
		return reconcile.Result{}, nil
	}
	planned, err := i.apply(ctx, &decided.Plan, end)
	found, again := i.afterPlan(key, &decided.Finding, planned, err)
	if err == nil || apply.ClassOf(err) == apply.Refused {
		i.store(key, found)
		i.announce(key, decided.Plan.Current, planned.Problems)
		i.announceRefused(key, view.Current.Import, found.Problems)
	}
	if err == nil {
		i.announceJoined(view.Current.Import, decided.Joined)
	}
	again = earlier(again, decided.Again)
	if err != nil {
		i.rememberOccupied(key, err)
		return i.retryWithin(ctx, req, err, again)
	}
	i.succeeded(req)
	if i.livenessChanges.Load() != before {
		again = time.Millisecond
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// retryWithin is retry, but no later than what is to be decided again anyway: a hold
// ends also while the API server refuses a part of the import.
func (i *importController) retryWithin(ctx context.Context, req reconcile.Request, failed error, again time.Duration) (reconcile.Result, error) {
	result, err := i.retry(ctx, req, failed)
	if err == nil {
		result.RequeueAfter = earlier(result.RequeueAfter, again)
	}
	return result, err
}

// afterPlan is what was found of an import after it was written, and when it is to be
// reconciled again because of limits; zero if it is not.
func (i *importController) afterPlan(key types.NamespacedName, found *decide.ImportFinding, planned plan.ImportPlan, err error) (decide.ImportFinding, time.Duration) {
	contested, again := i.drift.contested(key)
	limited, soon := i.sources.limited(key)
	found.Problems = append(found.Problems, limited...)
	return found.AfterPlan(key, planned, apply.Refusals(err), contested), earlier(again, soon)
}

// pass ends a reconcile of an import: a turn that it did not take is the next one's.
func (i *importController) pass(key types.NamespacedName) {
	i.large.turns.pass(key)
	i.creations.turns.pass(key)
}

// forgetUnwritten drops what is remembered of the writes to an import that is not
// written any more, and what went with its namespace.
func (i *importController) forgetUnwritten(key types.NamespacedName, hasNamespace bool) {
	i.large.forget(key)
	if !hasNamespace {
		i.names.Release(key)
		i.refused.forget(key)
	}
}

// earlier is the shorter wait; zero is none.
func earlier(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// view reads everything that decides what one import should be.
func (i *importController) view(ctx context.Context, key types.NamespacedName) (decide.ImportView, error) {
	v := decide.ImportView{
		Self: i.Self, ComityNamespace: i.Namespace, LocalCluster: i.LocalCluster(),
		ImportDisabled: i.ImportDisabled, MaintainSelectors: i.MaintainSelectors, Takeover: i.Takeover,
		IdentityLabels: i.IdentityLabels, FormsAt: i.formsAt(), Now: i.Clock.Now(),
	}
	var err error
	if v.Local, err = i.readLocal(ctx, key); err != nil {
		return v, err
	}
	if !i.ImportDisabled {
		if v.Current, err = i.current(ctx, key); err != nil {
			return v, err
		}
	}
	v.Own = i.own(ctx, &v)
	i.readPeers(ctx, &v)
	return v, nil
}

// readPeers reads what the other clusters export.
func (i *importController) readPeers(ctx context.Context, v *decide.ImportView) {
	key := v.Local.Key
	v.Peers = ReadPeers(i.Peers, key, true)
	decide.Listed(v)
	var verdicts map[model.ClusterID]decision.Verdict
	if i.ImportAdmitter != nil && !v.ImportDisabled {
		verdicts = i.ImportAdmitter.AdmitImports(ctx, key, decide.ImportInputs(*v))
	}
	var silent, answers []model.ClusterID
	if i.Prober != nil {
		silent, answers = i.Prober.Down(key), i.Prober.Up(key)
	}
	for n := range v.Peers {
		p := &v.Peers[n]
		if verdicts != nil {
			verdict := verdicts[p.ID]
			p.Verdict = &verdict
		}
		if filter, known := i.Peers.Filter(p.ID); known {
			p.Accepted = &filter
		}
		switch {
		case slices.Contains(silent, p.ID):
			p.Probed = decide.Silent
		case slices.Contains(answers, p.ID):
			p.Probed = decide.Answers
		}
	}
}

// apply plans and applies until nothing is outstanding, and calls end with what it
// attempted. Only the name of the derived Service is chosen under the lock of the names.
func (i *importController) apply(ctx context.Context, in *plan.ImportInput, end func([]plan.Action)) (plan.ImportPlan, error) {
	var planned plan.ImportPlan
	var attempted []plan.Action
	defer func() { end(attempted) }()
	for range maxRounds {
		in.Taken = i.names.Choose(in.Key, func(taken []string) string {
			in.Taken = taken
			return plan.Name(*in)
		})
		planned = plan.Import(*in)
		ready, failed := i.large.ready(in.Key, i.drift.allowed(in.Key, planned.Actions))
		actions := i.large.begin(ctx, in, i.sources.allowed(in.Key, ready))
		attempted = append(attempted, actions...)
		applied, err := i.applier.Apply(ctx, actions)
		i.drift.applied(in, actions, applied)
		err = errors.Join(err, failed)
		if err != nil || !planned.AwaitsService || len(actions) == 0 {
			return planned, err
		}
		in.Current = in.Current.After(actions, applied)
	}
	return planned, nil // the next event continues from here
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

// store keeps what was found.
func (i *importController) store(key types.NamespacedName, found decide.ImportFinding) {
	if found.Resolved == nil && !found.Exists {
		i.occupied.Delete(key)
	}
	i.observations.Import(key, &found)
}
