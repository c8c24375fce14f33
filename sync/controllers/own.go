// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/model"
)

// own is this cluster's own export as a source of its import.
func (i *importController) own(ctx context.Context, v *decide.ImportView) (decide.OwnSource, error) {
	entry, listed := decide.OwnEntry(v)
	local := v.Local
	if i.isIDDoubtful(ctx) && (!listed || local.Export == nil || entry.UID != local.Export.UID) {
		return decide.OwnSource{State: model.SourceNotRead, Why: i.foreignID()}, nil
	}
	switch {
	case local.Export == nil && !listed:
		return decide.OwnSource{State: model.SourceEnded}, nil
	case local.Export == nil:
		if d := i.definition.read(ctx, local.Key); d.Problem != "" || entry.CreatedAt.Before(d.Created) {
			return decide.OwnSource{State: model.SourceNotRead, Why: d.Problem}, nil
		}
		return decide.OwnSource{State: model.SourceEnded}, nil
	case local.Service == nil:
		return decide.OwnSource{State: model.SourceSuspended}, nil
	}
	switch local.Verdict.Outcome {
	case decision.Allowed:
		return decide.OwnSource{State: model.SourcePublished}, nil
	case decision.Denied:
		records, err := i.records(ctx, local.Key)
		if err != nil {
			return decide.OwnSource{}, err
		}
		if until, ok := decide.GraceEnds(local, records, v.Now); ok {
			return decide.OwnSource{State: model.SourcePublished, Until: until}, nil
		}
		return decide.OwnSource{State: model.SourceSuspended}, nil
	}
	return decide.OwnSource{State: model.SourceNotRead, Why: local.Verdict.Problem}, nil
}
