// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"fmt"

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

	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/decide"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/plan"
)

// publishController keeps the exchange in line with the local ServiceExports.
type publishController struct{ *base }

func setupPublish(mgr ctrl.Manager, b *base) error {
	p := &publishController{b}
	all := &notify.Source{
		Required:  []<-chan struct{}{b.Peers.Listed(), b.PoliciesLoaded},
		Notifiers: []*notify.Notifier{b.PoliciesChanged, &b.passChanged},
		List:      p.seed,
		Subscribe: func(_ func(types.NamespacedName), all func()) func() {
			// A new member may be what a scope was waiting for.
			return b.subscribeMembers(func(types.NamespacedName) {}, all, func(model.ClusterID) {})
		},
	}
	isCopy := predicate.NewPredicateFuncs(func(o client.Object) bool {
		_, is := model.LabeledExport(o.GetLabels())
		return is
	})
	return ctrl.NewControllerManagedBy(mgr).Named("publish").
		Watches(&mcsv1beta1.ServiceExport{}, &handler.EnqueueRequestForObject{}).
		Watches(&corev1.Service{}, mapped(b.exportedService)).
		Watches(&discoveryv1.EndpointSlice{}, mapped(b.exportedSlice)).
		Watches(&corev1.Namespace{}, mapped(p.namespaceChanged), builder.WithPredicates(notInitial)).
		WatchesRawSource(watchExchange(b, &discoveryv1.EndpointSlice{}, mapped(exchangeObject), isCopy)).
		WatchesRawSource(watchExchange(b, &exchangev1alpha1.ExportRecord{}, mapped(exchangeObject))).
		WatchesRawSource(all).
		WithOptions(b.controllerOptions()).
		Complete(p)
}

// seed lists all exports, which the first pass then waits for.
func (p *publishController) seed(ctx context.Context) ([]types.NamespacedName, error) {
	keys, err := p.exports(ctx)
	keys = append(keys, p.remembered.endedKeys()...) // before the MemberRecord says that everything is published
	if err == nil && p.pass.Seed(decide.Exports, keys) {
		p.passComplete.All()
	}
	return keys, err
}

// namespaceChanged lists the exports whose scope or exchange namespaces may have
// changed.
func (p *publishController) namespaceChanged(ctx context.Context, o client.Object) []types.NamespacedName {
	var opts []client.ListOption
	if o.GetLabels()[model.LabelExchangeFrom] != string(p.Self) {
		opts = append(opts, client.InNamespace(o.GetName()))
	}
	keys, err := p.exports(ctx, opts...)
	if err != nil {
		return nil
	}
	if len(opts) == 0 {
		keys = append(keys, p.remembered.endedKeys()...)
	}
	return keys
}

// Reconcile brings the records and slice copies of one export up to date.
func (p *publishController) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	view, err := p.view(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read what is published of %s: %w", req, err)
	}
	decided := decide.Export(view)
	if view.Local.Export == nil && decided.Finding.Publication == model.PublicationPending && !decided.Retry {
		ctrl.LoggerFrom(ctx).Info("a missing export is not withdrawn", "reason", decided.Finding.Detail)
	}
	planned := plan.Publish(decided.Plan)
	err = p.write(ctx, planned)
	done := decided.IsDone(planned.Problems, err)
	if err == nil {
		p.remember(ctx, decided.Plan)
	}
	p.keep(ctx, view, decided.Finding.AfterWrite(planned.Problems, err), done, err)
	if err != nil {
		return p.retry(ctx, req, err)
	}
	p.succeeded(req)
	if !done {
		return reconcile.Result{RequeueAfter: missingRetry}, nil
	}
	return reconcile.Result{RequeueAfter: decided.Again}, nil
}

// write makes the writes in each exchange namespace whatever came of those in the
// others, so that one that refuses a record keeps no other from being published or,
// above all, withdrawn. The error is that of a withdrawal, or the first one.
func (p *publishController) write(ctx context.Context, planned plan.PublishPlan) error {
	unpublished := p.writeAll(ctx, planned.Publish)
	if err := p.writeAll(ctx, planned.Withdraw); err != nil || unpublished != nil {
		return cmp.Or(err, unpublished)
	}
	return p.writeAll(ctx, planned.Leave)
}

func (p *publishController) writeAll(ctx context.Context, lists [][]plan.Action) error {
	var first error
	for _, actions := range lists {
		if _, err := p.publishing.Apply(ctx, actions); first == nil {
			first = err
		}
	}
	return first
}

// view reads everything that decides how one export is published.
func (p *publishController) view(ctx context.Context, key types.NamespacedName) (decide.ExportView, error) {
	v := decide.ExportView{
		Self: p.Self, MaintainSelectors: p.MaintainSelectors, IdentityLabels: p.IdentityLabels,
		Members: p.Peers.Members(), Now: p.Clock.Now(),
	}
	var err error
	if v.Local, err = p.readLocal(ctx, key); err != nil {
		return v, err
	}
	if v.Records, err = p.records(ctx, key); err != nil {
		return v, err
	}
	if decide.NeedsReports(v) {
		v.Reports = p.Peers.Reports(key)
	}
	if v.Copies, err = listSlices(ctx, p.Exchange.Client, client.MatchingFields{indexExport: key.String()}); err != nil {
		return v, err
	}
	v.Unavailable = map[string]string{}
	for _, namespace := range decide.ExchangeNamespaces(p.Self, v.Local, v.Members) {
		v.Unavailable[namespace] = p.Exchange.Problem(ctx, namespace)
	}
	p.readLost(ctx, &v)
	if v.Duplicate, err = p.duplicate(ctx); err != nil {
		return v, fmt.Errorf("read the MemberRecord: %w", err)
	}
	if decide.NeedsDefinition(v) {
		v.Definition = p.definition.read(ctx, key)
	}
	// A restore that comes after what was read above must not go unnoticed.
	v.Restore = p.restore(ctx, v)
	if len(v.Lost) > 0 {
		p.readLost(ctx, &v) // nothing is remembered any more after a restore
	}
	return v, nil
}

// records are what the exchange holds of an export.
func (b *base) records(ctx context.Context, key types.NamespacedName) ([]*exchangev1alpha1.ExportRecord, error) {
	var records exchangev1alpha1.ExportRecordList
	name := model.RecordName(key.Namespace, key.Name)
	if err := b.Exchange.Client.List(ctx, &records, client.MatchingFields{indexExport: name}); err != nil {
		return nil, err
	}
	return pointers(records.Items), nil
}

// keep keeps what was found, and counts the attempt for the first pass.
func (p *publishController) keep(ctx context.Context, view decide.ExportView, found decide.ExportFinding, done bool, err error) {
	local := view.Local
	if ctx.Err() != nil {
		return
	}
	if err == nil || apply.ClassOf(err) != apply.Conflict && apply.ClassOf(err) != apply.NameTaken {
		stored := &found
		if local.Export == nil {
			p.Admitter.Forget(local.Key)
			if found.Publication == model.PublicationNone {
				stored = nil
			}
		}
		p.observations.Publish(local.Key, stored)
	}
	if p.pass.Attempted(decide.Exports, local.Key, local.Export == nil && len(view.Lost) == 0 || done) {
		p.passComplete.All()
	}
}
