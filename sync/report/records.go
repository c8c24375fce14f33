// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/exchange"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// indexName finds the ImportRecords of one name in all exchange namespaces.
const indexName = "comity.report"

const (
	// pace is how often the records of one key are written at most: what a
	// flapping import was in between is nobody's news.
	pace = time.Second
	// firstRetry and lastRetry bound the back-off of what cannot be written.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// recorder keeps the ImportRecords in line with what was found.
type recorder struct {
	Options
	local   client.Reader // this cluster, from the cache
	applier *apply.Applier
	retries workqueue.TypedRateLimiter[reconcile.Request]

	mu    sync.Mutex
	wrote map[types.NamespacedName]time.Time // when, for those within pace
}

// Reconcile brings the records about one key up to date.
func (r *recorder) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	key := req.NamespacedName
	if wait := r.wait(key); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	var list exchangev1alpha1.ImportRecordList
	if err := r.Exchange.Client.List(ctx, &list, client.MatchingFields{indexName: model.RecordName(key.Namespace, key.Name)}); err != nil {
		return reconcile.Result{}, fmt.Errorf("list ImportRecords of %s: %w", key, err)
	}
	desired, kept, err := r.desire(ctx, key)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("decide what to say of %s: %w", key, err)
	}
	current := make([]*exchangev1alpha1.ImportRecord, 0, len(list.Items))
	for i := range list.Items {
		at := list.Items[i].Namespace
		keep, known := kept[at]
		if !known { // of a peer that is gone; or, in a hub, another member's record
			keep = r.Exchange.Problem(ctx, at) != ""
		}
		if !keep {
			current = append(current, &list.Items[i])
		}
	}
	planned := plan.Reports(key, desired, current)
	for _, problem := range planned.Problems {
		ctrl.LoggerFrom(ctx).Info("nothing can be said of an import", "reason", problem.Reason, "message", problem.Message)
	}
	if len(planned.Actions) > 0 {
		r.note(key)
	}
	return r.write(ctx, req, planned.Actions)
}

// desire is what is to be said, by exchange namespace; what stands in one of
// kept is left as it is.
func (r *recorder) desire(ctx context.Context, key types.NamespacedName) (desired map[string]exchangev1alpha1.ImportRecordSpec, kept map[string]bool, err error) {
	members := r.Peers.Members()
	kept = map[string]bool{}
	for _, m := range members {
		at := model.ScopedExchangeNamespace(r.Self, m.ID)
		// What a peer exports is not known before it was read, and what cannot
		// be written need not be tried.
		kept[at] = !m.Synced || r.Exchange.Problem(ctx, at) != ""
	}
	for _, hold := range r.Peers.Held(key) {
		kept[model.ScopedExchangeNamespace(r.Self, hold.Cluster)] = true
	}
	exports := r.Peers.Exports(key)
	desired = make(map[string]exchangev1alpha1.ImportRecordSpec, len(exports))
	for _, refusal := range r.Peers.Refusals(key) {
		if at := model.ScopedExchangeNamespace(r.Self, refusal.Cluster); !kept[at] {
			desired[at] = r.spec(key, refusal.ExportUID, refused(r.Self, refusal))
		}
	}
	if len(exports) == 0 {
		return desired, kept, nil
	}
	s := situation{key: key, self: r.Self, imports: r.Import}
	if s.namespace, err = r.namespace(ctx, key.Namespace); err != nil {
		return nil, nil, err
	}
	if seen, ok := r.Observations.Observe(key); ok {
		s.seen = &seen
	}
	for _, export := range exports {
		at := model.ScopedExchangeNamespace(r.Self, export.Cluster)
		if kept[at] {
			continue
		}
		s.source, s.others = export.Cluster, without(members, export.Cluster)
		s.remains = func() bool { return r.remains(export.Cluster, key) }
		said, known := judge(s)
		if !known {
			kept[at] = true
			continue
		}
		desired[at] = r.spec(key, export.UID, said)
	}
	return desired, kept, nil
}

// spec is the record that says it now.
func (r *recorder) spec(key types.NamespacedName, export types.UID, said verdict) exchangev1alpha1.ImportRecordSpec {
	return exchange.ImportRecordSpec(key, model.Report{
		ExportUID: export, Imported: said.imported, Reason: said.reason, Message: said.message, Since: r.Clock.Now(),
	})
}

func without(members []model.Member, id model.ClusterID) []model.ClusterID {
	out := make([]model.ClusterID, 0, len(members))
	for _, m := range members {
		if m.ID != id {
			out = append(out, m.ID)
		}
	}
	return out
}

// remains reports whether an endpoint of the cluster is left to import.
func (r *recorder) remains(cluster model.ClusterID, key types.NamespacedName) bool {
	clean, _ := r.Peers.Slices(cluster, key)
	for _, slice := range clean {
		if len(slice.Endpoints) > 0 {
			return true
		}
	}
	return false
}

// namespace is how the destination of an import is here.
func (r *recorder) namespace(ctx context.Context, name string) (namespaceState, error) {
	if name == r.Namespace || exchange.ReservedNamespace(name) {
		return namespaceReserved, nil
	}
	namespace := &corev1.Namespace{}
	err := r.local.Get(ctx, types.NamespacedName{Name: name}, namespace)
	_, isExchange := namespace.Labels[model.LabelExchangeFrom]
	switch {
	case apierrors.IsNotFound(err):
		return namespaceMissing, nil
	case err != nil:
		return 0, fmt.Errorf("read Namespace %s: %w", name, err)
	case isExchange:
		return namespaceReserved, nil
	case namespace.DeletionTimestamp != nil:
		return namespaceTerminating, nil
	}
	return namespaceThere, nil
}

// write makes the writes one by one: each is for another reader, and none waits
// for the others.
func (r *recorder) write(ctx context.Context, req reconcile.Request, actions []plan.Action) (reconcile.Result, error) {
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
		default: // the cache is behind, or the namespace is going; both pass
			log.V(1).Info("a report could not be written", "reason", err.Error())
			again = true
		}
	}
	switch {
	case unavailable != nil:
		return reconcile.Result{}, unavailable
	case again:
		return reconcile.Result{RequeueAfter: max(pace, r.retries.When(req))}, nil
	}
	r.retries.Forget(req)
	return reconcile.Result{}, nil
}

// wait is how long the next write of key has to wait.
func (r *recorder) wait(key types.NamespacedName) time.Duration {
	now := r.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	last, has := r.wrote[key]
	if !has {
		return 0
	}
	// A clock that was set back must not stop reports.
	if since := now.Sub(last); since >= 0 && since < pace {
		return pace - since
	}
	delete(r.wrote, key)
	return 0
}

// note remembers that key is written now, and forgets those that count no more.
func (r *recorder) note(key types.NamespacedName) {
	now := r.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.wrote) >= maxWrote {
		for other, last := range r.wrote {
			if now.Sub(last) >= pace {
				delete(r.wrote, other)
			}
		}
	}
	r.wrote[key] = now
}

// maxWrote is how many entries are worth a sweep.
const maxWrote = 4096

// keysOf names what a record is of.
func keysOf(_ context.Context, record client.Object) []types.NamespacedName {
	if key, ok := model.RecordKey(record.GetName()); ok {
		return []types.NamespacedName{key}
	}
	return nil
}
