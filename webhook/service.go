// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/webhook/admit"
	"github.com/comity-mcs/comity/webhook/facts"
)

// validateService has the policies review the export of a Service that becomes
// ExternalName. Otherwise one could bypass them: export first, then change.
func (w webhooks) validateService(ctx context.Context, req admission.Request, now, was *corev1.Service) admit.Answer {
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
	return w.conclude(req, subject, w.Reviewer.Review(ctx, facts.Request{
		Operation: decision.Update, Subject: decision.SubjectService, User: user(req), Export: export, Service: now,
	}))
}
