// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package status reports to users what happened to their exports and imports.
//
// It takes what the sync loop observed and the answer of the policies, reads the
// objects concerned, and writes conditions, source clusters and events: on the
// leader only, by server-side apply on the status subresource, only fields that
// Comity owns, and only on change. What it writes is decided in status/compute; how
// often is limited in write.go. It follows KEP-1645. ServiceImports that Comity
// did not make are left alone, or get only what no other field owner sets
// (Options.ForeignImports).
package status

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
)

// Observations has the results of the sync loop.
type Observations interface {
	// Observe is the last observation of a namespace/name; false if the loop
	// has not worked on it since it started.
	Observe(key types.NamespacedName) (model.Observation, bool)
	// Changed notifies of namespace/names for which Observe may return something else.
	Changed() *notify.Notifier
	// CaughtUp are closed once the loop has worked on everything that stood at the start.
	CaughtUp() []<-chan struct{}
	// Destinations are those of one local export, sorted by cluster, without
	// this cluster; false as long as it is not known where the export goes.
	Destinations(key types.NamespacedName) ([]model.Report, bool)
	// DestinationsChanged notifies of exports for which Destinations may return
	// something else though Changed does not notify of them.
	DestinationsChanged() *notify.Notifier
}

// Verdicts has the answer of the policies on a stored export.
type Verdicts interface {
	Admit(ctx context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict
}

// Options configure the status controller. Fields without a default are required.
type Options struct {
	Observations Observations
	Verdicts     Verdicts
	// ForeignImports lets Comity add what it knows to ServiceImports that another
	// implementation made, on fields without another owner: for clusters in which
	// Comity does not import. Otherwise they are left alone.
	ForeignImports bool
	// PoliciesChanged notifies of exports for which the policies may decide
	// something else.
	PoliciesChanged *notify.Notifier
	// Interval is the least time between two writes of one object's status that
	// other clusters caused; default 5 s.
	Interval time.Duration
	// FirstStatus is until what age of an export its first status waits for Observations, so
	// that it is written once, and how long after the start every status waits for them;
	// default 5 s.
	FirstStatus time.Duration
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// workers is how many objects of each kind are worked on at once.
const workers = 4

// burst is how many urgent writes one object may have without a pause: an
// export or an import takes two to four from its creation until it works.
const burst = 5

// logReason is the log key of a condition's reason.
const logReason = "reason"

// SetupWithManager adds the reconcilers for ServiceExports and ServiceImports
// to mgr. The manager's cache must hold both, and Services, Namespaces and
// EndpointSlices, with manager, operation and subresource of managedFields.
//
// The agent needs: get, list and watch on all of these, patch on
// serviceexports/status and serviceimports/status, create and patch on events
// (events.k8s.io).
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	o.Interval = cmp.Or(o.Interval, 5*time.Second)
	o.FirstStatus = cmp.Or(o.FirstStatus, 5*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	r := reconciler{
		client: mgr.GetClient(), recorder: mgr.GetEventRecorder(model.FieldOwner), Options: o, limiter: newRateLimiter(o.Interval, burst), foreign: lru.New(maxForeign),
	}
	observed := make(chan struct{})
	return errors.Join(
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			defer close(observed)
			ctx, cancel := context.WithTimeout(ctx, o.FirstStatus)
			defer cancel()
			for _, caughtUp := range o.Observations.CaughtUp() {
				notify.Await(ctx, caughtUp)
			}
			return nil
		})),
		r.setupExports(mgr, observed),
		r.setupImports(mgr, observed),
	)
}

// controller computes the status of what changed, and of all that it lists.
func (r reconciler) controller(mgr ctrl.Manager, name string, changed *notify.Source) *builder.Builder {
	return ctrl.NewControllerManagedBy(mgr).
		Named(name).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, NewQueue: changed.Queue.Open}).
		WatchesRawSource(changed)
}

