// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/comity-mcs/comity/sync/decide"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/plan"
)

// importRecordController reports to the other members how this cluster imports
// their exports: one ImportRecord for each import and source cluster.
type importRecordController struct {
	*base
	// meanwhile is how many reports are made while imports wait.
	meanwhile *rate.Limiter
}

func setupImportRecords(mgr ctrl.Manager, b *base) error {
	r := &importRecordController{b, rate.NewLimiter(rate.Limit(b.Workers), b.Workers)}
	all := &notify.Source{
		Required:  []<-chan struct{}{b.Peers.Listed()},
		Notifiers: []*notify.Notifier{&b.observations.ImportChanged, b.Exchange.Changed, &b.claimChanged},
		First:     b.membersRead,
		List:      r.everything,
		Subscribe: func(changed func(notify.Change)) func() {
			return b.Peers.Subscribe(func(c model.MemberChange) {
				if c.What == model.ExportChanged || c.What == model.MemberOther { // no report says whether its reader is alive
					changed(fromMember(c))
				}
			})
		},
	}
	options := b.controllerOptions()
	options.NewQueue = notify.NewPatientQueue(b.Workers, 1) // the states in between of an import that keeps changing are not reported
	b.reportQueue = shareQueue(&options, "import-records")
	return ctrl.NewControllerManagedBy(mgr).Named("import-records").
		Watches(&corev1.Namespace{}, mapped(r.inNamespace), builder.WithPredicates(exchangeLifecycle)).
		WatchesRawSource(b.Exchange.Watch(&exchangev1alpha1.ImportRecord{}, derived(keysOf), notify.NotInitial)).
		WatchesRawSource(all).
		WithOptions(options).
		Complete(r)
}

// exchangeLifecycle passes events that decide whether there is a namespace to
// import into, or to report in. What exists at start is listed.
var exchangeLifecycle = lifecycle(func(before, now client.Object) bool {
	return differs(before.GetLabels(), now.GetLabels(), model.LabelExchangeFrom)
})

// inNamespace lists the keys whose report may be different after a change of a
// namespace.
func (r *importRecordController) inNamespace(_ context.Context, o client.Object) []types.NamespacedName {
	if o.GetLabels()[model.LabelExchangeFrom] == string(r.Self) {
		return r.Peers.Keys()
	}
	return r.peerKeysIn(o.GetName())
}

// everything lists what the members export, and what was reported of exports that
// are gone.
func (r *importRecordController) everything(ctx context.Context) ([]types.NamespacedName, error) {
	keys := r.Peers.Keys()
	// It fails where the cache of a hub was not read yet: Exchange.Changed lists again.
	_ = eachListed(ctx, r.Exchange.Client, &exchangev1alpha1.ImportRecordList{}, func(o client.Object) { keys = append(keys, keysOf(ctx, o)...) })
	return keys, nil
}

// yield lets imports be made first, because no traffic waits for reports: while imports wait,
// as many reports as there are workers are made in a second. The others wait in the queue.
// It reports whether it waited.
func (r *importRecordController) yield(ctx context.Context) (waited bool, err error) {
	if r.importQueue.Unfinished() == 0 {
		return false, nil
	}
	return true, r.meanwhile.Wait(ctx)
}

// Reconcile brings the reports about one key up to date.
func (r *importRecordController) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	actions, problems, err := r.plan(ctx, req.NamespacedName)
	if err == nil && len(actions) > 0 {
		var waited bool
		if waited, err = r.yield(ctx); waited && err == nil {
			actions, problems, err = r.plan(ctx, req.NamespacedName)
		}
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read what to report of %s: %w", req, err)
	}
	for _, problem := range problems {
		ctrl.LoggerFrom(ctx).Error(errors.New(problem.Message), "an import cannot be reported", "reason", problem.Reason)
	}
	lists := slices.Collect(slices.Chunk(actions, 1)) // each is for another reader, and none waits for the others
	if err := r.writeAll(ctx, lists); err != nil {
		return r.retry(ctx, req, err)
	}
	r.succeeded(req)
	return reconcile.Result{}, nil
}

// plan is what to write of one key, and why something of it cannot be reported.
func (r *importRecordController) plan(ctx context.Context, key types.NamespacedName) ([]plan.Action, []model.Problem, error) {
	view, err := r.view(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	decided := decide.Report(view)
	actions, problems := plan.Reports(key, decided.Desired, decided.Current, r.holdsPlace())
	return actions, problems, nil
}

// view reads everything that decides what is reported of one key.
func (r *importRecordController) view(ctx context.Context, key types.NamespacedName) (decide.ReportView, error) {
	v := decide.ReportView{
		Key: key, Self: r.Self, ImportDisabled: r.ImportDisabled, Now: r.Clock.Now(),
		Unavailable: map[string]string{},
	}
	var list exchangev1alpha1.ImportRecordList
	if err := r.Exchange.Client.List(ctx, &list, client.MatchingFields{indexExport: model.RecordName(key.Namespace, key.Name)}); err != nil {
		return v, fmt.Errorf("list ImportRecords: %w", err)
	}
	v.Records = slices.DeleteFunc(pointers(list.Items), func(o *exchangev1alpha1.ImportRecord) bool { return !r.isOwnNamespace(ctx, o) })
	namespace, err := getNamespace(ctx, r.client, key.Namespace)
	if err != nil {
		return v, err
	}
	v.Namespace = decide.Namespace(key.Namespace, namespace, r.Namespace)
	v.Observation = r.observations.OfImport(key)
	v.Peers = r.Peers.Read(key, len(v.Observation.Problems) > 0)
	for _, p := range v.Peers {
		namespace := model.ScopedExchangeNamespace(r.Self, p.ID)
		v.Unavailable[namespace] = r.problem(ctx, namespace)
	}
	return v, nil
}

// keysOf is the key that a record is about.
func keysOf(_ context.Context, record client.Object) []types.NamespacedName {
	return keyIf(model.RecordKey(record.GetName()))
}
