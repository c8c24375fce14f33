// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// Kinds of the MCS API.
var (
	serviceExport = schema.GroupVersionKind{Group: "multicluster.x-k8s.io", Version: "v1beta1", Kind: "ServiceExport"}
	serviceImport = schema.GroupVersionKind{Group: "multicluster.x-k8s.io", Version: "v1beta1", Kind: "ServiceImport"}
)

// Purge removes from c all that Comity made there: the Peers, the credentials for
// them, their accounts and Roles, imports with their derived Services and
// EndpointSlices, its conditions on ServiceExports, and the exchange namespaces.
// What somebody else made is never deleted, whatever its labels and names are.
// The agent must not run: it would make its imports again. Repeating it is free.
func Purge(ctx context.Context, c Cluster, opts Options) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	if c, err = c.withDefaults(); err != nil {
		return err
	}
	m, err := open(c, opts)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		m.purgeAccess, m.purgeImports, m.purgeConditions, m.purgeNamespaces,
	} {
		if err := m.named(step(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// purgeAccess removes Peers and Secrets, then what lets peers in. Accounts of members,
// which are there if the cluster is the hub too, stay: they are the hub's.
func (m *member) purgeAccess(ctx context.Context) error {
	err := eachOf(ctx, m.client, v1alpha1.GroupVersion.WithKind("Peer"), func(peer *metav1.PartialObjectMetadata) error { return m.remove(ctx, peer) })
	if err != nil {
		return err
	}
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Secret"),
		rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
		rbacv1.SchemeGroupVersion.WithKind("Role"),
		corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	} {
		err := eachOf(ctx, m.client, kind, func(object *metav1.PartialObjectMetadata) error {
			if !strings.HasPrefix(object.Name, "peer-") && object.Name != model.ExchangeSecret {
				return nil
			}
			return m.remove(ctx, object)
		}, client.InNamespace(m.Namespace), client.MatchingLabels{managedByLabel: FieldOwner})
		if err != nil {
			return err
		}
	}
	return nil
}

// purgeImports removes what the agent made in the namespaces of users. Only its
// field manager proves that; labels may be set by anybody.
func (m *member) purgeImports(ctx context.Context) error {
	exchange := map[string]bool{}
	err := eachOf(ctx, m.client, corev1.SchemeGroupVersion.WithKind("Namespace"), func(ns *metav1.PartialObjectMetadata) error {
		exchange[ns.Name] = true
		return nil
	}, client.HasLabels{model.LabelExchangeFrom})
	if err != nil {
		return err
	}
	for _, kind := range []schema.GroupVersionKind{
		serviceImport,
		discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
		corev1.SchemeGroupVersion.WithKind("Service"),
	} {
		err := eachOf(ctx, m.client, kind, func(object *metav1.PartialObjectMetadata) error {
			if exchange[object.Namespace] || !model.IsManaged(object) {
				return nil
			}
			return m.removeDerived(ctx, object)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removeDerived deletes what the agent made. Where a policy of the API server
// (config/admission) reserves that to the agent's account, it acts as that account,
// as an administrator may.
func (m *member) removeDerived(ctx context.Context, object client.Object) error {
	const otherwise = "it was not made by Comity"
	err := m.removeIf(ctx, object, model.IsManaged, otherwise)
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
	return agent.removeIf(ctx, object, model.IsManaged, otherwise)
}

// purgeConditions takes back the conditions of the agent, and no other's.
func (m *member) purgeConditions(ctx context.Context) error {
	return eachOf(ctx, m.client, serviceExport, func(object *metav1.PartialObjectMetadata) error {
		if !model.AppliedBy(object, model.FieldOwner, "status") {
			return nil
		}
		nothing := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"namespace":%q,"name":%q,"uid":%q}}`,
			serviceExport.GroupVersion().String(), serviceExport.Kind, object.Namespace, object.Name, object.UID)
		if !m.opts.DryRun {
			err := m.client.SubResource("status").Patch(ctx, object, client.RawPatch(types.ApplyPatchType, []byte(nothing)),
				client.FieldOwner(model.FieldOwner), client.ForceOwnership)
			if client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("take the conditions off ServiceExport %s: %w", client.ObjectKeyFromObject(object), err)
			}
		}
		m.report(object, Changed, "without Comity's conditions")
		return nil
	})
}

// purgeNamespaces removes the namespaces that m publishes in.
func (m *member) purgeNamespaces(ctx context.Context) error {
	return eachOf(ctx, m.client, corev1.SchemeGroupVersion.WithKind("Namespace"), func(ns *metav1.PartialObjectMetadata) error {
		return m.remove(ctx, ns)
	}, client.MatchingLabels{model.LabelExchangeFrom: string(m.ID)})
}
