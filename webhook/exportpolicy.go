// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/webhook/admit"
)

// validateExportPolicy refuses an ExportPolicy that cannot be used, usually because its
// module does not compile. Stored, it would keep the exports that it matches from being
// evaluated.
//
// The answer to one that is stored, or would be in a dry run, warns what it would do.
func (w webhooks) validateExportPolicy(ctx context.Context, _ *admissionRequest, now, was *policyv1alpha1.ExportPolicy) admit.Answer {
	if w.Policies == nil || now.DeletionTimestamp != nil || was != nil && equality.Semantic.DeepEqual(now.Spec, was.Spec) {
		return admit.Allow()
	}
	would, err := w.Policies.Check(ctx, now)
	if err != nil {
		// The compiler names places as file:row:column; users have no such file.
		if apierrors.IsServiceUnavailable(err) {
			return admit.Unavailable(fmt.Sprintf("ExportPolicy %s could not be checked: %v. Remedy: try again in a few seconds", now.Name, err))
		}
		return admit.Malformed(fmt.Sprintf("ExportPolicy %[1]s cannot be used:\n%[2]v\nRemedy: correct what the lines above name"+
			" (%[1]s.rego:row:column is a place in spec.rego); nothing that is stored was changed", now.Name, err))
	}
	answer := admit.Allow()
	answer.Warnings = admit.Lines(would)
	return answer
}
