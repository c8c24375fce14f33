// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/decide"
)

// exportDefinition reads for an import what liveReader answers: decide.OwnSource replaces it.
type exportDefinition struct {
	reader client.Reader // without a cache
	clock  clock.PassiveClock
}

func (e *exportDefinition) read(ctx context.Context, key types.NamespacedName) decide.Definition {
	live := (&liveReader{reader: e.reader, clock: e.clock}).read(ctx, decide.LocalExport{Key: key})
	problem := cmp.Or(live.Problem, live.Undefined)
	if live.Export != "" {
		problem = "the API server has it, and the cache of the agent is behind; it is read again in a moment"
	}
	return decide.Definition{Problem: problem, Created: live.Defined}
}
