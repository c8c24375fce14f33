// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/webhook/admit"
)

// mutateServiceExport moves the export-to label to the annotation. It reads only
// metadata, which is the same in every version of the object.
func mutateServiceExport(_ context.Context, _ *admissionRequest, now, was *metav1.PartialObjectMetadata) admit.Answer {
	if now.DeletionTimestamp != nil { // only its finalizers keep it
		return admit.Allow()
	}
	moved, before := now.DeepCopy(), ptr.Deref(was, metav1.PartialObjectMetadata{})
	if err := admit.MoveScope(&moved.ObjectMeta, &before.ObjectMeta); err != nil {
		return admit.Malformed(err.Error())
	}
	stored, err := json.Marshal(now)
	wanted, failed := json.Marshal(moved)
	response := admission.PatchResponseFromRaw(stored, wanted)
	sort.Slice(response.Patches, func(i, j int) bool { return response.Patches[i].Path < response.Patches[j].Path }) // each is about another field
	if err := errors.Join(err, failed, response.Complete(admission.Request{})); err != nil {
		return admit.Malformed(err.Error())
	}
	return response.AdmissionResponse
}

// Forecaster predicts the conflicts that an export would have with those of other
// members; conflict.Forecaster is one.
type Forecaster interface {
	Warnings(ctx context.Context, export *mcsv1beta1.ServiceExport) []string
}

// validateServiceExport has the policies review a ServiceExport, and checks the annotations
// that would keep it from being exported at all.
func (w webhooks) validateServiceExport(ctx context.Context, req *admissionRequest, now, was *mcsv1beta1.ServiceExport) admit.Answer {
	if now.DeletionTimestamp != nil || was != nil && admit.Unchanged(now, was) {
		return admit.Allow()
	}
	before := ptr.Deref(was, mcsv1beta1.ServiceExport{})
	subject := admit.Subject{Kind: decision.SubjectServiceExport, Key: client.ObjectKeyFromObject(now)}
	refused, unread := admit.Check(&now.ObjectMeta, &before.ObjectMeta, func() (*corev1.Service, error) {
		service := &corev1.Service{}
		if err := w.Live.Get(ctx, subject.Key, service); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		return service, nil
	})
	switch {
	case refused != nil:
		return admit.Malformed(refused.Error())
	case unread != nil:
		return admit.FromVerdict(subject, decision.Verdict{Problem: unread.Error()})
	}
	answer := w.conclude(req, subject, w.Reviewer.Review(ctx, decision.Input{
		Operation: decision.Operation(req.Operation), UserInfo: &req.UserInfo, Object: now, OldObject: was,
	}))
	if !answer.Allowed {
		return answer
	}
	if reserved := model.ReservedOf(now); reserved != "" {
		answer.Warnings = append(answer.Warnings, reserved)
	}
	if w.Conflicts != nil {
		answer.Warnings = append(answer.Warnings, w.Conflicts.Warnings(ctx, now)...)
	}
	return answer
}

// validateService has the policies review the export of a Service that becomes
// ExternalName. Otherwise one could bypass them: export first, then change.
func (w webhooks) validateService(ctx context.Context, req *admissionRequest, now, was *corev1.Service) admit.Answer {
	// config/webhook sends no other requests here; any other is allowed.
	if was == nil || now.Spec.Type != corev1.ServiceTypeExternalName || was.Spec.Type == corev1.ServiceTypeExternalName {
		return admit.Allow()
	}
	subject := admit.Subject{Kind: decision.SubjectService, Key: client.ObjectKeyFromObject(now)}
	export := &mcsv1beta1.ServiceExport{}
	switch err := w.Live.Get(ctx, subject.Key, export); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		// Without the MCS API there are no exports either.
		return admit.Allow()
	case err != nil:
		return w.conclude(req, subject, decision.Verdict{Problem: fmt.Sprintf("whether it is exported could not be read: %v", err)})
	case export.DeletionTimestamp != nil:
		return admit.Allow()
	}
	return w.conclude(req, subject, w.Reviewer.Review(ctx, decision.Input{
		Operation: decision.Update, Subject: decision.SubjectService, UserInfo: &req.UserInfo, Object: export, Service: now,
	}))
}
