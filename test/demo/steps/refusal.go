// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"

	"github.com/comity-mcs/comity/test/demo/world"
)

// refusal shows the webhook's message for an export that policy forbids.
func refusal(ctx context.Context, w *world.World) error {
	w.Out.Print("The namespaces for all steps, the same in every cluster:")
	for _, m := range w.Members {
		if _, err := w.Show(ctx, m.ID(), "apply", "-f", folder+"namespaces.yaml"); err != nil {
			return err
		}
	}
	w.Out.Print("A Service of type ExternalName, and a ServiceExport of its name:")
	expected := []string{"no-external-name", "production/payments", "ExternalName"}
	if err := w.ShowRefused(ctx, expected, one, "apply", "-f", folder+"external.yaml"); err != nil {
		return err
	}
	w.Out.Print("It was never stored:")
	return w.ShowRefused(ctx, []string{"NotFound"}, one, "-n", production, "get", "serviceexport", "payments")
}
