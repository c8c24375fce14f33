// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Disconnect undoes a join between leaving and each of others: first all state in
// spec.removed of their Peers that the other side is removed, so that neither reads on
// and the agents remove what they imported. Then the Peers and Secrets go, the accounts
// (and every token of theirs with them) and the exchange namespaces between the two. With
// the last peer of a member also the namespace goes that it shares with all of them. With a
// hub, leaving loses its account and its namespaces there instead; others are all members
// that stay. A cluster without RESTConfig, the hub included, is taken for lost and left
// alone. Where an agent did not remove what it imported, its Peer stays, with a Step that is
// Pending. What no join made is never deleted.
func Disconnect(ctx context.Context, hub *Cluster, leaving Cluster, others []Cluster, opts Options) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	hub, all, err := checked(hub, append([]Cluster{leaving}, others...))
	if err != nil {
		return err
	}
	leaving, others = all[0], all[1:]
	var ends []end
	for _, other := range others {
		for _, pair := range [][2]Cluster{{leaving, other}, {other, leaving}} {
			m, err := openLive(pair[0], opts)
			if err != nil {
				return err
			}
			if m != nil {
				ends = append(ends, end{m, pair[1].ID})
			}
		}
	}
	if len(ends) == 0 && hub == nil {
		return fmt.Errorf("there is no access to cluster %s nor to another one; give that of an administrator", leaving.ID)
	}
	if err := forget(ctx, ends, removalTimeout); err != nil {
		return err
	}
	if hub != nil {
		return leaveHub(ctx, *hub, leaving, others, opts)
	}
	for _, e := range ends {
		local, shared := e.holder.Cluster, model.ExchangeNamespace(e.holder.ID)
		err := e.holder.removeAll(ctx, grants(local, e.peer, []string{shared}, []string{model.ScopedExchangeNamespace(local.ID, e.peer)}))
		if err == nil {
			err = e.holder.removeShared(ctx, e.peer)
		}
		if err := e.holder.named(err); err != nil {
			return err
		}
	}
	return nil
}

// leaveHub removes the credential of leaving for the hub, and what it has there.
func leaveHub(ctx context.Context, hub, leaving Cluster, others []Cluster, opts Options) error {
	var read []string
	own := []string{model.ExchangeNamespace(leaving.ID)}
	for _, other := range others {
		read = append(read, model.ExchangeNamespace(other.ID))
		own = append(own, model.ScopedExchangeNamespace(leaving.ID, other.ID), model.ScopedExchangeNamespace(other.ID, leaving.ID))
	}
	for _, at := range []struct {
		cluster Cluster
		objects []client.Object
	}{
		{leaving, []client.Object{secret(leaving.Namespace, model.ExchangeSecret)}},
		{hub, grants(hub, leaving.ID, read, own)},
	} {
		m, err := openLive(at.cluster, opts)
		if err == nil && m != nil {
			err = m.removeAll(ctx, at.objects)
		}
		if err != nil {
			return fmt.Errorf("cluster %s: %w", at.cluster.ID, err)
		}
	}
	return nil
}

// grants are the objects by which the account of a cluster at another one reads namespaces,
// then the account, then the namespaces that are for it alone, in the order of removal.
func grants(at Cluster, id model.ClusterID, read, own []string) (objects []client.Object) {
	account := accountOf(at, id)
	for _, namespace := range read {
		objects = append(objects, roleBinding(namespace, account, readerRole, at.Namespace, account))
	}
	objects = append(objects, roleBinding(at.Namespace, account, account, at.Namespace, account), role(at.Namespace, account), serviceAccount(at.Namespace, account))
	for _, name := range own {
		objects = append(objects, namespace(name, nil))
	}
	return objects
}

// openLive is c with a connection to it; nil if it is lost.
func openLive(c Cluster, opts Options) (*member, error) {
	if c.RESTConfig == nil {
		return nil, nil
	}
	return open(c, opts)
}

// removeShared removes the namespace that m shares with all its peers if nobody
// but gone reads it.
func (m *member) removeShared(ctx context.Context, gone model.ClusterID) error {
	shared := namespace(model.ExchangeNamespace(m.ID), nil)
	peers, err := m.peers(ctx)
	if err != nil {
		return err
	}
	var readers rbacv1.RoleBindingList
	if err := m.list(ctx, &readers, client.InNamespace(shared.Name)); err != nil {
		return err
	}
	if slices.ContainsFunc(readers.Items, func(b rbacv1.RoleBinding) bool { return b.RoleRef.Name == readerRole && b.Name != model.PeerName(gone) }) ||
		slices.ContainsFunc(peers, func(p v1alpha1.Peer) bool { return p.Name != string(gone) && !p.Spec.Removed }) {
		return nil
	}
	return m.remove(ctx, shared)
}

// peers are m's Peers; none if the API server does not serve them.
func (m *member) peers(ctx context.Context) ([]v1alpha1.Peer, error) {
	var found v1alpha1.PeerList
	if err := m.list(ctx, &found); err != nil && !apimeta.IsNoMatchError(err) {
		return nil, err
	}
	return found.Items, nil
}

// Peers are the ids of the clusters that c has Peers for, sorted.
func Peers(ctx context.Context, c Cluster) ([]model.ClusterID, error) {
	m, err := openLive(c, Options{})
	if err != nil || m == nil {
		return nil, err
	}
	found, err := m.peers(ctx)
	if err != nil {
		return nil, m.named(err)
	}
	var ids []model.ClusterID
	for i := range found {
		ids = append(ids, model.ClusterID(found[i].Name))
	}
	slices.Sort(ids)
	return ids, nil
}
