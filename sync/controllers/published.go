// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Published reports which exports are published in the exchange. It works on every replica.
type Published struct {
	// Records reads ExportRecords from the cache of the exchange, with the index that
	// SetupWithManager adds.
	Records client.Reader
	// Read says why the exchange was not read yet; nil, as the field may be, if it was.
	Read func() error
}

// Of reports whether a record of exactly this export is in the exchange, in any
// exchange namespace. It fails where that is not known (yet).
func (p Published) Of(ctx context.Context, export *mcsv1beta1.ServiceExport) (bool, error) {
	if p.Read != nil {
		if err := p.Read(); err != nil {
			return false, err
		}
	}
	var records exchangev1alpha1.ExportRecordList
	name := model.RecordName(export.Namespace, export.Name)
	if err := p.Records.List(ctx, &records, client.MatchingFields{indexExport: name}, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list ExportRecords %s: %w", name, err)
	}
	for i := range records.Items {
		record := &records.Items[i]
		if record.Spec.ExportUID == export.UID && !record.Spec.Withdrawn {
			return true, nil
		}
	}
	return false, nil
}
