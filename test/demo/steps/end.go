// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/demo/check"
	"github.com/comity-mcs/comity/test/demo/world"
)

// end deletes every ServiceExport and shows that nothing is left of them.
func end(ctx context.Context, w *world.World) error {
	for _, m := range w.Members {
		if _, err := w.Show(ctx, m.ID(), "delete", "serviceexports", "-A", "--all"); err != nil {
			return err
		}
	}
	err := w.Await(ctx, "every trace of the exports is gone", func(ctx context.Context) error {
		for _, m := range w.Members {
			if err := check.Nothing(ctx, m); err != nil {
				return err
			}
			for _, e := range exports() {
				if err := ask(ctx, m, question{kind: "A", name: e.Host(), because: "it is exported no longer"}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, m := range w.Members {
		for _, what := range [][]string{
			{"serviceimports", "-A"},
			{"services,endpointslices", "-A", "-l", model.LabelServiceName},
			{"endpointslices", "-A", "-l", model.LabelExportName},
		} {
			out, err := w.Show(ctx, m.ID(), append([]string{"get"}, what...)...)
			if err != nil {
				return err
			}
			if err := world.Contains(out, "No resources found"); err != nil {
				return err
			}
		}
	}
	w.Out.Print("The Services themselves are as they were:")
	_, err = w.Show(ctx, one, "get", "services", "-A")
	return err
}
