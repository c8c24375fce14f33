// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/decide"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/plan"
)

// indexReport finds the ImportRecords of one name in all exchange namespaces.
const indexReport = "comity.report"

const (
	// reportInterval is how often the ImportRecords of one key are written at most:
	// the states in between of an import that keeps changing are not reported.
	reportInterval = time.Second
	// reportWorkers are few, because no traffic waits for a report.
	reportWorkers = 4
	// firstReportRetry bounds the back-off of a report from below.
	firstReportRetry = 100 * time.Millisecond
	// maxReported is how many times of writes are kept before old ones are dropped.
	maxReported = 4096
)

// importRecordController reports to the other members how this cluster imports
// their exports: one ImportRecord for each import and source cluster.
type importRecordController struct {
	*base
	applier *apply.Applier
	retries workqueue.TypedRateLimiter[reconcile.Request]

	mu    sync.Mutex
	wrote map[types.NamespacedName]time.Time // the last writes, within reportInterval
}

func setupImportRecords(mgr ctrl.Manager, b *base) error {
	r := newImportRecordController(b)
	r.applier = b.applier.Through(b.Exchange.Client)
	name := func(o client.Object) []string { return []string{o.GetName()} }
	if err := b.Exchange.Cache.IndexField(context.Background(), &exchangev1alpha1.ImportRecord{}, indexReport, name); err != nil {
		return err
	}
	all := &notify.Source{
		Required:  []<-chan struct{}{b.Peers.Listed()},
		Notifiers: []*notify.Notifier{&b.observations.Changed, b.Exchange.Changed, &b.claimChanged},
		List:      r.everything,
		Subscribe: func(key func(types.NamespacedName), all func()) func() {
			return b.Peers.Subscribe(key, func(model.ClusterID) { all() })
		},
	}
	options := b.controllerOptions()
	options.MaxConcurrentReconciles = reportWorkers
	options.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstReportRetry, lastRetry)
	return ctrl.NewControllerManagedBy(mgr).Named("import-records").
		Watches(&corev1.Namespace{}, mapped(r.inNamespace), builder.WithPredicates(exchangeLifecycle)).
		WatchesRawSource(watchExchange(b, &exchangev1alpha1.ImportRecord{}, mapped(keysOf))).
		WatchesRawSource(all).
		WithOptions(options).
		Complete(r)
}

func newImportRecordController(b *base) *importRecordController {
	return &importRecordController{
		base: b, wrote: map[types.NamespacedName]time.Time{},
		retries: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstReportRetry, lastRetry),
	}
}

// exchangeLifecycle passes events that decide whether there is a namespace to
// import into, or to report in. What exists at start is listed.
var exchangeLifecycle = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return terminating(e.ObjectOld) != terminating(e.ObjectNew) ||
			e.ObjectOld.GetLabels()[model.LabelExchangeFrom] != e.ObjectNew.GetLabels()[model.LabelExchangeFrom]
	},
}

// inNamespace lists the keys whose report may be different after a change of a
// namespace.
func (r *importRecordController) inNamespace(_ context.Context, o client.Object) []types.NamespacedName {
	all := r.Peers.Keys()
	if o.GetLabels()[model.LabelExchangeFrom] == string(r.Self) {
		return all
	}
	var out []types.NamespacedName
	for _, key := range all {
		if key.Namespace == o.GetName() {
			out = append(out, key)
		}
	}
	return out
}

// everything lists what the members export, and what was reported of exports that
// are gone.
func (r *importRecordController) everything(ctx context.Context) ([]types.NamespacedName, error) {
	keys := r.Peers.Keys()
	var records exchangev1alpha1.ImportRecordList
	if err := r.Exchange.Client.List(ctx, &records, client.UnsafeDisableDeepCopy); err != nil {
		// The cache of a hub that does not answer yet: the events of what it holds
		// enqueue the rest.
		return keys, nil //nolint:nilerr // see above
	}
	for i := range records.Items {
		keys = append(keys, keysOf(ctx, &records.Items[i])...)
	}
	return keys, nil
}

// Reconcile brings the reports about one key up to date.
func (r *importRecordController) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if wait := r.wait(req.NamespacedName); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	view, err := r.view(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read what to report of %s: %w", req, err)
	}
	decided := decide.Report(view)
	planned := plan.Reports(req.NamespacedName, decided.Desired, decided.Current, r.claim.isHeldBy(r.ClusterUID))
	for _, problem := range planned.Problems {
		ctrl.LoggerFrom(ctx).Info("an import cannot be reported", "reason", problem.Reason, "message", problem.Message)
	}
	if len(planned.Actions) > 0 {
		r.note(req.NamespacedName)
	}
	return r.write(ctx, req, planned.Actions)
}

