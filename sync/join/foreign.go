// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
)

// refuseForeign refuses an exchange namespace that exists, has the right labels,
// and in which somebody has rights although no join made it: they would read what
// is published for one peer alone. Labels and field managers prove nothing, because
// whoever may create a namespace sets both. The Roles of a join do: the API server
// lets only those create them who have rights on records themselves. Without them,
// as after an interrupted join, only cluster administrators may have rights there.
func (m *member) refuseForeign(ctx context.Context, namespace string) error {
	for _, name := range []string{readerRole, writerRole} {
		var role rbacv1.Role
		key := client.ObjectKey{Namespace: namespace, Name: name}
		if err := m.client.Get(ctx, key, &role); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read Role %s: %w", key, err)
		}
		if slices.ContainsFunc(role.Rules, readsRecords) {
			return nil
		}
	}
	var bindings rbacv1.RoleBindingList
	if err := m.client.List(ctx, &bindings, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list the RoleBindings of namespace %s: %w", namespace, err)
	}
	if len(bindings.Items) > 0 {
		return fmt.Errorf("namespace %s exists with the labels of an exchange namespace, but kubectl comity join did not make it, and RoleBinding %s gives "+
			"others rights in it; delete the namespace, or that RoleBinding if you trust what is in the namespace, then join again",
			namespace, bindings.Items[0].Name)
	}
	return nil
}

// readsRecords reports whether a rule lets its subjects read what is published.
func readsRecords(rule rbacv1.PolicyRule) bool {
	return slices.Contains(rule.APIGroups, v1alpha1.GroupVersion.Group) &&
		slices.Contains(rule.Resources, "exportrecords") && slices.Contains(rule.Verbs, "get")
}
