// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/webhook/admit"
	"github.com/comity-mcs/comity/webhook/facts"
)

// mutateServiceExport moves the export-to label to the annotation. It reads only
// metadata, which is the same in every version of the object.
func mutateServiceExport(_ context.Context, req admission.Request) admit.Answer {
	now, was := &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadata{}
	updated, err := decode(req, now, was)
	if err != nil {
		return malformed(err)
	}
	if passes(req, now) {
		return admit.Allow()
	}
	var before *metav1.ObjectMeta
	if updated {
		before = &was.ObjectMeta
	}
	moved := now.DeepCopy()
	if err := admit.MoveScope(&moved.ObjectMeta, before); err != nil {
		return malformed(err)
	}
	stored, err := json.Marshal(now)
	wanted, failed := json.Marshal(moved)
	if err := errors.Join(err, failed); err != nil {
		return malformed(err)
	}
	answer, patches := admit.Allow(), admission.PatchResponseFromRaw(stored, wanted).Patches // no error: both are JSON
	if len(patches) > 0 {
		sort.Slice(patches, func(i, j int) bool { return patches[i].Path < patches[j].Path }) // each is about another field
		answer.Patch, _ = json.Marshal(patches)
		answer.PatchType = ptr.To(admissionv1.PatchTypeJSONPatch)
	}
	return answer
}

// Forecaster predicts the conflicts that an export would have with those of other
// members; conflict.Forecaster is one.
type Forecaster interface {
	Warnings(ctx context.Context, export *mcsv1beta1.ServiceExport) []string
}

// validateServiceExport has the policies review a ServiceExport, and checks the annotations
// that would keep it from being exported at all.
func (w webhooks) validateServiceExport(ctx context.Context, req admission.Request) admit.Answer {
	now, was := &mcsv1beta1.ServiceExport{}, &mcsv1beta1.ServiceExport{}
	updated, err := decode(req, now, was)
	if err != nil {
		return malformed(err)
	}
	if passes(req, now) || updated && admit.Unchanged(now, was) {
		return admit.Allow()
	}
	question := facts.Request{Operation: decision.Create, User: user(req), Export: now}
	var before *metav1.ObjectMeta
	if updated {
		question.Operation, question.OldExport, before = decision.Update, was, &was.ObjectMeta
	}
	subject := admit.Subject{Kind: decision.SubjectServiceExport, Key: client.ObjectKeyFromObject(now)}
	refused, unread := admit.Check(&now.ObjectMeta, before, func() (*corev1.Service, error) { return w.service(ctx, subject.Key) })
	switch {
	case refused != nil:
		return malformed(refused)
	case unread != nil:
		return admit.FromVerdict(subject, decision.Verdict{Problem: unread.Error()})
	}
	answer := w.conclude(req, subject, w.Reviewer.Review(ctx, question))
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

// service is the Service of an export; nil if there is none.
func (w webhooks) service(ctx context.Context, key client.ObjectKey) (*corev1.Service, error) {
	service := &corev1.Service{}
	err := w.Live.Get(ctx, key, service)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return service, err
}

// passes reports whether the request needs no review: it does not write the object,
// or the object is being deleted and only its finalizers keep it.
func passes(req admission.Request, subject metav1.Object) bool {
	writes := req.Operation == admissionv1.Create || req.Operation == admissionv1.Update
	return !writes || subject.GetDeletionTimestamp() != nil
}

// decode reads the object, and the one that it replaces if the request is an
// update. Unknown fields are ignored: the fields that are read here are the same in
// all versions, and a label that Kubernetes will refuse is no error yet.
func decode(req admission.Request, now metav1.Object, was any) (updated bool, err error) {
	if req.Operation != admissionv1.Create && req.Operation != admissionv1.Update {
		return false, nil
	}
	if err := unmarshal(req.Object.Raw, now); err != nil {
		return false, fmt.Errorf("%s could not be read: %w. Remedy: compare it with the schema of %s/%s", object(req), err, req.Kind.Group, req.Kind.Version)
	}
	now.SetNamespace(req.Namespace) // what the API server authorized
	if req.Operation != admissionv1.Update {
		return false, nil
	}
	if err := unmarshal(req.OldObject.Raw, was); err != nil {
		return false, fmt.Errorf("%s as it is stored could not be read: %w. Remedy: delete it and create it again", object(req), err)
	}
	return true, nil
}

// object is kind, namespace if any, and name.
func object(req admission.Request) string {
	return req.Kind.Kind + " " + strings.TrimPrefix(req.Namespace+"/"+req.Name, "/")
}

func user(req admission.Request) *decision.UserInfo {
	return &decision.UserInfo{Username: req.UserInfo.Username, Groups: req.UserInfo.Groups}
}

// malformed is the answer to an object that could not be read, or contradicts itself.
func malformed(err error) admit.Answer { return admit.Malformed(err.Error()) }
