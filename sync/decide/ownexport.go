// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/comity-mcs/comity/sync/model"
)

// Definition is what Import knows of the own ServiceExport that was not found: OwnSource
// replaces it.
type Definition struct {
	Problem string
	Created time.Time
}

// NeedsOwnDefinition reports whether Import would remove what this cluster itself
// contributes because there is no ServiceExport. Then v.Definition has to be read.
func NeedsOwnDefinition(v ImportView) bool {
	return v.Local.Export == nil && slices.ContainsFunc(v.Current.Slices, func(s *discoveryv1.EndpointSlice) bool {
		return model.IsManaged(s) && s.Labels[model.LabelSourceCluster] == string(v.Self)
	})
}

// ownExportIsLost reports whether the own ServiceExport is not known to be deleted.
func (v ImportView) ownExportIsLost() bool {
	return NeedsOwnDefinition(v) && (v.Definition.Problem != "" || slices.ContainsFunc(recorded(v.Current.Import), func(e model.SourceExport) bool {
		return e.Cluster == v.Self && e.CreatedAt.Before(v.Definition.Created)
	}))
}

// NeedsOwnRecords reports whether the own export may still count in the own import
// although policies deny it. Then v.OwnRecords have to be read.
func NeedsOwnRecords(v ImportView) bool {
	return v.Local.Export != nil && allHaveGrace(v.Local.Verdict)
}
