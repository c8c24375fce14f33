// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// removePeer deletes the Secret for peer, marked as leaving: the agent keeps what it
// imported from a peer whose Secret is merely gone. Where the Secret is missing
// already, although something of the peer is still imported, a marked one is created
// and deleted.
func (m *member) removePeer(ctx context.Context, peer model.ClusterID) error {
	secret := secretNamed(m.Cluster, PeerName(peer))
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	switch err := m.client.Get(ctx, client.ObjectKeyFromObject(secret), found); {
	case apierrors.IsNotFound(err):
		return m.markMissing(ctx, peer)
	case err != nil:
		return fmt.Errorf("read Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	if applied(found) && found.DeletionTimestamp == nil && !m.opts.DryRun {
		// The UID makes the API server refuse the mark for another Secret of that name.
		mark := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:"true"}}}`, found.UID, model.AnnotationLeaving)
		err := m.client.Patch(ctx, found, client.RawPatch(types.MergePatchType, []byte(mark)), client.FieldOwner(FieldOwner))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("mark Secret %s/%s with annotation %s: %w", secret.Namespace, secret.Name, model.AnnotationLeaving, err)
		}
	}
	return m.remove(ctx, secret)
}

// markMissing states to the agent that peer is removed, if something is still imported
// from it.
func (m *member) markMissing(ctx context.Context, peer model.ClusterID) error {
	imports, err := m.importsFrom(ctx, peer)
	if err != nil || !imports || m.opts.DryRun {
		return err
	}
	secret := peerSecret(m.Cluster, Cluster{ID: peer, Set: m.Set}, nil, map[string]string{model.AnnotationLeaving: "true"})
	secret.Data = nil
	if err := m.apply(ctx, secret, "states that the peer is removed, since its Secret is missing and what was imported from it is not"); err != nil {
		return err
	}
	return m.remove(ctx, secret)
}

// importsFrom reports whether something of peer is still imported: a slice of its
// endpoints, or a ServiceImport that lists it, for which there may be no slice.
func (m *member) importsFrom(ctx context.Context, peer model.ClusterID) (bool, error) {
	derived := &metav1.PartialObjectMetadataList{}
	derived.SetGroupVersionKind(discoveryv1.SchemeGroupVersion.WithKind("EndpointSliceList"))
	err := m.client.List(ctx, derived, client.MatchingLabels{
		model.LabelSourceCluster: string(peer), discoveryv1.LabelManagedBy: model.ManagedBy,
	}, client.Limit(1))
	if err != nil {
		return false, fmt.Errorf("list the EndpointSlices that were imported from cluster %s: %w", peer, err)
	}
	if len(derived.Items) > 0 {
		return true, nil
	}
	return m.isListed(ctx, peer)
}

// isListed reports whether a ServiceImport lists peer.
func (m *member) isListed(ctx context.Context, peer model.ClusterID) (bool, error) {
	for next := ""; ; {
		page := &unstructured.UnstructuredList{}
		page.SetGroupVersionKind(serviceImport)
		err := m.client.List(ctx, page, client.Limit(pageSize), client.Continue(next))
		if apimeta.IsNoMatchError(err) { // without the definition there is none
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("list the ServiceImports, to find those that list cluster %s: %w", peer, err)
		}
		for _, item := range page.Items {
			var imported mcsv1beta1.ServiceImport
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &imported); err != nil {
				return false, fmt.Errorf("read ServiceImport %s/%s: %w", item.GetNamespace(), item.GetName(), err)
			}
			if slices.Contains(model.ImportedFrom(&imported), peer) {
				return true, nil
			}
		}
		if next = page.GetContinue(); next == "" {
			return false, nil
		}
	}
}

// unmark takes the mark off a Secret that a leave which did not finish has left.
func (m *member) unmark(ctx context.Context, secret *corev1.Secret) error {
	if _, marked := secret.Annotations[model.AnnotationLeaving]; !marked || m.opts.DryRun {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:null}}}`, secret.UID, model.AnnotationLeaving)
	if err := m.client.Patch(ctx, secret, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner(FieldOwner)); err != nil {
		return fmt.Errorf("take annotation %s off Secret %s/%s: %w", model.AnnotationLeaving, secret.Namespace, secret.Name, err)
	}
	return nil
}
