// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote/budget"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// FieldOwner is the field manager of every object that this package applies.
const FieldOwner = "comity-join"

// KubeconfigKey is the key in the Secret of a Peer that holds the kubeconfig.
const KubeconfigKey = kubeconfig.SecretKey

// Names of the Roles in every exchange namespace.
const (
	readerRole = "comity-exchange-reader"
	writerRole = "comity-exchange-writer"
)

// What readers and writers of an exchange namespace may do. Writers apply, which
// is a patch, and a creation where there is nothing yet; they update slices in
// which only endpoints change. Their Lease they renew, and never take back.
var (
	readVerbs  = []string{"get", "list", "watch"}
	writeVerbs = []string{"get", "list", "watch", "create", "patch", "delete"}
	readRules  = exchangeRules(readVerbs, readVerbs, readVerbs)
	writeRules = exchangeRules(writeVerbs, append(slices.Clone(writeVerbs), "update"), []string{"get", "create", "patch"})
)

const managedByLabel = "app.kubernetes.io/managed-by"

// Objects is everything but credentials and Peers that members need so that each can read
// what the others export to it: for each of them in their order, or all for the hub if there
// is one. It gives the hub, if there is one, and the members too, with their defaults. It
// needs no access. Write applies the same objects; an administrator may keep them in Git
// instead.
func Objects(hub *Cluster, members ...Cluster) (clusters []Cluster, all [][]client.Object, err error) {
	if hub, members, err = checked(hub, members); err != nil {
		return nil, nil, err
	}
	if len(members) == 0 || hub == nil && len(members) == 1 {
		return nil, nil, fmt.Errorf("expected at least two clusters to join, or every cluster that uses the hub, found %d", len(members))
	}
	clusters, publishAt := members, members
	if hub != nil {
		publishAt = []Cluster{*hub}
		clusters = append(publishAt, members...)
	}
	for _, at := range publishAt {
		objects, err := exchanges(at, members)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, objects)
	}
	return clusters, all, nil
}

// exchanges are what is needed at a member, or at the hub, so that members read what is
// published there: namespaces first, then quotas, accounts, Roles and their bindings.
func exchanges(at Cluster, members []Cluster) ([]client.Object, error) {
	publishers := []Cluster{at}
	if at.isHub {
		publishers = members
	}
	namespaces := []client.Object{namespace(at.Namespace, nil)}
	var quotas, accounts, roles []client.Object
	for _, m := range members {
		if at.isHub || m.ID != at.ID {
			account := accountOf(at, m.ID)
			accounts = append(accounts, serviceAccount(at.Namespace, account),
				role(at.Namespace, account, renewRule(account)), roleBinding(at.Namespace, account, account, at.Namespace, account))
		}
	}
	for _, from := range publishers {
		others := model.Without(members, func(m Cluster) bool { return m.ID == from.ID })
		// Each member has one namespace that all others read, and one for each other alone.
		for _, to := range append([]Cluster{from}, others...) {
			name, readers := model.ExchangeNamespace(from.ID), others
			labels := map[string]string{managedByLabel: FieldOwner, model.LabelExchangeFrom: string(from.ID)}
			if to.ID != from.ID {
				name, readers = model.ScopedExchangeNamespace(from.ID, to.ID), []Cluster{to}
				labels[model.LabelExchangeTo] = string(to.ID)
			}
			if name == at.Namespace {
				return nil, fmt.Errorf("cluster id %q: its exchange namespace would be %s, which is Comity's own; choose another id, or another namespace for Comity",
					from.ID, name)
			}
			namespaces = append(namespaces, namespace(name, labels))
			roles = append(roles, role(name, readerRole, readRules...))
			for _, reader := range readers {
				account := accountOf(at, reader.ID)
				roles = append(roles, roleBinding(name, account, readerRole, at.Namespace, account))
			}
			rules, writer := slices.Clip(writeRules), from.ServiceAccount
			if at.isHub {
				quotas = append(quotas, quota(name))
				// A member may also see that its namespace in the hub is there, and no other: a list would show all members.
				rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{name}, Verbs: []string{"get"}})
				writer = model.MemberName(from.ID)
			}
			roles = append(roles, role(name, writerRole, rules...), roleBinding(name, writerRole, writerRole, at.Namespace, writer))
		}
	}
	return slices.Concat(namespaces, quotas, accounts, roles), nil
}

