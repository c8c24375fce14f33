// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

const (
	// maxNote is the API server's limit on the note of an event, in bytes, and
	// maxMessage its limit on the message of a condition.
	maxNote    = 1024
	maxMessage = 32768
)

// report writes the status of a policy if it changed.
func (r *reconciler) report(ctx context.Context, policy *v1alpha1.ExportPolicy, result engine.Result) error {
	log := ctrl.LoggerFrom(ctx).WithValues(logPolicy, policy.Name)
	status := r.status(policy, result)
	if equality.Semantic.DeepEqual(policy.Status, status) {
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return fmt.Errorf("convert the status of ExportPolicy %s: %w", policy.Name, err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": content}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ExportPolicy"))
	u.SetName(policy.Name)
	// The status belongs to exactly this version of the object: an outdated cache
	// must not cause the same transition, and its event, twice.
	u.SetUID(policy.UID)
	u.SetResourceVersion(policy.ResourceVersion)
	err = r.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fieldOwner), client.ForceOwnership)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		log.V(1).Info("the policy changed meanwhile; waiting for its new version")
		return nil
	case err != nil:
		return fmt.Errorf("apply the status of ExportPolicy %s: %w", policy.Name, err)
	}
	r.recordEvent(policy, status.Conditions[0])
	log.Info("policy status changed", logReason, status.Conditions[0].Reason, logDigest, status.Digest)
	return nil
}

// status is the status that a policy should have. A condition whose status stays
// keeps its time.
func (r *reconciler) status(policy *v1alpha1.ExportPolicy, result engine.Result) v1alpha1.ExportPolicyStatus {
	compiled := metav1.Condition{
		Type:               v1alpha1.ConditionCompiled,
		Status:             metav1.ConditionTrue,
		Reason:             v1alpha1.ReasonCompiled,
		Message:            "The policy is in use.",
		ObservedGeneration: policy.Generation,
		// As the API server stores it, or the comparison would never be equal.
		LastTransitionTime: metav1.NewTime(r.options.Clock.Now()).Rfc3339Copy(),
	}
	if result.Err != nil {
		used := "It is not in use."
		if result.Digest != "" {
			used = "Its last version that compiled stays in use."
		}
		compiled.Status = metav1.ConditionFalse
		compiled.Reason = v1alpha1.ReasonCompileError
		compiled.Message = truncate(result.Err.Error(), maxMessage-len(used)-1) + "\n" + used
	}
	if old := meta.FindStatusCondition(policy.Status.Conditions, compiled.Type); old != nil && old.Status == compiled.Status {
		compiled.LastTransitionTime = old.LastTransitionTime
	}
	return v1alpha1.ExportPolicyStatus{Conditions: []metav1.Condition{compiled}, Digest: result.Digest}
}

// recordEvent records an event if the condition changed its status.
func (r *reconciler) recordEvent(policy *v1alpha1.ExportPolicy, now metav1.Condition) {
	old := meta.FindStatusCondition(policy.Status.Conditions, now.Type)
	if old != nil && old.Status == now.Status {
		return
	}
	kind := corev1.EventTypeNormal
	if now.Status != metav1.ConditionTrue {
		kind = corev1.EventTypeWarning
	}
	r.options.Recorder.Eventf(policy, nil, kind, now.Reason, now.Type, "%s", truncate(now.Message, maxNote))
}

// truncate cuts text to at most size bytes, between characters.
func truncate(text string, size int) string {
	const more = "..."
	if len(text) <= size {
		return text
	}
	cut := 0
	for i := range text {
		if i > size-len(more) {
			break
		}
		cut = i
	}
	return text[:cut] + more
}
