// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller loads the ExportPolicies into the engine.
//
// It takes ExportPolicies from the manager's cache, loads all of them into the
// engine on every replica, and gives each a condition Compiled, written by the
// leader alone and only on change, with an event for each transition. It decides
// nothing on exports; it calls Options.Changed when verdicts may change. It is apart
// from package engine because the engine knows no cluster. DESIGN.md, section 3.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// Log keys.
const (
	logPolicy = "policy"
	logReason = "reason"
	logDigest = "digest"
)

// fieldOwner is Comity's in server-side apply, and its name in events.
const fieldOwner = "comity"

// Options of SetupWithManager. Engine is required.
type Options struct {
	// Engine is loaded. It is ready (Engine.Loaded) once the first list was.
	Engine *engine.Engine
	// Changed is called after the policies in use have changed, so that stored
	// exports are reviewed again; none when nil. It must not wait.
	Changed func()
	// Elected is closed when this replica leads; the manager's when nil.
	Elected <-chan struct{}
	// Clock stamps conditions; the real one when nil.
	Clock clock.PassiveClock
	// Recorder takes events; one of the manager's when nil.
	Recorder events.EventRecorder
}

// SetupWithManager adds the controller to mgr, on every replica.
//
// The agent needs: get, list and watch on exportpolicies, patch on
// exportpolicies/status, create and patch on events (events.k8s.io).
func SetupWithManager(mgr ctrl.Manager, o Options) error {
	if o.Engine == nil {
		return errors.New("policies/controller.Options.Engine is nil; expected an engine to load")
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Elected == nil {
		o.Elected = mgr.Elected()
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Recorder == nil {
		o.Recorder = mgr.GetEventRecorder(fieldOwner)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("exportpolicy").
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
		Watches(&v1alpha1.ExportPolicy{}, handler.EnqueueRequestsFromMapFunc(
			func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{all} })).
		WatchesRawSource(source.Func(o.begin)).
		Complete(&reconciler{client: mgr.GetClient(), options: o})
}

// all is the only key of the queue: policies are loaded together, so changes
// that come at once are one load.
var all = reconcile.Request{NamespacedName: types.NamespacedName{Name: "all"}}

// begin requests the first load, which is needed even without any policy, and one
// more when this replica becomes the leader and has to write statuses.
func (o Options) begin(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	queue.Add(all)
	go func() {
		select {
		case <-ctx.Done():
		case <-o.Elected:
			queue.Add(all)
		}
	}()
	return nil
}

func (o Options) leads() bool {
	select {
	case <-o.Elected:
		return true
	default:
		return false
	}
}

type reconciler struct {
	client  client.Client
	options Options
}

// Reconcile loads all policies and, on the leader, writes the result of each.
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
	policies := make([]engine.Policy, len(list.Items))
	for i := range list.Items {
		policies[i] = fromObject(&list.Items[i])
	}

	before := r.options.Engine.Digest()
	results := r.options.Engine.Load(policies)
	if after := r.options.Engine.Digest(); after != before {
		ctrl.LoggerFrom(ctx).Info("the policies in use changed", "policies", len(policies), logDigest, after)
		r.options.Changed()
	}
	if !r.options.leads() {
		return reconcile.Result{}, nil
	}
	var errs []error
	for i := range results {
		errs = append(errs, r.report(ctx, &list.Items[i], results[i]))
	}
	return reconcile.Result{}, errors.Join(errs...)
}

func fromObject(policy *v1alpha1.ExportPolicy) engine.Policy {
	p := engine.Policy{
		Name:        policy.Name,
		Module:      policy.Spec.Rego,
		Enforcement: policy.Spec.Enforcement,
		Match:       policy.Spec.Match,
	}
	if policy.Spec.Parameters != nil {
		p.Params = policy.Spec.Parameters.Raw
	}
	return p
}

// Checker checks for the webhook whether a policy could be used.
type Checker struct{ Engine *engine.Engine }

// Check is nil for a policy that compiles. Otherwise the error has lines of
// file:row:column and message, as in the condition Compiled.
func (c Checker) Check(policy *v1alpha1.ExportPolicy) error {
	return c.Engine.Check(fromObject(policy))
}