// accountOf is the account of a cluster in another one, or in the hub.
func accountOf(at Cluster, id model.ClusterID) string {
	if at.isHub {
		return model.MemberName(id)
	}
	return model.PeerName(id)
}

// exchangeRules grants verbs on the records, the slices and the Lease of an exchange
// namespace, and none on anything else: no Secret, no status, no wildcard.
func exchangeRules(records, copies, lease []string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{
			APIGroups: []string{v1alpha1.GroupVersion.Group},
			Resources: []string{"exportrecords", "importrecords", "memberrecords", "namespacerecords"},
			Verbs:     records,
		},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: copies},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: lease},
	}
}

// renewRule lets account ask for new tokens of its own, so that credentials can
// be short-lived without an administrator at hand. The resource name is what
// keeps one peer from becoming another.
func renewRule(account string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups:     []string{""},
		Resources:     []string{"serviceaccounts/token"},
		ResourceNames: []string{account},
		Verbs:         []string{"create"},
	}
}

// secret is one by which the agent reaches another cluster, without the credential.
func secret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: meta(namespace, name), Type: corev1.SecretTypeOpaque}
}

// formatCIDRs lists prefixes in order, each once.
func formatCIDRs(prefixes []netip.Prefix) []string {
	return sets.List(sets.New(model.Map(prefixes, netip.Prefix.String)...))
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{managedByLabel: FieldOwner}}
}

// namespace claims of Comity's own namespace, which belongs to whoever installed
// Comity there, only the label that the API server gives to every namespace. It
// has to claim something: a field owner without fields is written again each time.
func namespace(name string, labels map[string]string) *corev1.Namespace {
	if labels == nil {
		labels = map[string]string{corev1.LabelMetadataName: name}
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// serviceAccount is no Pod's, so nothing ever mounts its token.
func serviceAccount(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: meta(namespace, name), AutomountServiceAccountToken: new(false)}
}

func role(namespace, name string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: meta(namespace, name), Rules: rules}
}

func roleBinding(namespace, name, role, accountNamespace, account string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: meta(namespace, name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: accountNamespace, Name: account}},
	}
}

// quota bounds what the member that writes an exchange namespace of a hub can store
// there, because all members depend on the hub's etcd. The numbers are those that
// the readers accept, by the arithmetic of budget.MaxExports and so on. A member of its own
// API server needs no quota: it fills its own etcd.
//
// The hub's controller manager counts; until it has counted for the first time, some
// seconds after the namespace was created, the API server refuses what is counted.
func quota(namespace string) *corev1.ResourceQuota {
	hard := corev1.ResourceList{}
	for name, count := range map[corev1.ResourceName]int64{
		"count/exportrecords.exchange.comity.dev":    budget.MaxExports,
		"count/endpointslices.discovery.k8s.io":      budget.MaxSlices,
		"count/namespacerecords.exchange.comity.dev": budget.MaxOthers,
		"count/importrecords.exchange.comity.dev":    budget.MaxOthers,
		"count/memberrecords.exchange.comity.dev":    10,
		"count/leases.coordination.k8s.io":           10,
	} {
		hard[name] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	return &corev1.ResourceQuota{ObjectMeta: meta(namespace, "comity-exchange"), Spec: corev1.ResourceQuotaSpec{Hard: hard}}
}

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
	if err := m.client.List(ctx, &bindings, client.InNamespace(found.Name)); err != nil {
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

// recordNamespaces records the exchange namespaces, which have been applied, before anybody
// gets a credential for them. It refuses those that somebody created after they were checked.
func (m *member) recordNamespaces(ctx context.Context) error {
	if m.opts.DryRun || len(m.exchange) == 0 {
		return nil
	}
	uids, roles, err := m.checkNamespaces(ctx)
	if err != nil {
		return err
	}
	for i := range roles {
		records := map[string]string{} // of the namespaces that the account of the Role may use
		for _, object := range m.exchange {
			binding, is := object.(*rbacv1.RoleBinding)
			if uid, isExchange := uids[object.GetNamespace()]; is && isExchange && binding.Subjects[0].Name == roles[i].Name {
				records[recordOf(binding.Namespace)] = string(uid)
			}
		}
		if err := m.annotate(ctx, &roles[i], records); err != nil {
			return err
		}
	}
	return nil
}