// view reads everything that decides what is reported of one key.
func (r *importRecordController) view(ctx context.Context, key types.NamespacedName) (decide.ReportView, error) {
	v := decide.ReportView{
		Key: key, Self: r.Self, ImportDisabled: r.ImportDisabled, Now: r.Clock.Now(),
		Members: r.Peers.Members(), Removed: r.Peers.Removed(), Exports: r.Peers.Exports(key), Refusals: r.Peers.Refusals(key),
		PartlyImported: map[model.ClusterID]bool{}, Unavailable: map[string]string{},
	}
	var list exchangev1alpha1.ImportRecordList
	if err := r.Exchange.Client.List(ctx, &list, client.MatchingFields{indexReport: model.RecordName(key.Namespace, key.Name)}); err != nil {
		return v, fmt.Errorf("list ImportRecords: %w", err)
	}
	v.Records = slices.DeleteFunc(pointers(list.Items), func(o *exchangev1alpha1.ImportRecord) bool { return !r.isOwnNamespace(ctx, o) })
	namespace, err := get[corev1.Namespace](ctx, r.client, types.NamespacedName{Name: key.Namespace})
	if err != nil {
		return v, fmt.Errorf("read Namespace %s: %w", key.Namespace, err)
	}
	v.Namespace = decide.Namespace(key.Namespace, namespace, r.Namespace)
	if seen, ok := r.observations.Get(key); ok {
		v.Observation = &seen
		for _, p := range seen.Problems {
			if p.Cluster != "" {
				v.PartlyImported[p.Cluster] = r.imports(p.Cluster, key)
			}
		}
	}
	for _, m := range v.Members {
		r.readProblem(ctx, &v, model.ScopedExchangeNamespace(r.Self, m.ID))
	}
	for _, record := range v.Records {
		r.readProblem(ctx, &v, record.Namespace)
	}
	return v, nil
}

func (r *importRecordController) readProblem(ctx context.Context, v *decide.ReportView, namespace string) {
	if _, read := v.Unavailable[namespace]; !read {
		v.Unavailable[namespace] = r.problem(ctx, namespace)
	}
}

// imports reports whether an endpoint of the cluster may be imported.
func (r *importRecordController) imports(cluster model.ClusterID, key types.NamespacedName) bool {
	copies, _ := r.Peers.Slices(cluster, key)
	return slices.ContainsFunc(copies, func(s *discoveryv1.EndpointSlice) bool { return len(s.Endpoints) > 0 })
}

// write makes the writes one by one: each is for another reader, and none waits
// for the others.
func (r *importRecordController) write(ctx context.Context, req reconcile.Request, actions []plan.Action) (reconcile.Result, error) {
	log := ctrl.LoggerFrom(ctx)
	var unavailable error
	again := false
	for _, action := range actions {
		_, err := r.applier.Apply(ctx, []plan.Action{action})
		switch {
		case err == nil, ctx.Err() != nil: // shutting down is no failure
		case apply.ClassOf(err) == apply.Unavailable:
			unavailable = err
		case apply.ClassOf(err) == apply.Refused:
			log.Info("the API server refuses a report", "reason", err.Error())
			again = true
		default: // the cache is behind, or the namespace is terminating; both pass
			log.V(1).Info("a report could not be written, retrying", "reason", err.Error())
			again = true
		}
	}
	switch {
	case unavailable != nil:
		return reconcile.Result{}, unavailable
	case again:
		return reconcile.Result{RequeueAfter: max(reportInterval, r.retries.When(req))}, nil
	}
	r.retries.Forget(req)
	return reconcile.Result{}, nil
}

// wait is how long the next write of key has to wait.
func (r *importRecordController) wait(key types.NamespacedName) time.Duration {
	now := r.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	last, has := r.wrote[key]
	if !has {
		return 0
	}
	// A clock that was set back must not stop reports.
	if since := now.Sub(last); since >= 0 && since < reportInterval {
		return reportInterval - since
	}
	delete(r.wrote, key)
	return 0
}

// note remembers that key is written now, and forgets the writes that are older
// than reportInterval once there are many.
func (r *importRecordController) note(key types.NamespacedName) {
	now := r.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.wrote) >= maxReported {
		for other, last := range r.wrote {
			if now.Sub(last) >= reportInterval {
				delete(r.wrote, other)
			}
		}
	}
	r.wrote[key] = now
}

// keysOf is the key that a record is about.
func keysOf(_ context.Context, record client.Object) []types.NamespacedName {
	if key, ok := model.RecordKey(record.GetName()); ok {
		return []types.NamespacedName{key}
	}
	return nil
}
