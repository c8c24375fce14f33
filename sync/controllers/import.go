// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/notify"
	"github.com/comity-mcs/comity/sync/plan"
)

// maxRounds bounds how often one import is planned in a row: once for the Service, once for
// what needs its addresses, twice more for a replacement, and twice for slices without a label.
const maxRounds = 6

// importController keeps the imported objects in line with the exports that
// reach this cluster, its own included.
type importController struct {
	*base
	// drift knows the objects that something else keeps changing.
	drift *driftLimiter
	// livenessChanges counts the changes of a member's liveness. It grows before the
	// imports of that member are listed, so that none that is being reconciled is missed.
	livenessChanges atomic.Int64
	// leading is when this process became the leader, and the members were listed.
	leading func() time.Time
}

func setupImport(mgr ctrl.Manager, b *base) error {
	i := &importController{base: b, drift: newDriftLimiter(b.Clock, 3*b.Retry),
		leading: sync.OnceValue(b.Clock.Now)}
	all := &notify.Source{
		Queue:     b.importQueue,
		Required:  []<-chan struct{}{b.Peers.Listed(), b.PoliciesLoaded, b.LocalClusterKnown},
		First:     b.membersRead,
		List:      i.everything,
		Subscribe: []notify.Subscribe{b.PoliciesChanged.Subscribe, b.LocalClusterChanged.Subscribe, b.Prober.Changed().Subscribe, i.subscribe},
	}
	ofNamespace := func(ctx context.Context, o client.Object) []types.NamespacedName { // what waits for it
		keys, _ := i.keysIn(ctx, o.GetName())
		return keys
	}
	return b.exportsController(mgr, "import", all, ofNamespace).
		Watches(&mcsv1beta1.ServiceImport{}, all.ByComity(notify.Itself), builder.WithPredicates(notify.WithoutStatus)).
		Watches(&corev1.Service{}, all.ByComity(b.importedObject)).
		Watches(&discoveryv1.EndpointSlice{}, all.ByComity(b.importedObject)).
		Complete(i)
}

// subscribe notifies of the imports that may be different after a change of a member.
func (i *importController) subscribe(changed func(notify.Change)) (cancel func()) {
	return i.Peers.Subscribe(func(c model.MemberChange) {
		from, keys := notify.Origin(c.ID), []types.NamespacedName{c.Key} // one key, or all
		switch c.What {
		case model.ExportChanged, model.EndpointsChanged, model.MemberOther, model.HeartbeatBack:
		case model.NamespaceChanged:
			keys, _ = i.keysIn(context.Background(), c.Key.Name) // caches: it does not wait, nor fail
		case model.HeartbeatFirst, model.HeartbeatMissing:
			i.livenessChanges.Add(1)
			// The first heartbeat concerns those that are down as far as was known without one.
			concerned := func(s model.Source) bool { return s.Unready > 0 || c.What == model.HeartbeatMissing }
			from, keys = notify.Derived, i.observations.From(c.ID, concerned)
		default:
			return
		}
		for _, key := range keys {
			changed(notify.Change{From: from, Key: key})
		}
	})
}

// everything lists all keys that have something to import or to remove.
func (i *importController) everything(ctx context.Context) ([]types.NamespacedName, error) {
	keys, err := i.keysIn(ctx, "")
	if err != nil {
		return nil, err
	}
	// An import may have left slices or a Service without a ServiceImport.
	for _, list := range []client.ObjectList{&discoveryv1.EndpointSliceList{}, &corev1.ServiceList{}} {
		left, err := notify.ListKeys(ctx, i.client, list, i.importedObject, client.HasLabels{model.LabelServiceName})
		if err != nil {
			return nil, err
		}
		keys = append(keys, left...)
	}
	return keys, nil
}

// keysIn lists what is exported to, or imported into, the namespace; or into all, if that is
// empty. It returns what it found until an error, too.
func (i *importController) keysIn(ctx context.Context, namespace string) ([]types.NamespacedName, error) {
	keys, err := i.exports(ctx, namespace)
	if err != nil {
		return nil, err
	}
	keys = append(keys, i.peerKeysIn(namespace)...)
	// What is kept of a cluster that was not read is among neither.
	imports, err := notify.ListKeys(ctx, i.client, &mcsv1beta1.ServiceImportList{}, notify.Itself, client.InNamespace(namespace))
	return append(keys, imports...), err
}

