// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/replicas"
	"github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

const (
	// maxMessage is the API server's limit on the message of a condition, in bytes.
	maxMessage = 32768
	// maxOver is how many exceptions that are over a condition names, and maxLagging how many
	// replicas.
	maxOver, maxLagging = 5, 3
	// findingsInterval is how long changes of findings are collected.
	findingsInterval = time.Second
	// countInterval is how often the leader counts replicas, and recountInterval how
	// often while one lags.
	countInterval   = 10 * time.Second
	recountInterval = 2 * time.Second
	// reviewPatience is how long the status of the policies before is shown while exports
	// are reviewed with those in use now; then it shows what was reviewed so far.
	reviewPatience = time.Minute
)

// observed is what the leader knows beside the policies.
type observed struct {
	// replicas are nil if they could not be read, or not completely; problem says why. It may
	// be that this replica could not state what it enforces.
	replicas replicas.Statements
	problem  error
	// reviewed is false if the findings are not complete: the stored ones stay.
	reviewed bool
}

// observe reads what the replicas state and what audits found.
func (r *reconciler) observe(ctx context.Context, seen *observed) {
	if r.Replicas != nil && seen.problem == nil {
		r.repeatIn(countInterval)
		seen.replicas, seen.problem = r.Replicas.Read(ctx)
	}
	if r.Findings == nil {
		return
	}
	var err error
	switch seen.reviewed, err = r.isReviewed(ctx); {
	case err != nil:
		ctrl.LoggerFrom(ctx).Error(err, "cannot list ServiceExports, so the violations of policies stay as they are")
		r.repeatIn(countInterval)
	case !seen.reviewed:
		r.repeatIn(findingsInterval)
	}
}

// isReviewed reports whether every export was reviewed with the policies in use, or enough
// time has passed for that.
func (r *reconciler) isReviewed(ctx context.Context) (bool, error) {
	var exports mcsv1beta1.ServiceExportList
	if err := r.client.List(ctx, &exports, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	keys := make([]types.NamespacedName, 0, len(exports.Items))
	for i := range exports.Items {
		if exports.Items[i].DeletionTimestamp == nil {
			keys = append(keys, client.ObjectKeyFromObject(&exports.Items[i]))
		}
	}
	now, digest := r.Clock.Now(), r.Engine.Digest()
	if r.reviewed != digest {
		r.reviewed, r.since = digest, now
	}
	return r.Findings.Retain(keys, digest) || now.Sub(r.since) >= reviewPatience, nil
}

// report writes the status of a policy if it changed. It is repeated if that is too early.
func (r *reconciler) report(ctx context.Context, p policy, seen observed) error {
	log := ctrl.LoggerFrom(ctx).WithValues(logPolicy, p.Name)
	now := r.Clock.Now()
	status := r.status(p, seen)
	compiled := status.Conditions[0]
	isDue := func(c metav1.Condition) bool {
		stored := meta.FindStatusCondition(p.Status.Conditions, c.Type)
		return stored == nil || !equality.Semantic.DeepEqual(*stored, c)
	}
	urgent := isDue(compiled) || p.Status.Digest != status.Digest
	if !urgent && !slices.ContainsFunc(status.Conditions, isDue) && p.Status.ObservedGeneration == status.ObservedGeneration &&
		equality.Semantic.DeepEqual(p.Status.Matched, status.Matched) && equality.Semantic.DeepEqual(p.Status.Violations, status.Violations) {
		return nil
	}
	if wait := r.StatusInterval - now.Sub(r.written[p.Name]); !urgent && wait > 0 && wait <= r.StatusInterval {
		r.repeatIn(wait)
		return nil
	}
	switch err := r.apply(ctx, p, status, model.FieldOwner); {
	case isOutdated(err):
		log.V(1).Info("the policy changed meanwhile; waiting for its new version")
		return nil
	case err != nil:
		return err
	}
	r.written[p.Name] = now
	if urgent {
		r.recordEvent(p, compiled)
		log.Info("policy status changed", logReason, compiled.Reason, logDigest, status.Digest)
	}
	return nil
}

// apply applies the fields of the status that owner has. The status belongs to
// exactly this version of the object: an outdated cache must not cause the same
// transition, and its event, twice.
func (r *reconciler) apply(ctx context.Context, p policy, status v1alpha1.ExportPolicyStatus, owner string) error {
	u := model.StatusOf(p.ExportPolicy, v1alpha1.GroupVersion.WithKind("ExportPolicy"), &status)
	if err := r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(owner), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply the status of ExportPolicy %s: %w", p.Name, err)
	}
	return nil
}

