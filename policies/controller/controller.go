// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller loads the ExportPolicies into the engine and writes their status.
//
// It takes ExportPolicies from the manager's cache and loads all of them into the
// engine on every replica, with the exceptions that are in force; when one ends, it
// loads them again. The leader alone writes the conditions Compiled, InForce and
// Ready, and what audits found, only on change. Every replica reports what failed in its own
// evaluations, as condition Evaluated. The package decides nothing on exports; it calls
// Options.Changed when verdicts may change. It is apart from package engine because the
// engine knows neither a cluster nor a clock.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/findings"
	"github.com/comity-mcs/comity/policies/replicas"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Log keys.
const (
	logPolicy = "policy"
	logReason = "reason"
	logDigest = "digest"
)

// Engine evaluates policies; engine.Engine and child.Client are some.
type Engine interface {
	Load(list []engine.Policy) []engine.Result
	Digest() string
	Failures() map[string]engine.Failure
	Failed() <-chan struct{}
}

// Options of SetupWithManager. Engine and Changed are required.
type Options struct {
	// Engine is loaded.
	Engine Engine
	// Changed is called after the policies in use have changed, so that stored
	// exports are reviewed again. It must not wait.
	Changed func()
	// Elected is closed when this replica leads; the manager's when nil.
	Elected <-chan struct{}
	// Clock stamps conditions and ends exceptions; the real one when nil.
	Clock clock.PassiveClock
	// Findings are what audits found, for the status; it shows none when nil. They are
	// complete only on the leader.
	Findings *findings.Findings
	// Replicas state what each replica enforces; there is no condition InForce when nil.
	Replicas *replicas.Replicas
	// StatusInterval is how often the status of one policy is written at most, but for
	// the condition Compiled.
	StatusInterval time.Duration
}

// SetupWithManager adds the controller to mgr, on every replica.
//
// The agent needs: get, list and watch on exportpolicies, patch on
// exportpolicies/status, create and patch on events (events.k8s.io).
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	o.Elected, o.Clock = cmp.Or(o.Elected, mgr.Elected()), cmp.Or[clock.PassiveClock](o.Clock, clock.RealClock{})
	r := &reconciler{
		client: mgr.GetClient(), cache: mgr.GetCache(), recorder: mgr.GetEventRecorder(model.FieldOwner), Options: o, reported: map[string]int64{}, written: map[string]time.Time{},
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("exportpolicy").
		WithOptions(controller.Options{
			NeedLeaderElection: ptr.To(false),
			RateLimiter:        workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](leastRetry, mostRetry),
		}).
		WatchesRawSource(source.Func(r.begin)).
		Complete(r)
}

// untriedInterval is how long policies wait that could not be compiled because of the
// machine: it had no process or no time for them. Until then they block what they match.
const untriedInterval = 10 * time.Second

// leastRetry and mostRetry are how long it waits after an error: a replica renews what it states
// often.
const leastRetry, mostRetry = 5 * time.Millisecond, 10 * time.Second

// all is the one key of the queue. Policies are loaded together, so changes that come at
// once are one load; evaluations that fail in quick succession are one report.
var all = reconcile.Request{NamespacedName: types.NamespacedName{Name: "all"}}

// begin requests the first load, which is needed even without any policy, and one
// more when this replica becomes the leader and has to write statuses, and after a change
// of findings. It requests a report after a failure, at most one for each reportInterval. Unlike a
// source of ExportPolicies, it does not wait until everything else is read that is in the cache:
// policies are compiled meanwhile.
func (r *reconciler) begin(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	queue.Add(all)
	informer, err := r.cache.GetInformer(ctx, &v1alpha1.ExportPolicy{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	load := func(any) { queue.Add(all) }
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: load, UpdateFunc: func(_, now any) { load(now) }, DeleteFunc: load}); err != nil {
		return err
	}
	go func() {
		elected, changed := r.Elected, (<-chan struct{})(nil)
		for {
			select {
			case <-ctx.Done():
				return
			case <-elected:
				elected = nil
				if r.Findings != nil {
					changed = r.Findings.Changed()
				}
				r.leads.Store(true)
				queue.Add(all)
			case <-changed:
				queue.AddAfter(all, findingsInterval)
			case <-r.Engine.Failed():
				queue.AddAfter(all, reportInterval)
			}
		}
	}()
	return nil
}