// Reconcile brings one import up to date.
func (i *importController) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	before, key := i.livenessChanges.Load(), req.NamespacedName
	view, err := i.view(ctx, key)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read the import %s: %w", req, err)
	}
	decided := decide.Import(view)
	i.Prober.Watch(key, decided.Probe)
	if !decided.Write {
		i.observations.Import(key, &decided.Finding)
		return reconcile.Result{RequeueAfter: decided.Again}, nil
	}
	planned, did, err := i.apply(ctx, req, &decided.Plan)
	contested, again := i.drift.contested(key)
	found := decided.Finding.AfterPlan(planned, apply.Refusals(err), contested)
	if err == nil || apply.ClassOf(err) == apply.Refused {
		before := i.observations.Import(key, &found)
		i.announce(key, decided.Plan.Current, before.Problems, found.Problems)
	}
	if err == nil {
		i.announceJoined(view.Current.Import, decided.Joined)
	}
	again = model.Sooner(again, decided.Again)
	result, failed := i.retry(ctx, req, err)
	if failed != nil {
		return result, failed
	}
	// What is to be decided again ends also while the API server refuses a part of the import.
	result.RequeueAfter = model.Sooner(result.RequeueAfter, again)
	if err != nil {
		return result, nil //nolint:nilerr // retry has said when, and that nothing failed
	}
	if !did.left {
		i.settled("import", i.importQueue, req, did.wrote)
	}
	if i.livenessChanges.Load() != before {
		result.RequeueAfter = time.Millisecond
	}
	return result, nil
}

