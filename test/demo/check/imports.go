// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/demo/world"
)

// Imported checks that a cluster imports e from all its source clusters: the
// ServiceImport, its derived Service and the slices.
func Imported(ctx context.Context, w *world.World, m *world.Member, e Export) error {
	imported, err := Import(ctx, m, e)
	if err != nil {
		return err
	}
	complain := func(err error) error { return fmt.Errorf("ServiceImport %s in %s: %w", e, m.ID(), err) }
	want := mcsv1beta1.ClusterSetIP
	if e.Headless {
		want = mcsv1beta1.Headless
	}
	if imported.Spec.Type != want {
		return complain(fmt.Errorf("expected type %s, got %q", want, imported.Spec.Type))
	}
	var clusters []string
	for _, c := range imported.Status.Clusters {
		clusters = append(clusters, c.Cluster)
	}
	if err := same("status.clusters", e.Sources(), clusters); err != nil {
		return complain(err)
	}
	if err := hasCondition(imported.Status.Conditions, condition.TypeImportReady, metav1.ConditionTrue); err != nil {
		return complain(err)
	}
	if err := derived(ctx, m, e, imported); err != nil {
		return complain(err)
	}
	return slicesOf(ctx, w, m, e, imported.Annotations[model.AnnotationDerivedName])
}

// Import reads a ServiceImport.
func Import(ctx context.Context, m *world.Member, e Export) (*mcsv1beta1.ServiceImport, error) {
	var imported mcsv1beta1.ServiceImport
	if err := m.Client.Get(ctx, e.key(), &imported); err != nil {
		return nil, fmt.Errorf("ServiceImport %s in %s: %w", e, m.ID(), err)
	}
	return &imported, nil
}

// NotImported checks that a cluster has no ServiceImport of e.
func NotImported(ctx context.Context, m *world.Member, e Export) error {
	_, err := Import(ctx, m, e)
	switch {
	case err == nil:
		return fmt.Errorf("expected no ServiceImport %s in %s, there is one", e, m.ID())
	case !apierrors.IsNotFound(err):
		return err
	}
	return nil
}

// derived checks the Service that answers for an import.
func derived(ctx context.Context, m *world.Member, e Export, imported *mcsv1beta1.ServiceImport) error {
	name := imported.Annotations[model.AnnotationDerivedName]
	if name == "" {
		return fmt.Errorf("expected annotation %s, there is none", model.AnnotationDerivedName)
	}
	var service corev1.Service
	if err := m.Client.Get(ctx, types.NamespacedName{Namespace: e.Namespace, Name: name}, &service); err != nil {
		return fmt.Errorf("derived Service: %w", err)
	}
	if service.Labels[model.LabelServiceName] != e.Name || service.Labels[model.LabelServiceImported] != "true" {
		return fmt.Errorf("derived Service %s: expected labels %s=%s and %s=true, got %v",
			name, model.LabelServiceName, e.Name, model.LabelServiceImported, service.Labels)
	}
	if len(service.Spec.Selector) > 0 {
		return fmt.Errorf("derived Service %s: expected no selector, got %v", name, service.Spec.Selector)
	}
	if e.Headless {
		if service.Spec.ClusterIP != corev1.ClusterIPNone {
			return fmt.Errorf("derived Service %s: expected clusterIP None, got %q", name, service.Spec.ClusterIP)
		}
		return same("spec.ips", nil, imported.Spec.IPs)
	}
	if service.Spec.ClusterIP == "" || service.Spec.ClusterIP == corev1.ClusterIPNone {
		return fmt.Errorf("derived Service %s: expected a cluster IP, got %q", name, service.Spec.ClusterIP)
	}
	return same("spec.ips (those of derived Service "+name+")", service.Spec.ClusterIPs, imported.Spec.IPs)
}

// slicesOf checks that the mirrored slices hold the Pods of all source clusters
// and no others.
func slicesOf(ctx context.Context, w *world.World, m *world.Member, e Export, derivedName string) error {
	var list discoveryv1.EndpointSliceList
	err := m.Client.List(ctx, &list, client.InNamespace(e.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: derivedName})
	if err != nil {
		return err
	}
	found := map[string][]string{}
	for _, slice := range list.Items {
		cluster := slice.Labels[model.LabelSourceCluster]
		if _, exports := e.Pods[cluster]; !exports {
			return fmt.Errorf("EndpointSlice %s/%s in %s: expected a slice of one of %v, got one of %q", e.Namespace, slice.Name, m.ID(), e.Sources(), cluster)
		}
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
				found[cluster] = append(found[cluster], endpoint.Addresses...)
			}
		}
	}
	for _, source := range e.Sources() {
		want, err := PodIPs(ctx, w.Member(source), e)
		if err != nil {
			return err
		}
		what := fmt.Sprintf("EndpointSlices of %s in %s: addresses from %s", e, m.ID(), source)
		if err := same(what, want, found[source]); err != nil {
			return err
		}
	}
	return nil
}

// same compares values in any order.
func same(what string, want, got []string) error {
	sortedWant, sortedGot := slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))
	if !slices.Equal(sortedWant, sortedGot) {
		return fmt.Errorf("%s: expected %v, got %v", what, sortedWant, sortedGot)
	}
	return nil
}
