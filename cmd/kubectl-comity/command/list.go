// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize bounds one answer of the API server.
const pageSize = 500

// EachPage lists what a cluster has of a kind, page by page.
func EachPage[T any, List interface {
	*T
	client.ObjectList
}](ctx context.Context, c client.Client, each func(List), options ...client.ListOption) error {
	for next := ""; ; {
		page := List(new(T))
		if err := c.List(ctx, page, append(slices.Clone(options), client.Limit(pageSize), client.Continue(next))...); err != nil {
			return err
		}
		each(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}