// view reads everything that decides what one import should be.
func (i *importController) view(ctx context.Context, key types.NamespacedName) (decide.ImportView, error) {
	v := decide.ImportView{
		Self: i.Self, ComityNamespace: i.Namespace, LocalCluster: i.LocalCluster(), ClusterLabels: i.ClusterLabels,
		ImportDisabled: i.ImportDisabled, MaintainSelectors: i.MaintainSelectors, Takeover: i.Takeover,
		IdentityLabels: i.IdentityLabels, Now: i.Clock.Now(),
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
	v.Peers = i.Peers.Read(key, true)
	v.FormsAt = decide.FormsAt(i.leading(), v.Now, v.Peers, i.Retry)
	decide.ReadList(&v)
	if i.ImportAdmitter != nil && !v.ImportDisabled {
		verdicts := i.ImportAdmitter.AdmitImports(ctx, key, decide.ImportInputs(v))
		for n := range v.Peers {
			v.Peers[n].Verdict = new(verdicts[v.Peers[n].ID])
		}
	}
	v.Answers = i.Prober.Answers(key)
	v.Own = i.own(ctx, &v)
	return v, nil
}

// progress is what became of a plan: something was written, or is left for later.
type progress struct{ wrote, left bool }

// apply plans and applies until nothing is outstanding. Two imports may choose one name for
// their derived Services at the same moment; the API server refuses the second.
func (i *importController) apply(ctx context.Context, req reconcile.Request, in *plan.ImportInput) (planned plan.ImportPlan, did progress, _ error) {
	for range maxRounds {
		planned = plan.Import(*in)
		met, err := i.unlabeled(ctx, in.Key, planned.Actions)
		if err != nil {
			return planned, did, err
		}
		if len(met) > 0 {
			in.Current.Slices = slices.Concat(in.Current.Slices, met)
			continue
		}
		turn := newTurn(i.Self, i.importQueue, req, i.refusals.NumRequeues(req) > 0, i.drift.allowed(in.Key, planned.Actions))
		begun := time.Now()
		applied, err := i.applier.Leaving(turn.leaves).Apply(ctx, turn.actions)
		turn.pay(time.Since(begun))
		i.drift.applied(in, turn.made, applied)
		did.wrote, did.left = did.wrote || len(turn.made) > 0, len(turn.later) > 0
		if err == nil || apply.ClassOf(err) == apply.Refused {
			for source := range turn.later {
				i.importQueue.AddFrom(notify.Origin(source), req)
			}
		}
		if err != nil || !planned.AwaitsService || len(turn.made) == 0 {
			return planned, did, err
		}
		in.Current = in.Current.After(turn.made, applied)
	}
	return planned, did, nil // the next event continues from here
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
	current.Services = pointers(services.Items)
	for _, name := range []string{model.DerivedName(key.Name), model.AlternateDerivedName(key.Name)} {
		s, err := get[corev1.Service](ctx, i.client, types.NamespacedName{Namespace: key.Namespace, Name: name})
		if err != nil {
			return current, err
		}
		if s != nil && !slices.ContainsFunc(current.Services, func(o *corev1.Service) bool { return o.Name == name }) {
			current.Services = append(current.Services, s)
		}
	}
	if current.Slices, err = listSlices(ctx, i.client, inNamespace, client.MatchingFields{indexImport: key.Name}); err != nil {
		return current, err
	}
	return current, nil
}

// unlabeled are the slices that exist under a name to be created: without the label of the
// import, by which they are found.
func (i *importController) unlabeled(ctx context.Context, key types.NamespacedName, actions []plan.Action) (out []*discoveryv1.EndpointSlice, err error) {
	for _, a := range actions {
		if _, isSlice := a.Object.(*discoveryv1.EndpointSlice); !isSlice || a.Verb != plan.Create {
			continue
		}
		s, err := getSlice(ctx, i.client, client.ObjectKeyFromObject(a.Object))
		if err != nil {
			return nil, err
		}
		if s != nil && s.Labels[model.LabelServiceName] != key.Name { // else the cache has one that was just deleted
			out = append(out, s)
		}
	}
	return out, nil
}

// maxBatch is how many slices of one other cluster one reconcile of an import writes. Then
// the other imports, and the other clusters of this one, are served.
const maxBatch = 20

// turn is what one reconcile of an import writes. Nothing is left out but slices of other
// clusters, and what is made after all if any of these is left out:
//
//   - those of a cluster of which maxBatch were written are for later, unless all is true;
//   - those of a cluster are for later, once any slice of another cluster was written, and if
//     somebody who used less changed the import meanwhile;
//   - those of a cluster whose changes do not count yet wait until they do (notify.Queue.Standing).
type turn struct {
	self    model.ClusterID
	queue   *notify.Queue
	request reconcile.Request
	// all is true after a refusal: else the same first ones may be refused each time.
	all bool

	// actions are in the order in which they are to be made.
	actions, made []plan.Action
	later         sets.Set[model.ClusterID]
	// held are the clusters whose changes do not count yet, and written says how many slices of
	// each were written.
	held    sets.Set[model.ClusterID]
	written map[model.ClusterID]int
}

// newTurn sorts adjacent slices of other clusters: those of a cluster that used more than its
// share come last, and before, those of a cluster come after those of clusters with fewer.
func newTurn(self model.ClusterID, queue *notify.Queue, request reconcile.Request, all bool, actions []plan.Action) *turn {
	t := &turn{self: self, queue: queue, request: request, all: all, actions: actions, later: sets.New[model.ClusterID](),
		written: map[model.ClusterID]int{}, held: sets.New[model.ClusterID]()}
	count, greedy := map[model.ClusterID]int{}, sets.New[model.ClusterID]()
	for _, a := range actions {
		if count[a.Source]++; count[a.Source] > 1 || !t.isOthers(a) {
			continue
		}
		usedMore, held := t.queue.Standing(t.request, notify.Origin(a.Source))
		if usedMore {
			greedy.Insert(a.Source)
		}
		if held {
			t.held.Insert(a.Source)
		}
	}
	rank := func(a plan.Action) int {
		if greedy.Has(a.Source) {
			return len(actions) + count[a.Source]
		}
		return count[a.Source]
	}
	for first := 0; first < len(actions); first++ {
		end := first
		for end < len(actions) && t.isOthers(actions[end]) {
			end++
		}
		slices.SortStableFunc(actions[first:end], func(a, b plan.Action) int { return cmp.Compare(rank(a), rank(b)) })
		first = end
	}
	return t
}

func (t *turn) isOthers(a plan.Action) bool { return a.Source != "" && a.Source != t.self }

// pay has each other cluster pay for the writes of its slices; all that were made took so long.
func (t *turn) pay(took time.Duration) {
	for _, a := range t.made {
		if t.isOthers(a) {
			t.queue.Pay(t.request, notify.Origin(a.Source), took/time.Duration(len(t.made)))
		}
	}
}

// leaves reports whether an action is left out. It is asked before each one, in order.
func (t *turn) leaves(a plan.Action) bool {
	switch {
	case t.isOthers(a):
		if t.held.Has(a.Source) {
			return true
		}
		givesWay := len(t.written) > 0 && t.queue.IsAwaited(t.request, notify.Origin(a.Source))
		if givesWay || t.written[a.Source] == maxBatch && !t.all {
			t.later.Insert(a.Source)
			return true
		}
		t.written[a.Source]++
	case a.AfterAll && t.held.Len()+t.later.Len() > 0:
		return true
	}
	t.made = append(t.made, a)
	return false
}
