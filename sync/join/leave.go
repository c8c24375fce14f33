// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Disconnect undoes Connect between leaving and each of others: first all state in
// spec.removed of their Peers that the other side is removed, so that neither reads on
// and the agents remove what they imported. Then the Peers and Secrets go, the accounts
// (and every token of theirs with them) and the exchange namespaces between the two. With
// the last peer of a member also the namespace goes that it shares with all of them. A
// cluster without RESTConfig is taken for lost and left alone. Where an agent did not
// remove what it imported, its Peer stays, with a Step that is Pending.
func Disconnect(ctx context.Context, leaving Cluster, others []Cluster, opts Options) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	var ends []end
	for _, other := range others {
		for _, pair := range [][2]Cluster{{leaving, other}, {other, leaving}} {
			if _, err := Objects(pair[0], pair[1]); err != nil {
				return err
			}
			m, err := openLive(pair[0], opts)
			if err != nil {
				return err
			}
			if m != nil {
				ends = append(ends, end{m, pair[1].ID})
			}
		}
	}
	if len(ends) == 0 {
		return fmt.Errorf("there is no access to cluster %s nor to another one; give the kubeconfig of an administrator of one of them", leaving.ID)
	}
	if err := forget(ctx, ends, opts); err != nil {
		return err
	}
	for _, e := range ends {
		for _, object := range grants(e.holder.Cluster, e.peer) {
			if err := e.holder.remove(ctx, object); err != nil {
				return fmt.Errorf("cluster %s: %w", e.holder.ID, err)
			}
		}
		if err := e.holder.removeShared(ctx, e.peer); err != nil {
			return fmt.Errorf("cluster %s: %w", e.holder.ID, err)
		}
	}
	return nil
}

// openLive is c with a connection to it; nil if it is lost.
func openLive(c Cluster, opts Options) (*member, error) {
	if c.RESTConfig == nil {
		return nil, nil
	}
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	return open(c, opts)
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
	for i := range peers {
		if peers[i].Name != string(gone) && !peers[i].Spec.Removed {
			return nil
		}
	}
	return m.remove(ctx, shared)
}

// peers are m's Peers; none if the API server does not serve them.
func (m *member) peers(ctx context.Context) ([]v1alpha1.Peer, error) {
	var found v1alpha1.PeerList
	if err := m.client.List(ctx, &found); err != nil && !apimeta.IsNoMatchError(err) {
		return nil, fmt.Errorf("list the Peers: %w", err)
	}
	return found.Items, nil
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

// Peers are the ids of the clusters that c has Peers for, sorted.
func Peers(ctx context.Context, c Cluster) ([]model.ClusterID, error) {
	m, err := openLive(c, Options{})
	if err != nil || m == nil {
		return nil, err
	}
	found, err := m.peers(ctx)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", m.ID, err)
	}
	var ids []model.ClusterID
	for i := range found {
		ids = append(ids, model.ClusterID(found[i].Name))
	}
	slices.Sort(ids)
	return ids, nil
}
