// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/decide"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// own is this cluster's own export as a source of its import. The API server is asked
// before what the import lists ends.
func (i *importController) own(ctx context.Context, v *decide.ImportView) decide.OwnSource {
	local := v.Local
	entry, listed := decide.OwnEntry(v)
	switch {
	case i.isIDDoubtful(ctx) && !decide.IsListedAsOwn(v):
		return decide.OwnSource{State: model.SourceNotRead, Why: i.foreignID()}
	case local.Export == nil && !listed:
		return decide.OwnSource{State: model.SourceEnded}
	case local.Service == nil && !listed:
		return decide.OwnSource{State: model.SourceSuspended}
	}
	var live decide.Live
	if decide.NeedsOwnLive(local) {
		live = i.liveExport(ctx, local)
	}
	var records []*exchangev1alpha1.ExportRecord
	if local.Export == nil || local.Verdict.Outcome == decision.Denied {
		var err error
		if records, err = i.records(ctx, local.Key); err != nil {
			return decide.OwnSource{State: model.SourceNotRead, Why: fmt.Sprintf("its ExportRecords cannot be read: %v", err)}
		}
	}
	return decide.Own(local, entry, live, records, v.Now)
}