// reconciler has fields without a lock: only Reconcile uses them, which never runs twice
// at once.
type reconciler struct {
	Options
	// leads is true once this replica is the leader; begin sets it.
	leads    atomic.Bool
	client   client.Client
	cache    cache.Cache
	recorder events.EventRecorder
	// reported is what was reported of the failures of each policy, by name.
	reported map[string]int64
	// written is when the status of each policy was last written, by name.
	written map[string]time.Time
	// reviewed is the digest of the policies with which exports are reviewed, and since when.
	reviewed string
	since    time.Time
	// again is when this run of Reconcile is to be repeated; 0 for after the next event.
	again time.Duration
}

// repeatIn has Reconcile repeated after a time, if it is not earlier anyway.
func (r *reconciler) repeatIn(wait time.Duration) { r.again = model.Sooner(r.again, max(wait, 0)) }

// Reconcile loads all policies, states which of them this replica enforces, reports what failed
// in it and, on the leader, writes the result of each.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var list v1alpha1.ExportPolicyList
	if err := r.client.List(ctx, &list); err != nil {
		return reconcile.Result{}, fmt.Errorf("list ExportPolicies: %w", err)
	}
	// The oldest first: if two use one package, every replica that starts assigns
	// it to the same one.
	slices.SortFunc(list.Items, func(a, b v1alpha1.ExportPolicy) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	r.again = 0
	policies := r.load(ctx, list.Items)
	seen := observed{problem: r.state(ctx, policies)}
	errs := []error{r.reportEvaluations(ctx, policies)}
	if r.leads.Load() {
		r.observe(ctx, &seen)
		for _, p := range policies {
			errs = append(errs, r.report(ctx, p, seen))
		}
	}
	return reconcile.Result{RequeueAfter: r.again}, errors.Join(append(errs, seen.problem)...)
}

// policy is an ExportPolicy, and the result of loading it.
type policy struct {
	*v1alpha1.ExportPolicy
	engine.Result
}

// isUntried reports whether it could not be compiled for now, which says nothing about it.
func (p policy) isUntried() bool { return apierrors.IsServiceUnavailable(p.Err) }

// load loads the policies with the exceptions that are in force now. It is repeated when the next
// one ends, or after longestWait.
func (r *reconciler) load(ctx context.Context, objects []v1alpha1.ExportPolicy) []policy {
	now := r.Clock.Now()
	list := make([]engine.Policy, len(objects))
	for i := range objects {
		list[i] = engine.FromObject(&objects[i], now)
		if q := objects[i].Status.Quarantine; q != nil && q.Digest == list[i].Digest() {
			list[i].Refused = q.Message
		}
		for _, e := range list[i].Exceptions {
			r.repeatIn(min(engine.EndOf(e).Sub(now), longestWait))
		}
	}
	before, policies := r.Engine.Digest(), make([]policy, len(objects))
	for i, result := range r.Engine.Load(list) {
		policies[i] = policy{&objects[i], result}
	}
	if after := r.Engine.Digest(); after != before {
		ctrl.LoggerFrom(ctx).Info("the policies in use changed", "policies", len(policies), logDigest, after)
		r.Changed()
	}
	if slices.ContainsFunc(policies, policy.isUntried) {
		r.repeatIn(untriedInterval)
	}
	return policies
}

// state states which policies this replica enforces.
func (r *reconciler) state(ctx context.Context, policies []policy) error {
	if r.Replicas == nil {
		return nil
	}
	enforced := map[string]string{}
	for _, p := range policies {
		if p.Err == nil {
			enforced[p.Name] = p.Digest
		}
	}
	renew, err := r.Replicas.State(ctx, enforced)
	r.repeatIn(renew)
	return err
}

// longestWait is how long the clock is not read at most: a machine that was suspended
// must not prolong an exception by that time.
const longestWait = time.Hour
