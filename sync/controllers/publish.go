// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
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
		Queue:    b.publishQueue,
		Required: []<-chan struct{}{b.Peers.Listed(), b.PoliciesLoaded},
		First:    b.membersRead,
		List:     p.seed,
		// A new member may be what a scope was waiting for.
		Subscribe: []notify.Subscribe{b.PoliciesChanged.Subscribe, b.passChanged.Subscribe, b.onMembers(model.MemberOther)},
	}
	// The scope or the exchange namespaces of an export may have changed.
	ofNamespace := func(ctx context.Context, o client.Object) []types.NamespacedName {
		keys, _ := p.exports(ctx, p.concerned(o)) // a cache: it does not fail
		return keys
	}
	return b.exportsController(mgr, "publish", all, ofNamespace).
		WatchesRawSource(b.Exchange.Watch(&discoveryv1.EndpointSlice{}, all.ByComity(copiedSlice))).
		WatchesRawSource(b.Exchange.Watch(&exchangev1alpha1.ExportRecord{}, all.ByComity(keysOf))).
		Complete(p)
}

// seed lists all exports, and all records and copies of slices, whose ServiceExports may be
// gone. The first pass then waits for them.
func (p *publishController) seed(ctx context.Context) ([]types.NamespacedName, error) {
	keys, err := p.exports(ctx, "")
	if err != nil {
		return nil, err
	}
	// It fails where the cache of a hub was not read yet: Exchange.Changed lists again.
	recorded, _ := notify.ListKeys(ctx, p.Exchange.Client, &exchangev1alpha1.ExportRecordList{}, keysOf)
	copied, _ := notify.ListKeys(ctx, p.Exchange.Client, &discoveryv1.EndpointSliceList{}, copiedSlice, client.HasLabels{model.LabelExportName})
	keys = slices.Concat(keys, recorded, copied)
	p.passed(p.pass.Seed(decide.Exports, keys))
	return keys, nil
}

// Reconcile brings the records and slice copies of one export up to date.
func (p *publishController) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	view, err := p.view(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read what is published of %s: %w", req, err)
	}
	decided := decide.Export(view)
	if decided.NeedsLive {
		view.Live = p.readLive(ctx, view.Local)
		decided = decide.Export(view)
	}
	if decided.IsNewlyLost() {
		ctrl.LoggerFrom(ctx).Error(errors.New(decided.Finding.Detail), "a missing export is not withdrawn", "reason", decided.Finding.State)
	}
	planned := plan.Publish(decided.Plan)
	// The writes in each exchange namespace are made even if those in the others fail, so
	// that one that refuses a record keeps no other from being published or, above all,
	// withdrawn. The error is that of a withdrawal, or the first one.
	unpublished := p.writeAll(ctx, planned.Publish)
	if err = cmp.Or(p.writeAll(ctx, planned.Withdraw), unpublished); err == nil {
		err = p.writeAll(ctx, planned.Leave)
	}
	found, done := decided.AfterWrite(planned.Problems, err)
	p.keep(ctx, view, found, done, err)
	result, failed := p.retry(ctx, req, err) // without an error, the back-off ends
	if err != nil {
		return result, failed
	}
	if !done {
		return reconcile.Result{RequeueAfter: p.Retry}, nil
	}
	p.settled("export", p.publishQueue, req, len(planned.Publish)+len(planned.Withdraw)+len(planned.Leave) > 0)
	return reconcile.Result{RequeueAfter: decided.Again}, nil
}

// view reads everything that decides how one export is published.
func (p *publishController) view(ctx context.Context, key types.NamespacedName) (decide.ExportView, error) {
	v := decide.ExportView{
		Self: p.Self, MaintainSelectors: p.MaintainSelectors, IdentityLabels: p.IdentityLabels,
		Members: p.Peers.Members(), Removed: p.Peers.Removed(), Own: p.holdsPlace(), Now: p.Clock.Now(),
	}
	var err error
	if v.Local, err = p.readLocal(ctx, key); err != nil {
		return v, err
	}
	if v.Records, err = p.records(ctx, key); err != nil {
		return v, err
	}
	if slices.ContainsFunc(v.Records, decide.IsEnded) {
		v.Reports = p.Peers.Reports(key)
		if v.CollectBefore, err = p.firstStatement(ctx); err != nil {
			return v, err
		}
	}
	v.Unavailable = map[string]string{}
	for _, namespace := range decide.ExchangeNamespaces(v) {
		v.Unavailable[namespace] = p.Exchange.Problem(ctx, namespace)
	}
	v.Copies, err = p.copies(ctx, v)
	v.Duplicate = p.duplicate(ctx)
	return v, err
}

// records are what the exchange holds of an export. They are found by name, because a
// restore may have changed their labels.
func (b *base) records(ctx context.Context, key types.NamespacedName) ([]*exchangev1alpha1.ExportRecord, error) {
	var records exchangev1alpha1.ExportRecordList
	name := model.RecordName(key.Namespace, key.Name)
	if err := b.Exchange.Client.List(ctx, &records, client.MatchingFields{indexExport: name}); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pointers(records.Items), func(r *exchangev1alpha1.ExportRecord) bool { return !b.isOwnNamespace(ctx, r) }), nil
}

