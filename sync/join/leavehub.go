// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
)

// DisconnectHub takes leaving out of a clusterset that was made by ConnectHub:
// as with Disconnect the Peers come first, so that none reads on, then it loses its
// credentials, its account in the hub and its namespaces there. others are the
// members that stay. Clusters without RESTConfig, the hub included, are taken for
// lost and left alone. What no join made is never deleted.
func DisconnectHub(ctx context.Context, hub Hub, leaving Cluster, others []Cluster, opts Options) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	all, err := checkMembers(append([]Cluster{leaving}, others...))
	if err != nil {
		return err
	}
	leaving, others = all[0], all[1:]
	var ends []end
	for _, other := range others {
		for _, pair := range [][2]Cluster{{other, leaving}, {leaving, other}} {
			m, err := openLive(pair[0], opts)
			if err != nil {
				return err
			}
			if m != nil {
				ends = append(ends, end{m, pair[1].ID})
			}
		}
	}
	if err := forget(ctx, ends, opts); err != nil {
		return err
	}
	if err := removeFrom(ctx, leaving, opts, secretNamed(leaving, model.ExchangeSecret)); err != nil {
		return err
	}
	at, err := hub.cluster(leaving.Set).withDefaults()
	if err != nil {
		return err
	}
	return removeFrom(ctx, at, opts, leftInHub(at.Namespace, leaving.ID, all)...)
}

// removeFrom removes objects from a cluster unless it is lost.
func removeFrom(ctx context.Context, c Cluster, opts Options, objects ...client.Object) error {
	m, err := openLive(c, opts)
	if err != nil || m == nil {
		return err
	}
	for _, object := range objects {
		if err := m.remove(ctx, object); err != nil {
			return fmt.Errorf("cluster %s: %w", c.ID, err)
		}
	}
	return nil
}

func secretNamed(c Cluster, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
}

// leftInHub is what belongs to a member in the hub, in the order of removal:
// its rights, its account, then the namespaces from it and to it.
func leftInHub(accounts string, id model.ClusterID, all []Cluster) []client.Object {
	name := MemberName(id)
	var rights, namespaces []client.Object
	for _, m := range all {
		for _, s := range spacesOf(m.ID, all) {
			switch to := s.labels[model.LabelExchangeTo]; {
			case m.ID == id || to == string(id):
				ns := &corev1.Namespace{}
				ns.Name = s.name
				namespaces = append(namespaces, ns)
			case to == "":
				rights = append(rights, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}})
			}
		}
	}
	at := metav1.ObjectMeta{Namespace: accounts, Name: name}
	rights = append(rights, &rbacv1.RoleBinding{ObjectMeta: at}, &rbacv1.Role{ObjectMeta: at}, &corev1.ServiceAccount{ObjectMeta: at})
	return append(rights, namespaces...)
}
