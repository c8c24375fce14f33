// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
)

// Stored has the stored exports and imports and the facts about each, for a preview of
// policies: what the policies would be given in an audit of it now.
type Stored struct {
	Reader Reader
	// ImportInputs lists the imports; when nil, there are none.
	ImportInputs func(ctx context.Context) ([]decision.ImportInput, error)
}

// Exports lists all ServiceExports. Nobody may change what they refer to.
func (s Stored) Exports(ctx context.Context) ([]mcsv1beta1.ServiceExport, error) {
	var list mcsv1beta1.ServiceExportList
	err := s.Reader.Client.List(ctx, &list, client.UnsafeDisableDeepCopy)
	return list.Items, err
}

// Input is the input of an audit of one export.
func (s Stored) Input(ctx context.Context, export *mcsv1beta1.ServiceExport) (decision.Input, error) {
	return s.Reader.Input(ctx, Request{Operation: decision.Audit, Export: export})
}

// Imports lists all imports, one for each source cluster.
func (s Stored) Imports(ctx context.Context) ([]decision.ImportInput, error) {
	if s.ImportInputs == nil {
		return nil, nil
	}
	return s.ImportInputs(ctx)
}
