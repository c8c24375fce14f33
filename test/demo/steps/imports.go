// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/demo/check"
	"github.com/comity-mcs/comity/test/demo/world"
)

// imports applies all manifests to their clusters and shows the imports.
func imports(ctx context.Context, w *world.World) error {
	for _, apply := range []struct {
		cluster string
		files   []string
	}{
		{one, []string{"web", "stateful", "database", "cassandra", "api", "internal-api"}},
		{two, []string{"cassandra", "api"}},
		{three, []string{"api"}},
	} {
		args := []string{"apply"}
		for _, file := range apply.files {
			args = append(args, "-f", folder+file+".yaml")
		}
		if _, err := w.Show(ctx, apply.cluster, args...); err != nil {
			return err
		}
	}
	if _, err := w.Show(ctx, one, "-n", rings.Namespace, "scale", "statefulset", rings.Name, "--replicas=2"); err != nil {
		return err
	}
	if err := w.Await(ctx, "every cluster in scope imports every export", func(ctx context.Context) error { return settled(ctx, w, exports()) }); err != nil {
		return err
	}
	w.Out.Print("Every import exists, with a derived Service and at least one EndpointSlice for each source cluster:")
	for _, m := range w.Members {
		for _, args := range [][]string{
			{"get", "serviceimports", "-A", "-o", "wide"},
			{"get", "services", "-A", "-o", "wide", "-l", model.LabelServiceImported + "=true", "-L", model.LabelServiceName},
			{"get", "endpointslices", "-A", "-o", "wide", "-l", model.LabelServiceName, "-L", model.LabelSourceCluster},
		} {
			if _, err := w.Show(ctx, m.ID(), args...); err != nil {
				return err
			}
		}
	}
	w.Out.Print("The status of the exports:")
	_, err := w.Show(ctx, one, "get", "serviceexports", "-A", "-o",
		`custom-columns=NAMESPACE:.metadata.namespace,NAME:.metadata.name,VALID:.status.conditions[?(@.type=="Valid")].status,`+
			`READY:.status.conditions[?(@.type=="Ready")].message,CONFLICT:.status.conditions[?(@.type=="Conflict")].status`)
	return err
}

// settled checks that exports are imported wherever they reach, and nowhere
// else, and that nobody conflicts with anybody.
func settled(ctx context.Context, w *world.World, all []check.Export) error {
	for _, e := range all {
		for _, source := range e.Sources() {
			if err := check.Exported(ctx, w.Member(source), e, metav1.ConditionFalse); err != nil {
				return err
			}
		}
		for _, m := range w.Members {
			var err error
			if e.Reaches(m.ID()) {
				err = check.Imported(ctx, w, m, e)
			} else {
				err = check.NotImported(ctx, m, e)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
