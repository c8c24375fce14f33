// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/binaries"
)

// Build provides kubectl and makes what Comity is run from.
func (w *World) Build(ctx context.Context) error {
	programs := []string{binaries.Kubectl}
	if w.Kind == InDocker {
		programs = append(programs, binaries.Helm)
	}
	paths, err := w.programs.Ensure(ctx, programs...)
	if err != nil {
		return err
	}
	w.kubectl, w.helm = paths[binaries.Kubectl], paths[binaries.Helm]
	return w.backend.build(ctx)
}

// Start starts the clusters and makes them known to kubectl.
func (w *World) Start(ctx context.Context) error {
	started, err := w.backend.start(ctx, IDs())
	if err != nil {
		return err
	}
	for _, c := range started {
		w.Members = append(w.Members, &Member{Cluster: c})
	}
	for _, m := range w.Members {
		if m.Client, err = newClient(m); err != nil {
			return fmt.Errorf("connect to %s: %w", m.ID(), err)
		}
	}
	if err := clusters.MergedKubeconfig(w.Kubeconfig(), w.Members...); err != nil {
		return err
	}
	for _, m := range w.Members {
		if _, err := w.Show(ctx, m.ID(), "get", "nodes"); err != nil {
			return err
		}
	}
	return nil
}

// Install installs Comity everywhere at once.
func (w *World) Install(ctx context.Context) error {
	if err := w.backend.install(ctx); err != nil {
		return err
	}
	w.Out.Print("It runs %s, with the rights of its service account. Its policies:", w.backend.place())
	_, err := w.Show(ctx, "cluster-1", "get", "exportpolicies")
	return err
}

// Join joins every two members, and waits until each knows all others.
func (w *World) Join(ctx context.Context) error {
	w.Out.Print("Each cluster gets exchange namespaces, an account for each other cluster that may read two of them, and a credential for each other cluster:")
	if err := w.backend.join(ctx); err != nil {
		return err
	}
	if _, err := w.Show(ctx, "cluster-1", "get", "namespaces", "-l", model.LabelExchangeFrom, "-L", model.LabelExchangeFrom, "-L", model.LabelExchangeTo); err != nil {
		return err
	}
	if _, err := w.Show(ctx, "cluster-1", "get", "peers"); err != nil {
		return err
	}
	return w.Await(ctx, "every member has read the others", w.acquainted)
}

// acquainted asks every webhook whether it would admit an export to all others:
// it refuses clusters that it does not know.
func (w *World) acquainted(ctx context.Context) error {
	var errs []error
	for _, m := range w.Members {
		var ids []string
		for _, other := range w.Others(m.ID()) {
			ids = append(ids, other.ID())
		}
		probe := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, GenerateName: "probe-",
			Annotations: map[string]string{model.AnnotationExportTo: strings.Join(ids, ",")},
		}}
		if err := m.Client.Create(ctx, probe, client.DryRunAll); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.ID(), err))
		}
	}
	return errors.Join(errs...)
}
