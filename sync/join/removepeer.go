// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	imported := &metav1.PartialObjectMetadataList{}
	imported.SetGroupVersionKind(discoveryv1.SchemeGroupVersion.WithKind("EndpointSliceList"))
	err := m.client.List(ctx, imported, client.MatchingLabels{
		model.LabelSourceCluster: string(peer), discoveryv1.LabelManagedBy: model.ManagedBy,
	}, client.Limit(1))
	if err != nil {
		return fmt.Errorf("list the EndpointSlices that were imported from cluster %s: %w", peer, err)
	}
	if len(imported.Items) == 0 || m.opts.DryRun {
		return nil
	}
	secret := peerSecret(m.Cluster, Cluster{ID: peer, Set: m.Set}, nil, map[string]string{model.AnnotationLeaving: "true"})
	secret.Data = nil
	if err := m.apply(ctx, secret, "states that the peer is removed, since its Secret is missing and what was imported from it is not"); err != nil {
		return err
	}
	return m.remove(ctx, secret)
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