// isOwnNamespace reports whether an object is in an exchange namespace of this cluster, or
// was applied by Comity: in its own API server, users may create records elsewhere.
func (b *base) isOwnNamespace(ctx context.Context, o client.Object) bool {
	if b.hub || model.IsManaged(o) || o.GetNamespace() == model.ExchangeNamespace(b.Self) {
		return true
	}
	namespace, err := getNamespace(ctx, b.client, o.GetNamespace())
	return err == nil && namespace != nil && namespace.Labels[model.LabelExchangeFrom] == string(b.Self)
}

// copies are the copies of the slices of an export: those with its labels, and those that
// have the name of a copy, whose labels a restore may have changed.
func (p *publishController) copies(ctx context.Context, v decide.ExportView) ([]*discoveryv1.EndpointSlice, error) {
	labeled, err := listSlices(ctx, p.Exchange.Client, client.MatchingFields{indexExport: v.Local.Key.String()})
	if err != nil {
		return nil, err
	}
	named := map[types.NamespacedName]bool{}
	add := func(namespace, source string) {
		named[types.NamespacedName{Namespace: namespace, Name: model.RecordSliceName(v.Local.Key.Namespace, source)}] = true
	}
	for _, record := range v.Records {
		for _, source := range record.Spec.Slices {
			add(record.Namespace, source)
		}
	}
	for namespace, problem := range v.Unavailable {
		for _, source := range v.Local.Slices {
			if problem == "" {
				add(namespace, source.Name)
			}
		}
	}
	out := slices.DeleteFunc(labeled, func(s *discoveryv1.EndpointSlice) bool {
		delete(named, client.ObjectKeyFromObject(s))
		return !p.isOwnNamespace(ctx, s)
	})
	for at := range named {
		slice, err := getSlice(ctx, p.Exchange.Client, at)
		if err != nil {
			return nil, err
		}
		if slice != nil {
			out = append(out, slice)
		}
	}
	return out, nil
}

// keep keeps what was found, and counts the attempt for the first pass.
func (p *publishController) keep(ctx context.Context, view decide.ExportView, found decide.ExportFinding, done bool, err error) {
	local := view.Local
	if ctx.Err() != nil {
		return
	}
	if apply.ClassOf(err) != apply.Conflict {
		stored := &found
		if local.Export == nil {
			p.Admitter.Forget(local.Key)
			if found.Publication == model.PublicationNone {
				stored = nil
			}
		}
		p.observations.Publish(local.Key, stored)
	}
	p.passed(p.pass.Attempted(decide.Exports, local.Key, done))
}

// statements knows where the statements of ended exports begin that are kept. They are
// counted once a minute: each of thousands is examined every ten minutes.
type statements struct {
	mu    sync.Mutex
	first string // in the order of decide.StatementOrder
	at    time.Time
}

// firstStatement is the oldest one of those that may be kept; empty if all may.
func (b *base) firstStatement(ctx context.Context) (string, error) {
	s, now := &b.statements, b.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now.Sub(s.at); age >= 0 && age < time.Minute {
		return s.first, nil
	}
	var order []string
	err := notify.EachListed(ctx, b.Exchange.Client, &exchangev1alpha1.ExportRecordList{}, func(o client.Object) {
		if record, is := o.(*exchangev1alpha1.ExportRecord); is && decide.IsEnded(record) {
			order = append(order, decide.StatementOrder(record))
		}
	})
	if err != nil {
		return "", err
	}
	s.first, s.at = "", now
	if surplus := len(order) - decide.MaxEnded; surplus > 0 {
		slices.Sort(order)
		s.first = order[surplus]
	}
	return s.first, nil
}

// Published reports which exports are published in the exchange. It works on every replica.
type Published struct {
	// Records reads ExportRecords from the cache of the exchange, with the index that
	// SetupWithManager adds.
	Records client.Reader
	// Read says why the exchange was not read yet; nil, as the field may be, if it was.
	Read func() error
}

// Of is what the record of exactly this export says, in any exchange namespace. It fails
// where that is not known (yet).
func (p Published) Of(ctx context.Context, export *mcsv1beta1.ServiceExport) (decision.Publication, error) {
	if p.Read != nil {
		if err := p.Read(); err != nil {
			return decision.Publication{}, err
		}
	}
	var records exchangev1alpha1.ExportRecordList
	name := model.RecordName(export.Namespace, export.Name)
	if err := p.Records.List(ctx, &records, client.MatchingFields{indexExport: name}, client.UnsafeDisableDeepCopy); err != nil {
		return decision.Publication{}, fmt.Errorf("list ExportRecords %s: %w", name, err)
	}
	for _, record := range pointers(records.Items) {
		if record.Spec.ExportUID == export.UID && !record.Spec.Withdrawn {
			return decision.Publication{Published: true, Kept: record.Annotations[model.AnnotationKept]}, nil
		}
	}
	return decision.Publication{}, nil
}
