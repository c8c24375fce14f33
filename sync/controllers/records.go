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
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/comity-mcs/comity/sync/decide"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/plan"
)

// memberRecordController writes the MemberRecord, by which readers know that an
// absent record is a withdrawn export and not one that is still to be published.
type memberRecordController struct {
	*base
	reported string // the problem of a duplicate id that was reported last
}

func setupMemberRecord(mgr ctrl.Manager, b *base) error {
	m := &memberRecordController{base: b}
	only := []types.NamespacedName{b.member()}
	toOnly := func(context.Context, client.Object) []types.NamespacedName { return only }
	isShared := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == only[0].Namespace })
	recreated := func(context.Context, client.Object) []types.NamespacedName {
		b.restartPass() // the exchange namespace may be another one, which is empty
		return nil
	}
	changed := &notify.Source{
		Queue: notify.NewQueue(b.Workers),
		List:  func(context.Context) ([]types.NamespacedName, error) { return only, nil },
		// A member may be other in that a Peer has this cluster's id.
		Subscribe: []notify.Subscribe{b.passComplete.Subscribe, b.passChanged.Subscribe, b.LocalClusterChanged.Subscribe, b.onMembers(model.MemberOther)},
	}
	return b.controller(mgr, "member-record", changed).
		Watches(&corev1.Namespace{}, changed.ByUsers(recreated), builder.WithPredicates(isShared, predicate.LabelChangedPredicate{})).
		WatchesRawSource(b.Exchange.Watch(&exchangev1alpha1.MemberRecord{}, changed.ByUsers(toOnly))).
		Complete(m)
}

// Reconcile brings the MemberRecord up to date once the first pass is complete.
func (m *memberRecordController) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	m.reportDuplicate(ctx)
	if !m.pass.IsComplete() || m.problem(ctx, req.Namespace) != "" {
		return reconcile.Result{}, nil
	}
	record, err := get[exchangev1alpha1.MemberRecord](ctx, m.Exchange.Client, m.member())
	if err != nil {
		return reconcile.Result{}, err
	}
	known := exchangev1alpha1.MemberRecordSpec{ClusterSet: m.ClusterSet, Version: m.Version, ClusterUID: m.ClusterUID}
	desired := decide.Member(m.Self, known, m.LocalCluster(), record)
	actions, problems := plan.Record(desired, record, m.holdsPlace())
	logProblems(ctx, problems)
	_, err = m.publishing.Apply(ctx, actions)
	return m.retry(ctx, req, err)
}

// reasonDuplicate is that of the event on Comity's Namespace.
const reasonDuplicate = "DuplicateClusterID"

// reportDuplicate reports once that another cluster has this one's id, and
// publishes everything again when that is over.
func (m *memberRecordController) reportDuplicate(ctx context.Context) {
	problem := m.duplicate(ctx)
	if problem == m.reported || problem == m.notHeldYet() {
		return
	}
	m.reported = problem
	if problem == "" {
		ctrl.LoggerFrom(ctx).Info("no other cluster has this cluster's id any more, publishing again")
		m.restartPass()
		return
	}
	ctrl.LoggerFrom(ctx).Error(errors.New(problem), "nothing is published", "reason", reasonDuplicate)
	if own, err := getNamespace(ctx, m.client, m.Namespace); err == nil && own != nil { // a cache: it does not fail
		m.recorder.Eventf(own, nil, corev1.EventTypeWarning, reasonDuplicate, "Publish", "%s", model.Bound(problem, model.MaxEventNote))
	}
}

// logProblems logs what keeps records from being written.
func logProblems(ctx context.Context, problems []model.Problem) {
	for _, problem := range problems {
		ctrl.LoggerFrom(ctx).Error(errors.New(problem.Message), "a record cannot be written", "reason", problem.Reason)
	}
}

// namespaceRecordController publishes which user namespaces exist here, of those that
// the administrator selects, and their identity labels.
type namespaceRecordController struct{ *base }

func setupNamespaceRecords(mgr ctrl.Manager, b *base) error {
	n := &namespaceRecordController{b}
	all := &notify.Source{Queue: notify.NewQueue(b.Workers), Subscribe: []notify.Subscribe{b.passChanged.Subscribe}, List: n.seed}
	return b.controller(mgr, "namespace-records", all).
		Watches(&corev1.Namespace{}, all.ByUsers(byName)).
		WatchesRawSource(b.Exchange.Watch(&exchangev1alpha1.NamespaceRecord{}, all.ByComity(byName))).
		Complete(n)
}

// byName is the key of a Namespace, and of a record about one.
func byName(_ context.Context, o client.Object) []types.NamespacedName {
	return []types.NamespacedName{{Name: o.GetName()}}
}