// sliceIndex finds derived EndpointSlices by the import that they belong to.
const sliceIndex = "comity.dev/status-import"

func (r reconciler) setupExports(mgr ctrl.Manager, observed <-chan struct{}) error {
	r.kind = mcsv1beta1.ServiceExportKindName
	changed := &notify.Source{
		Queue:     notify.NewPatientQueue(workers, notify.ChangesAtOnce),
		Required:  []<-chan struct{}{observed},
		Subscribe: []notify.Subscribe{r.Observations.Changed().Subscribe, r.Observations.DestinationsChanged().Subscribe, r.PoliciesChanged.Subscribe},
		List:      func(ctx context.Context) ([]types.NamespacedName, error) { return r.exports(ctx, "") },
	}
	return r.controller(mgr, "status-serviceexport", changed).
		Watches(&mcsv1beta1.ServiceExport{}, changed.ByUsers(notify.Itself), builder.WithPredicates(notify.WithoutStatus)).
		Watches(&mcsv1beta1.ServiceExport{}, changed.ByComity(notify.Itself)).
		Watches(&corev1.Service{}, changed.ByUsers(ofUser)).
		Watches(&corev1.Namespace{}, changed.ByUsers(func(ctx context.Context, namespace client.Object) []types.NamespacedName {
			keys, _ := r.exports(ctx, namespace.GetName()) // the cache fails only before it has synced, and then everything is new
			return keys
		}), builder.WithPredicates(predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Complete(reconcile.Func(r.reconcileExport))
}

// exports lists the ServiceExports of a namespace, of all if it is empty.
func (r reconciler) exports(ctx context.Context, namespace string) ([]types.NamespacedName, error) {
	return notify.ListKeys(ctx, r.client, &mcsv1beta1.ServiceExportList{}, notify.Itself, client.InNamespace(namespace))
}

func (r reconciler) setupImports(mgr ctrl.Manager, observed <-chan struct{}) error {
	r.kind = mcsv1beta1.ServiceImportKindName
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &discoveryv1.EndpointSlice{}, sliceIndex, func(object client.Object) []string {
		if name := object.GetLabels()[model.LabelServiceName]; name != "" && model.IsManaged(object) {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		return err
	}
	changed := &notify.Source{
		Queue:     notify.NewPatientQueue(workers, notify.ChangesAtOnce),
		Required:  []<-chan struct{}{observed},
		Subscribe: []notify.Subscribe{r.Observations.Changed().Subscribe},
		List: func(ctx context.Context) ([]types.NamespacedName, error) {
			return notify.ListKeys(ctx, r.client, &mcsv1beta1.ServiceImportList{}, notify.Itself)
		},
	}
	byLabel := changed.ByComity(importOf)
	return r.controller(mgr, "status-serviceimport", changed).
		Watches(&mcsv1beta1.ServiceImport{}, changed.ByComity(notify.Itself)).
		Watches(&corev1.Service{}, byLabel).
		// Only whether there are slices and endpoints matters, not which.
		Watches(&discoveryv1.EndpointSlice{}, byLabel, builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool {
				return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) || isEmpty(e.ObjectOld) != isEmpty(e.ObjectNew)
			},
		})).
		Complete(reconcile.Func(r.reconcileImport))
}

// ofUser is the key of a Service that may be exported.
func ofUser(ctx context.Context, service client.Object) []types.NamespacedName {
	if model.IsManaged(service) {
		return nil
	}
	return notify.Itself(ctx, service)
}

// importOf is the import to which a derived object belongs by its label.
func importOf(_ context.Context, object client.Object) []types.NamespacedName {
	name := object.GetLabels()[model.LabelServiceName]
	if name == "" {
		return nil
	}
	return []types.NamespacedName{{Namespace: object.GetNamespace(), Name: name}}
}

// isEmpty reports whether an EndpointSlice has no endpoint.
func isEmpty(object client.Object) bool {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	return ok && len(slice.Endpoints) == 0
}
