// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/test/demo/check"
	"github.com/comity-mcs/comity/test/demo/world"
)

// conflict makes one cluster disagree about a port, and agree again.
func conflict(ctx context.Context, w *world.World) error {
	w.Out.Print("cluster-2 changes the port of api to another one than the others have:")
	if err := setPort(ctx, w, `{"spec":{"ports":[{"port":9090,"targetPort":8080}]}}`); err != nil {
		return err
	}
	conflicting := func(status metav1.ConditionStatus) func(context.Context) error {
		return func(ctx context.Context) error {
			for _, source := range api.Sources() {
				if err := check.Exported(ctx, w.Member(source), api, status); err != nil {
					return err
				}
			}
			return nil
		}
	}
	if err := w.Await(ctx, "all exports of api have Conflict=True", conflicting(metav1.ConditionTrue)); err != nil {
		return err
	}
	w.Out.Print("The values of the oldest export are used (KEP-1645), and the status of every export of api reports the conflict:")
	for _, cluster := range []string{one, two} {
		out, err := w.Show(ctx, cluster, "-n", api.Namespace, "describe", "serviceexport", api.Name)
		if err != nil {
			return err
		}
		if err := world.Contains(out, "PortConflict", "8080/TCP", "9090/TCP", two); err != nil {
			return err
		}
	}
	w.Out.Print("Back to the port that the others have:")
	if err := setPort(ctx, w, `{"spec":{"ports":[{"port":8080,"targetPort":8080}]}}`); err != nil {
		return err
	}
	if err := w.Await(ctx, "all exports of api have Conflict=False", conflicting(metav1.ConditionFalse)); err != nil {
		return err
	}
	for _, cluster := range []string{one, two} {
		_, err := w.Show(ctx, cluster, "-n", api.Namespace, "get", "serviceexport", api.Name, "-o",
			`custom-columns=NAME:.metadata.name,CONFLICT:.status.conditions[?(@.type=="Conflict")].status,MESSAGE:.status.conditions[?(@.type=="Conflict")].message`)
		if err != nil {
			return err
		}
	}
	return w.Await(ctx, "api is served by all three again", func(ctx context.Context) error { return settled(ctx, w, []check.Export{api}) })
}

func setPort(ctx context.Context, w *world.World, patch string) error {
	_, err := w.Show(ctx, two, "-n", api.Namespace, "patch", "service", api.Name, "--type=merge", "-p", patch)
	return err
}