// seed lists all namespaces, and all records, whose namespaces may be gone. The first pass then
// waits for them.
func (n *namespaceRecordController) seed(ctx context.Context) ([]types.NamespacedName, error) {
	keys, err := notify.ListKeys(ctx, n.client, &corev1.NamespaceList{}, byName)
	if err != nil {
		return nil, err
	}
	// It fails where the cache of a hub was not read yet: Exchange.Changed lists again.
	recorded, _ := notify.ListKeys(ctx, n.Exchange.Client, &exchangev1alpha1.NamespaceRecordList{}, byName)
	keys = append(keys, recorded...)
	n.passed(n.pass.Seed(decide.Namespaces, keys))
	return keys, nil
}

// Reconcile brings the record of one namespace up to date.
func (n *namespaceRecordController) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	shared := model.ExchangeNamespace(n.Self)
	if n.problem(ctx, shared) != "" {
		return reconcile.Result{}, nil // the change that ends this lists all namespaces again
	}
	namespace, err := getNamespace(ctx, n.client, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	record, err := get[exchangev1alpha1.NamespaceRecord](ctx, n.Exchange.Client, types.NamespacedName{Namespace: shared, Name: req.Name})
	if err != nil {
		return reconcile.Result{}, err
	}
	desired := decide.NamespaceRecord(n.Self, req.Name, namespace, n.Namespace, n.IdentityLabels, n.PublishNamespaces)
	actions, problems := plan.Record(desired, record, n.holdsPlace())
	logProblems(ctx, problems)
	_, err = n.publishing.Apply(ctx, actions)
	n.passed(n.pass.Attempted(decide.Namespaces, req.NamespacedName, err == nil))
	return n.retry(ctx, req, err)
}

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
		Queue:    b.reportQueue,
		Required: []<-chan struct{}{b.Peers.Listed()},
		First:    b.membersRead,
		List:     r.everything,
		Subscribe: []notify.Subscribe{
			b.observations.ImportChanged.Subscribe, b.passChanged.Subscribe,
			b.onMembers(model.ExportChanged, model.MemberOther), // no report says whether its reader is alive
		},
	}
	ofNamespace := func(_ context.Context, o client.Object) []types.NamespacedName { return r.peerKeysIn(r.concerned(o)) }
	return b.controller(mgr, "import-records", all).
		Watches(&corev1.Namespace{}, all.ByUsers(ofNamespace)).
		WatchesRawSource(b.Exchange.Watch(&exchangev1alpha1.ImportRecord{}, all.ByComity(keysOf))).
		Complete(r)
}

// everything lists what the members export, and what was reported of exports that
// are gone.
func (r *importRecordController) everything(ctx context.Context) ([]types.NamespacedName, error) {
	// It fails where the cache of a hub was not read yet: Exchange.Changed lists again.
	reported, _ := notify.ListKeys(ctx, r.Exchange.Client, &exchangev1alpha1.ImportRecordList{}, keysOf)
	return append(r.Peers.Keys(), reported...), nil
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
	logProblems(ctx, problems)
	lists := slices.Collect(slices.Chunk(actions, 1)) // each is for another reader, and none waits for the others
	return r.retry(ctx, req, r.writeAll(ctx, lists))
}

// plan is what to write of one key, and why something of it cannot be reported.
func (r *importRecordController) plan(ctx context.Context, key types.NamespacedName) ([]plan.Action, []model.Problem, error) {
	v := decide.ReportView{
		Key: key, Self: r.Self, ImportDisabled: r.ImportDisabled, Now: r.Clock.Now(),
		Unavailable: map[string]string{},
	}
	var list exchangev1alpha1.ImportRecordList
	if err := r.Exchange.Client.List(ctx, &list, client.MatchingFields{indexExport: model.RecordName(key.Namespace, key.Name)}); err != nil {
		return nil, nil, fmt.Errorf("list ImportRecords: %w", err)
	}
	v.Records = slices.DeleteFunc(pointers(list.Items), func(o *exchangev1alpha1.ImportRecord) bool { return !r.isOwnNamespace(ctx, o) })
	namespace, err := getNamespace(ctx, r.client, key.Namespace)
	if err != nil {
		return nil, nil, err
	}
	v.Namespace = decide.Namespace(r.Self, key.Namespace, namespace, r.Namespace)
	v.Observation = r.observations.OfImport(key)
	v.Peers = r.Peers.Read(key, false)
	for _, p := range v.Peers {
		namespace := model.ScopedExchangeNamespace(r.Self, p.ID)
		v.Unavailable[namespace] = r.problem(ctx, namespace)
	}
	desired, current := decide.Report(v)
	actions, problems := plan.Reports(key, desired, current, r.holdsPlace())
	return actions, problems, nil
}

// keysOf is the key that a record is about.
func keysOf(_ context.Context, record client.Object) []types.NamespacedName {
	return keyIf(model.RecordKey(record.GetName()))
}
