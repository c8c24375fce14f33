// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/model"
)

// namespaceFieldOwner is the field manager of what recordNamespaces writes. It is not
// FieldOwner, whose next apply of the Role would remove the annotations.
const namespaceFieldOwner = "comity-join-namespace"

// refuseForeign refuses an exchange namespace in which others have rights although no
// join made it: they would read what is published for one peer alone. Whoever may
// create a namespace can give it labels, field managers and Roles, so that only what is
// recorded in Comity's own namespace proves that a join made it. Without a record, as
// after an interrupted join or one by an earlier version, nobody may have rights there
// but by the RoleBindings of a join.
func (m *member) refuseForeign(ctx context.Context, found *corev1.Namespace, roles []rbacv1.Role) error {
	for i := range roles {
		if roles[i].Annotations[recordOf(found.Name)] == string(found.UID) {
			return nil
		}
	}
	var bindings rbacv1.RoleBindingList
	if err := m.list(ctx, &bindings, client.InNamespace(found.Name)); err != nil {
		return err
	}
	for i := range bindings.Items {
		if !m.isOfJoin(&bindings.Items[i], found) {
			return fmt.Errorf("namespace %s exists, it is not recorded that kubectl comity join made it, and RoleBinding %s gives others rights in it; delete "+
				"the namespace, or that RoleBinding if you trust what is in it, then join again",
				found.Name, bindings.Items[i].Name)
		}
	}
	return nil
}

// isOfJoin reports whether a RoleBinding is one of m's exchange, or the one by which
// another peer reads what is published for every peer. Who applies it sets what its Role
// allows.
func (m *member) isOfJoin(binding *rbacv1.RoleBinding, namespace *corev1.Namespace) bool {
	if slices.ContainsFunc(m.exchange, func(object client.Object) bool {
		wanted, is := object.(*rbacv1.RoleBinding)
		return is && wanted.Namespace == namespace.Name && sameGrant(wanted, binding)
	}) {
		return true
	}
	reads := roleBinding(namespace.Name, binding.Name, readerRole, m.Namespace, binding.Name)
	return namespace.Labels[model.LabelExchangeTo] == "" && sameGrant(reads, binding)
}

func sameGrant(a, b *rbacv1.RoleBinding) bool {
	return a.RoleRef == b.RoleRef && equality.Semantic.DeepEqual(a.Subjects, b.Subjects)
}

// recordOf is the annotation, on the Roles that a join gives to accounts in Comity's
// namespace, that holds the UID of an exchange namespace which the account may use.
func recordOf(namespace string) string { return "namespace.comity.dev/" + namespace }

// rolesOfAccounts are the Roles that joins gave to accounts in Comity's namespace.
func (m *member) rolesOfAccounts(ctx context.Context) ([]rbacv1.Role, error) {
	var roles rbacv1.RoleList
	err := m.list(ctx, &roles, client.InNamespace(m.Namespace), client.MatchingLabels{managedByLabel: FieldOwner})
	return roles.Items, err
}

// recordNamespaces records the exchange namespaces, which have been applied, before anybody gets a credential for them. It refuses those that somebody
// created after they were checked.
func (m *member) recordNamespaces(ctx context.Context) error {
	if m.opts.DryRun || len(m.exchange) == 0 {
		return nil
	}
	roles, err := m.rolesOfAccounts(ctx)
	if err != nil {
		return err
	}
	uids := map[string]types.UID{}
	for _, object := range m.exchange {
		if object.GetLabels()[model.LabelExchangeFrom] == "" {
			continue
		}
		var found corev1.Namespace
		if err := m.get(ctx, "", object.GetName(), &found); err != nil {
			return err
		}
		if err := m.refuseForeign(ctx, &found, roles); err != nil {
			return err
		}
		uids[found.Name] = found.UID
	}
	for i := range roles {
		if err := m.annotate(ctx, &roles[i], namespaceFieldOwner, recordsFor(roles[i].Name, m.exchange, uids)); err != nil {
			return err
		}
	}
	return nil
}

// recordsFor are the annotations of the namespaces that an account may use.
func recordsFor(account string, objects []client.Object, uids map[string]types.UID) map[string]string {
	records := map[string]string{}
	for _, object := range objects {
		binding, is := object.(*rbacv1.RoleBinding)
		if !is || binding.Subjects[0].Name != account {
			continue
		}
		if uid, exchange := uids[binding.Namespace]; exchange {
			records[recordOf(binding.Namespace)] = string(uid)
		}
	}
	return records
}