// isOutdated reports whether the object was changed or deleted since it was read.
func isOutdated(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// status is the status that a policy should have, as far as the leader writes it. The
// first condition is Compiled.
func (r *reconciler) status(p policy, seen observed) v1alpha1.ExportPolicyStatus {
	conditions := []metav1.Condition{r.compiled(p)}
	if r.Replicas != nil {
		conditions = append(conditions, r.inForce(p, seen))
	}
	conditions = append(conditions, ready(p.Generation, conditions, p.isUntried())...)
	status := v1alpha1.ExportPolicyStatus{
		ObservedGeneration: p.Generation, Conditions: model.Stamped(conditions, p.Status.Conditions, p.Generation, r.now()),
		Digest: p.Digest, Matched: p.Status.Matched, Violations: p.Status.Violations,
	}
	if seen.reviewed {
		matched, violations := r.Findings.Of(p.Name)
		status.Matched, status.Violations = &matched, &violations
	}
	return status
}

// now is the time as the API server stores it, or no comparison with what is stored would be equal.
func (r *reconciler) now() metav1.Time { return metav1.NewTime(r.Clock.Now()).Rfc3339Copy() }

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// compiled is the condition Compiled. It names the exceptions that are over.
func (r *reconciler) compiled(p policy) metav1.Condition {
	const kind = v1alpha1.ConditionCompiled
	if p.Err == nil {
		return condition(kind, metav1.ConditionTrue, v1alpha1.ReasonCompiled, "The policy is in use."+over(p.Spec.Exceptions, r.Clock.Now()))
	}
	used := "It is not in use."
	switch e := p.Spec.Enforcement; {
	case e == v1alpha1.Warn || e == v1alpha1.Audit:
	case p.Spec.Stage == v1alpha1.StageImport:
		used += " Imports that it matches are not evaluated: what is imported stays, and nothing new is imported."
	default:
		used += " Exports that it matches are not evaluated: requests are refused, what is published stays, and nothing new is published."
	}
	reason := v1alpha1.ReasonCompileError
	if engine.IsExhausted(p.Err.Error()) {
		reason = v1alpha1.ReasonResourceExhausted
	}
	return condition(kind, metav1.ConditionFalse, reason, model.Bound(p.Err.Error(), maxMessage-len(used)-1)+"\n"+used)
}

// inForce is the condition InForce. One that is stored stays as it is while the replicas cannot
// be read. While a replica lags, it may change soon.
func (r *reconciler) inForce(p policy, seen observed) metav1.Condition {
	const kind = v1alpha1.ConditionInForce
	stored := meta.FindStatusCondition(p.Status.Conditions, kind)
	switch {
	case p.Err != nil:
		return condition(kind, metav1.ConditionFalse, v1alpha1.ReasonNotCompiled, "The policy is not in use; see the condition Compiled.")
	case seen.replicas == nil && stored != nil:
		return *stored
	case seen.replicas == nil: // Reconcile is repeated because of the problem
		return condition(kind, metav1.ConditionUnknown, v1alpha1.ReasonReplicaUnknown,
			model.Bound(fmt.Sprintf("It is not known what the replicas enforce: %v", seen.problem), model.MaxEventNote))
	}
	total, lagging := len(seen.replicas), seen.replicas.Lagging(p.Name, p.Digest)
	enforcing := fmt.Sprintf("%d/%d replicas enforce the policy as it is stored", total-len(lagging), total)
	if len(lagging) == 0 {
		return condition(kind, metav1.ConditionTrue, v1alpha1.ReasonEveryReplica, enforcing+".")
	}
	r.repeatIn(recountInterval)
	return condition(kind, metav1.ConditionFalse, v1alpha1.ReasonReplicaLags,
		fmt.Sprintf("%s; %s: not yet, see its log if that stays.", enforcing, decision.Some(lagging, maxLagging)))
}

// over says which exceptions are over, in a sentence after others; empty if none is.
func over(exceptions []v1alpha1.Exception, now time.Time) string {
	var names []string
	for _, e := range exceptions {
		if !engine.IsOver(e, now) {
			continue
		}
		what := e.Namespace + "/" + e.Name
		if e.Name == "" {
			what = "all of " + e.Namespace
		}
		names = append(names, fmt.Sprintf("%s (until %s)", what, e.Until))
	}
	if len(names) == 0 {
		return ""
	}
	return " Exceptions that are over: " + decision.Some(names, maxOver) + "."
}

// ready sums up Compiled and, if there is one, InForce: Ready has status and reason of the
// first that is not True. Beside one that is not True stands Stalled, or Reconciling if the
// policy need not change: if it could not be compiled for now, or a replica lags.
//
//	Compiled               InForce            Ready     beside it
//	False                                     False     Stalled
//	False, for now                            False     Reconciling
//	True                   False or Unknown   the same  Reconciling
//	True                   of another spec    Unknown   Reconciling
//	True                   True, or none      True
func ready(generation int64, of []metav1.Condition, forNow bool) []metav1.Condition {
	from := of[0]
	if last := of[len(of)-1]; from.Status == metav1.ConditionTrue {
		from = last
	}
	// InForce stays as it was stored while the replicas cannot be read.
	if stored := from.ObservedGeneration; stored != 0 && stored != generation {
		from = condition("", metav1.ConditionUnknown, v1alpha1.ReasonReplicaUnknown, "It is not known yet what the replicas enforce.")
	}
	message := model.Bound(from.Message, model.MaxEventNote)
	c := condition(v1alpha1.ConditionReady, from.Status, from.Reason, message)
	if c.Status == metav1.ConditionTrue {
		return []metav1.Condition{c}
	}
	beside := v1alpha1.ConditionReconciling
	if of[0].Status == metav1.ConditionFalse && !forNow {
		beside = v1alpha1.ConditionStalled
	}
	return []metav1.Condition{c, condition(beside, metav1.ConditionTrue, from.Reason, message)}
}

// recordEvent records an event if the condition changed its status.
func (r *reconciler) recordEvent(p policy, now metav1.Condition) {
	old := meta.FindStatusCondition(p.Status.Conditions, now.Type)
	if old != nil && old.Status == now.Status {
		return
	}
	kind := corev1.EventTypeNormal
	if now.Status != metav1.ConditionTrue {
		kind = corev1.EventTypeWarning
	}
	r.recorder.Eventf(p.ExportPolicy, nil, kind, now.Reason, now.Type, "%s", model.Bound(now.Message, model.MaxEventNote))
}
