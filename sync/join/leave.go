// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
)

// Disconnect undoes Connect: both sides forget the other's credential first, marked
// as leaving, so that neither reads on and both remove what they imported from the
// other, then the accounts go (and every token of theirs with
// them) and the exchange namespace between the two. With the last peer of a
// member also the namespace goes that it shares with all of them. A cluster
// without RESTConfig is taken for lost and left alone. Objects that Connect did
// not make are never deleted.
func Disconnect(ctx context.Context, a, b Cluster, opts Options) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	var reachable []*member
	var others []model.ClusterID
	for _, pair := range [][2]Cluster{{a, b}, {b, a}} {
		if _, err := Objects(pair[0], pair[1]); err != nil {
			return err
		}
		if pair[0].RESTConfig == nil {
			continue
		}
		c, err := pair[0].withDefaults()
		if err != nil {
			return err
		}
		m, err := open(c, opts)
		if err != nil {
			return err
		}
		reachable, others = append(reachable, m), append(others, pair[1].ID)
	}
	if len(reachable) == 0 {
		return fmt.Errorf("there is no access to cluster %s nor to cluster %s; give the kubeconfig of an administrator of one of them", a.ID, b.ID)
	}
	for i, m := range reachable {
		if err := m.removePeer(ctx, others[i]); err != nil {
			return fmt.Errorf("cluster %s: %w", m.ID, err)
		}
	}
	for i, m := range reachable {
		for _, object := range grants(m.Cluster, others[i]) {
			if err := m.remove(ctx, object); err != nil {
				return fmt.Errorf("cluster %s: %w", m.ID, err)
			}
		}
		if err := m.removeShared(ctx, others[i]); err != nil {
			return fmt.Errorf("cluster %s: %w", m.ID, err)
		}
	}
	return nil
}

// removeShared removes the namespace that m shares with all its peers if nobody
// but gone reads it.
func (m *member) removeShared(ctx context.Context, gone model.ClusterID) error {
	shared := &corev1.Namespace{}
	shared.Name = model.ExchangeNamespace(m.ID)
	peers, err := m.peers(ctx)
	if err != nil {
		return err
	}
	var readers rbacv1.RoleBindingList
	if err := m.client.List(ctx, &readers, client.InNamespace(shared.Name)); err != nil {
		return fmt.Errorf("list the RoleBindings in namespace %s: %w", shared.Name, err)
	}
	for i := range readers.Items {
		if b := &readers.Items[i]; b.RoleRef.Name == readerRole && b.Name != PeerName(gone) {
			return nil
		}
	}
	for id := range peers {
		if id != gone {
			return nil
		}
	}
	return m.remove(ctx, shared)
}

// peers are the Secrets of m's peers by the id that each is for.
func (m *member) peers(ctx context.Context) (map[model.ClusterID]*corev1.Secret, error) {
	var found corev1.SecretList
	if err := m.client.List(ctx, &found, client.InNamespace(m.Namespace), client.HasLabels{model.LabelClusterID}); err != nil {
		return nil, fmt.Errorf("list the Secrets of peers in namespace %s: %w", m.Namespace, err)
	}
	peers := map[model.ClusterID]*corev1.Secret{}
	for i := range found.Items {
		secret := &found.Items[i]
		if secret.DeletionTimestamp == nil {
			peers[model.ClusterID(secret.Labels[model.LabelClusterID])] = secret
		}
	}
	return peers, nil
}

// grants are the objects that let peer read local, in the order of removal.
func grants(local Cluster, peer model.ClusterID) []client.Object {
	account := PeerName(peer)
	shared, between := &rbacv1.RoleBinding{}, &corev1.Namespace{}
	shared.Namespace, shared.Name = model.ExchangeNamespace(local.ID), account
	between.Name = model.ScopedExchangeNamespace(local.ID, peer)
	own := []client.Object{&rbacv1.RoleBinding{}, &rbacv1.Role{}, &corev1.ServiceAccount{}}
	for _, object := range own {
		object.SetNamespace(local.Namespace)
		object.SetName(account)
	}
	return append(append([]client.Object{shared}, own...), between)
}

// Peers are the ids of the clusters that c has Secrets for, sorted.
func Peers(ctx context.Context, c Cluster) ([]model.ClusterID, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	m, err := open(c, Options{})
	if err != nil {
		return nil, err
	}
	found, err := m.peers(ctx)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", m.ID, err)
	}
	return slices.Sorted(maps.Keys(found)), nil
}
