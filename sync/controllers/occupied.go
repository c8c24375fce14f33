// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/plan"
)

// addOccupied adds the slices that an earlier create met and the label does not show.
func (i *importController) addOccupied(ctx context.Context, key types.NamespacedName, current *plan.Current) error {
	value, ok := i.occupied.Load(key)
	if !ok {
		return nil
	}
	have := map[string]bool{}
	for _, s := range current.Slices {
		have[s.Name] = true
	}
	for _, name := range value.([]string) {
		s, err := getSlice(ctx, i.client, types.NamespacedName{Namespace: key.Namespace, Name: name})
		if err != nil {
			return err
		}
		if s != nil && !have[name] {
			current.Slices, have[name] = append(current.Slices, s), true
		}
	}
	return nil
}

// rememberOccupied keeps the name of a slice that a create met.
func (i *importController) rememberOccupied(key types.NamespacedName, err error) {
	var failed *apply.Error
	if !errors.As(err, &failed) || failed.Class != apply.NameTaken {
		return
	}
	if _, isSlice := failed.Action.Object.(*discoveryv1.EndpointSlice); !isSlice {
		return
	}
	names := []string{failed.Action.Object.GetName()}
	if value, ok := i.occupied.Load(key); ok {
		names = append(names, value.([]string)...)
	}
	i.occupied.Store(key, names[:min(len(names), 100)])
}
