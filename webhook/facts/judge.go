// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"fmt"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
)

// Evaluator answers for all policies together.
type Evaluator interface {
	Evaluate(ctx context.Context, in decision.Input) decision.Verdict
}

// Judge is the one verdict function: webhook, publisher and status ask it, so
// that none of them ever sees an export in another light than the others.
type Judge struct {
	Reader    Reader
	Evaluator Evaluator
}

// Decide is the verdict on the request. Where the facts could not be read it
// is NotEvaluated, with the reason as its Problem.
func (j Judge) Decide(ctx context.Context, req Request) decision.Verdict {
	in, err := j.Reader.Input(ctx, req)
	if err != nil {
		return decision.Verdict{
			Outcome: decision.NotEvaluated,
			Problem: fmt.Sprintf("the facts about ServiceExport %s/%s could not be read: %v", req.Export.Namespace, req.Export.Name, err),
		}
	}
	return j.Evaluator.Evaluate(ctx, in)
}

// Admit is the verdict on an export as it is stored now (an audit).
func (j Judge) Admit(ctx context.Context, export *mcsv1beta1.ServiceExport) decision.Verdict {
	return j.Decide(ctx, Request{Operation: decision.Audit, Export: export})
}
