// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"fmt"
	"time"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
)

// Evaluator evaluates all policies together.
type Evaluator interface {
	Evaluate(ctx context.Context, in decision.Input) decision.Verdict
}

// Reviewer reads the facts about an export and has the policies evaluate them.
// Webhook, publisher and status use the same Reviewer, so that they cannot come to
// different verdicts on one export.
type Reviewer struct {
	Reader    Reader
	Evaluator Evaluator
}

// Review is the verdict on the request. If the facts could not be read it is
// NotEvaluated, with the cause as its Problem.
func (r Reviewer) Review(ctx context.Context, req Request) decision.Verdict {
	if req.Operation != decision.Audit {
		requested.Store(time.Now().UnixNano())
	}
	in, err := r.Reader.Input(ctx, req)
	if err != nil {
		return decision.Verdict{
			Outcome: decision.NotEvaluated,
			Problem: fmt.Sprintf("the facts about ServiceExport %s/%s could not be read: %v", req.Export.Namespace, req.Export.Name, err),
		}
	}
	verdict := r.Evaluator.Evaluate(ctx, in)
	verdict.Ratchet(in)
	verdict.Publication = decision.Publication{Published: in.Published, Kept: in.Kept}
	return verdict
}

// Admit is the verdict on an export as it is stored now (an audit). See InBackground.
func (r Reviewer) Admit(ctx context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict {
	return InBackground(ctx, func() decision.Verdict {
		return r.Review(ctx, Request{Operation: decision.Audit, Export: export})
	})
}
