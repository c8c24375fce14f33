// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Disconnect undoes a join between leaving and each of others: first all state in
// spec.removed of their Peers that the other side is removed, so that neither reads on
// and the agents remove what they imported. Then the Peers and Secrets go, the accounts
// (and every token of theirs with them) and the exchange namespaces between the two. With a
// hub, leaving loses its account and its namespaces there instead; others are all members
// that stay. A cluster without RESTConfig, the hub included, is taken for lost and left
// alone. Where an agent did not remove what it imported, its Peer stays, with a Step that is
// Pending. What no join made is never deleted.
func Disconnect(ctx context.Context, hub *Cluster, leaving Cluster, others []Cluster, opts Options) error {
	hub, all, err := checked(hub, append([]Cluster{leaving}, others...))
	if err != nil {
		return err
	}
	leaving, others = all[0], all[1:]
	var ends []end
	for _, other := range others {
		for _, pair := range [][2]Cluster{{leaving, other}, {other, leaving}} {
			if pair[0].RESTConfig == nil {
				continue
			}
			m, err := open(pair[0], opts)
			if err != nil {
				return err
			}
			ends = append(ends, end{m, pair[1].ID})
		}
	}
	if err := forget(ctx, ends, removalTimeout); err != nil {
		return err
	}
	if hub == nil {
		for _, e := range ends {
			granted, err := grants(e.holder.Cluster, e.peer, []Cluster{e.holder.Cluster, {ID: e.peer}})
			if err := errors.Join(err, e.holder.remove(ctx, granted...)); err != nil {
				return e.holder.named(err)
			}
		}
		return nil
	}
	removeAt := func(at Cluster, objects ...client.Object) error {
		if at.RESTConfig == nil {
			return nil
		}
		m, err := open(at, opts)
		if err != nil {
			return err
		}
		return m.named(m.remove(ctx, objects...))
	}
	granted, err := grants(*hub, leaving.ID, all)
	return errors.Join(err, removeAt(leaving, secret(leaving.Namespace, model.ExchangeSecret)), removeAt(*hub, granted...))
}

// grants are those of the exchanges that only the cluster of an id needs, in the order of
// removal: the bindings by which its account reads, then the account, then the namespaces
// that are for it alone, or in the hub its own.
func grants(at Cluster, id model.ClusterID, members []Cluster) ([]client.Object, error) {
	objects, err := exchanges(at, members)
	slices.Reverse(objects)
	return slices.DeleteFunc(objects, func(o client.Object) bool {
		labels, of := o.GetLabels(), string(id)
		return o.GetName() != accountOf(at, id) && labels[model.LabelExchangeFrom] != of && labels[model.LabelExchangeTo] != of
	}), err
}

// Kinds that are listed.
var (
	service       = corev1.SchemeGroupVersion.WithKind("Service")
	serviceExport = mcsv1beta1.SchemeGroupVersion.WithKind("ServiceExport")
	serviceImport = mcsv1beta1.SchemeGroupVersion.WithKind("ServiceImport")
)

// Purge removes from c all that Comity made there: the Peers, the credentials for
// them, their accounts and Roles, imports with their derived Services and
// EndpointSlices, its conditions on ServiceExports, and the exchange namespaces.
// What somebody else made is never deleted, whatever its labels and names are.
// The agent must not run: it would make its imports again. A step that fails does not stop
// the others. Repeating it is free.
func Purge(ctx context.Context, c Cluster, opts Options) error {
	c, err := c.withDefaults()
	if err != nil {
		return err
	}
	m, err := open(c, opts)
	if err != nil {
		return err
	}
	namespaces := []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Namespace")} // that m publishes in
	return m.named(errors.Join(m.purgeAccess(ctx), m.purgeImports(ctx), m.purgeConditions(ctx),
		EachOf(ctx, m.client, namespaces, func(ns *metav1.PartialObjectMetadata) error { return m.remove(ctx, ns) },
			client.MatchingLabels{model.LabelExchangeFrom: string(m.ID)})))
}

// purgeAccess removes Peers and Secrets, then what lets peers in. Accounts of members,
// which are there if the cluster is the hub too, stay: they are the hub's.
func (m *member) purgeAccess(ctx context.Context) error {
	return EachOf(ctx, m.client, []schema.GroupVersionKind{
		v1alpha1.GroupVersion.WithKind("Peer"),
		corev1.SchemeGroupVersion.WithKind("Secret"),
		rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
		rbacv1.SchemeGroupVersion.WithKind("Role"),
		corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	}, func(object *metav1.PartialObjectMetadata) error {
		isAccess := object.Labels[managedByLabel] == FieldOwner && (strings.HasPrefix(object.Name, "peer-") || object.Name == model.ExchangeSecret)
		if object.Kind != "Peer" && !isAccess {
			return nil
		}
		return m.remove(ctx, object)
	}, client.InNamespace(m.Namespace))
}

