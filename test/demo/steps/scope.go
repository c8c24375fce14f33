// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"fmt"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/demo/check"
	"github.com/comity-mcs/comity/test/demo/world"
)

// scope narrows an export to one cluster, and lets the cluster outside try to
// read it nevertheless.
func scope(ctx context.Context, w *world.World) error {
	w.Out.Print("internal-api was applied with the label export-to: \"cluster-2,cluster-3\". A label value cannot contain a comma, so the webhook changed the label to an annotation:")
	out, err := w.Show(ctx, one, "-n", production, "get", "serviceexport", internal.Name, "-o",
		`custom-columns=NAME:.metadata.name,LABELS:.metadata.labels,EXPORT TO:.metadata.annotations.comity\.dev/export-to`)
	if err != nil {
		return err
	}
	if err := world.Contains(out, "<none> cluster-2,cluster-3"); err != nil {
		return err
	}
	w.Out.Print("The export is published in two exchange namespaces, one for each of the two clusters:")
	if err := published(ctx, w, two, three); err != nil {
		return err
	}
	if _, err := w.Show(ctx, one, "get", "exportrecords", "-A"); err != nil {
		return err
	}
	w.Out.Print("Now to cluster-2 alone:")
	if _, err := w.Show(ctx, one, "-n", production, "annotate", "serviceexport", internal.Name, "--overwrite", model.AnnotationExportTo+"="+two); err != nil {
		return err
	}
	narrowed := internal
	narrowed.Scope = []string{two}
	err = w.Await(ctx, "cluster-3 no longer imports it", func(ctx context.Context) error { return settled(ctx, w, []check.Export{narrowed}) })
	if err != nil {
		return err
	}
	if err := published(ctx, w, two); err != nil {
		return err
	}
	if _, err := w.Show(ctx, two, "-n", production, "get", "serviceimport", internal.Name); err != nil {
		return err
	}
	if err := w.ShowRefused(ctx, []string{"NotFound"}, three, "-n", production, "get", "serviceimport", internal.Name); err != nil {
		return err
	}
	if err := w.Await(ctx, "its name no longer resolves in cluster-3", func(ctx context.Context) error {
		return ask(ctx, w.Member(three), question{kind: "A", name: internal.Host(), because: "it is not exported to this cluster"})
	}); err != nil {
		return err
	}
	return strangers(ctx, w)
}

// published checks in which exchange namespaces of cluster-1 internal-api is.
func published(ctx context.Context, w *world.World, readers ...string) error {
	var want []string
	for _, reader := range readers {
		want = append(want, scoped(reader))
	}
	return w.Await(ctx, "internal-api is published for its scope alone", func(ctx context.Context) error {
		return check.PublishedIn(ctx, w.Member(one), internal, want)
	})
}

// strangers uses the credentials that cluster-2 and cluster-3 have for cluster-1.
func strangers(ctx context.Context, w *world.World) error {
	place := scoped(two)
	w.Out.Print("What cluster-3 may do in cluster-1, with the credential in its Secret comity-system/peer-cluster-1 (context cluster-3@cluster-1):")
	outside, err := w.AsPeer(ctx, three, one)
	if err != nil {
		return err
	}
	canList := []string{"auth", "can-i", "list", "exportrecords.exchange.comity.dev", "-n", place}
	list := []string{"-n", place, "get", "exportrecords,endpointslices"}
	if err := w.ShowRefused(ctx, []string{"no"}, outside, canList...); err != nil {
		return err
	}
	if err := w.ShowRefused(ctx, []string{"Forbidden", "exportrecords.exchange.comity.dev", "endpointslices.discovery.k8s.io"}, outside, list...); err != nil {
		return err
	}
	if err := w.ShowRefused(ctx, []string{"Forbidden"}, outside, "-n", production, "get", "services"); err != nil {
		return err
	}
	w.Out.Print("And cluster-2:")
	inside, err := w.AsPeer(ctx, two, one)
	if err != nil {
		return err
	}
	out, err := w.Show(ctx, inside, canList...)
	if err != nil {
		return err
	}
	if err := world.Contains(out, "yes"); err != nil {
		return err
	}
	if out, err = w.Show(ctx, inside, list...); err != nil {
		return err
	}
	if err := world.Contains(out, model.RecordName(internal.Namespace, internal.Name)); err != nil {
		return fmt.Errorf("cluster-2 reads what is exported to it: %w", err)
	}
	return nil
}

// scoped is the namespace of cluster-1 that one reader alone may read.
func scoped(reader string) string {
	return model.ScopedExchangeNamespace(model.ClusterID(one), model.ClusterID(reader))
}