// purgeImports removes what the agent made in the namespaces of users. Only its
// field manager proves that; labels may be set by anybody.
func (m *member) purgeImports(ctx context.Context) error {
	kinds := []schema.GroupVersionKind{serviceImport, discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), service}
	return EachOf(ctx, m.client, kinds, func(object *metav1.PartialObjectMetadata) error {
		// A slice in an exchange namespace is a copy of one, and names no import.
		isCopy := object.Kind == "EndpointSlice" && object.Labels[model.LabelExportNamespace] != "" && object.Labels[model.LabelServiceName] == ""
		if isCopy || !model.IsManaged(object) {
			return nil
		}
		return m.removeDerived(ctx, object)
	})
}

// removeDerived deletes what the agent made. Where a policy of the API server
// (config/admission) reserves that to the agent's account, it acts as that account,
// as an administrator may.
func (m *member) removeDerived(ctx context.Context, object client.Object) error {
	remove := func(as *member) error { return as.removeIf(ctx, object, model.IsManaged, "it was not made by Comity") }
	err := remove(m)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
		return err
	}
	as := m.Cluster
	as.RESTConfig = rest.CopyConfig(m.RESTConfig)
	as.RESTConfig.Impersonate = rest.ImpersonationConfig{UserName: fmt.Sprintf("system:serviceaccount:%s:%s", m.Namespace, m.ServiceAccount)}
	agent, openErr := open(as, m.opts)
	if openErr != nil {
		return openErr
	}
	return remove(agent)
}

// purgeConditions takes back the conditions of the agent, and no other's.
func (m *member) purgeConditions(ctx context.Context) error {
	return EachOf(ctx, m.client, []schema.GroupVersionKind{serviceExport}, func(object *metav1.PartialObjectMetadata) error {
		if !model.AppliedBy(object, model.FieldOwner, "status") {
			return nil
		}
		if !m.opts.DryRun {
			nothing := model.StatusOf(object, serviceExport, &struct{}{})
			delete(nothing.Object, "status")
			err := m.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(nothing), client.FieldOwner(model.FieldOwner), client.ForceOwnership)
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("take the conditions off ServiceExport %s: %w", client.ObjectKeyFromObject(object), err)
			}
		}
		m.report(object, Changed, "without Comity's conditions")
		return nil
	})
}

// Imports are all imports that Comity made in the cluster of c, with the exports of which
// each consists. The list of an import is on its derived Service; the copy on the
// ServiceImport counts where there is none.
func Imports(ctx context.Context, c client.Client) (map[types.NamespacedName]model.List, error) {
	found := map[types.NamespacedName]model.List{}
	err := EachOf(ctx, c, []schema.GroupVersionKind{serviceImport, service}, func(object *metav1.PartialObjectMetadata) error {
		key := client.ObjectKeyFromObject(object)
		if object.Kind == service.Kind {
			key.Name = object.Labels[model.LabelServiceName]
		}
		text, listed := object.Annotations[model.AnnotationList]
		if !listed || key.Name == "" || !model.IsManaged(object) {
			return nil
		}
		if list, err := model.ParseList(text); err == nil { // the agent reports a list that cannot be read
			found[key] = list
		}
		return nil
	})
	return found, err
}

// CountImports counts the imports of the cluster of c that have an export of one of clusters,
// and those of them that have no other.
func CountImports(ctx context.Context, c client.Client, clusters ...model.ClusterID) (some, only int, err error) {
	imports, err := Imports(ctx, c)
	for _, list := range imports {
		before := len(list.Entries)
		left := len(slices.DeleteFunc(list.Entries, func(e model.Entry) bool { return slices.Contains(clusters, e.Cluster) }))
		if left < before {
			some++
		}
		if left < before && left == 0 {
			only++
		}
	}
	return some, only, err
}

// EachOf calls do for the metadata of every object of some kinds, one kind after the other. A
// kind that the cluster does not serve has none.
func EachOf(ctx context.Context, c client.Client, kinds []schema.GroupVersionKind, do func(*metav1.PartialObjectMetadata) error, which ...client.ListOption) error {
	for _, kind := range kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.List(ctx, list, which...); err != nil && !apimeta.IsNoMatchError(err) {
			return fmt.Errorf("list %ss: %w", kind.Kind, err)
		}
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(kind)
			if err := do(&list.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
