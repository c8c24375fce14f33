// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
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
// is a patch, and a creation where there is nothing yet. Their Lease they renew,
// and never take back.
var (
	readVerbs  = []string{"get", "list", "watch"}
	writeVerbs = []string{"get", "list", "watch", "create", "patch", "delete"}
	leaseVerbs = []string{"get", "create", "patch"}
)

const managedByLabel = "app.kubernetes.io/managed-by"

// PeerName is model.PeerName.
func PeerName(id model.ClusterID) string { return model.PeerName(id) }

// Objects is everything but the credential that local needs so that peer can
// read what is exported to it: namespaces first, then the account, then Roles
// and their bindings. It needs no access to either cluster. Connect applies the
// same objects; an administrator may keep them in Git instead.
func Objects(local, peer Cluster) ([]client.Object, error) {
	local, err := local.withDefaults()
	if err != nil {
		return nil, err
	}
	if peer, err = peer.withDefaults(); err != nil {
		return nil, err
	}
	if err := validatePair(local, peer); err != nil {
		return nil, err
	}
	shared, scoped := model.ExchangeNamespace(local.ID), model.ScopedExchangeNamespace(local.ID, peer.ID)
	for _, exchange := range []string{shared, scoped} {
		if exchange == local.Namespace {
			return nil, fmt.Errorf("cluster id %q: its exchange namespace would be %s, which is Comity's own and holds Secrets; choose another id, or install Comity elsewhere",
				local.ID, exchange)
		}
	}
	account := PeerName(peer.ID)
	objects := []client.Object{
		namespace(local.Namespace, nil),
		namespace(shared, map[string]string{model.LabelExchangeFrom: string(local.ID)}),
		namespace(scoped, map[string]string{
			model.LabelExchangeFrom: string(local.ID),
			model.LabelExchangeTo:   string(peer.ID),
		}),
		serviceAccount(local.Namespace, account),
		role(local.Namespace, account, renewRule(account)),
		roleBinding(local.Namespace, account, account, local.Namespace, account),
	}
	for _, exchange := range []string{shared, scoped} {
		objects = append(objects,
			role(exchange, readerRole, exchangeRules(readVerbs, readVerbs)...),
			roleBinding(exchange, account, readerRole, local.Namespace, account),
			role(exchange, writerRole, exchangeRules(writeVerbs, leaseVerbs)...),
			roleBinding(exchange, writerRole, writerRole, local.Namespace, local.ServiceAccount),
		)
	}
	return objects, nil
}

// MemberName is the name of a member's account in the hub, and of what belongs
// to it. It is no PeerName, so that the hub may be a member's own cluster too.
func MemberName(id model.ClusterID) string {
	if full := "member-" + string(id); len(full) <= 63 {
		return full
	}
	sum := sha256.Sum256([]byte(id))
	return "member-" + strings.TrimRight(string(id)[:15], "-") + "." + hex.EncodeToString(sum[:20])
}

// space is one exchange namespace in the hub: who writes it, and who reads it.
type space struct {
	name    string
	labels  map[string]string
	from    model.ClusterID
	readers []model.ClusterID
}

// spacesOf are the namespaces of one member: the one that all others read, then
// one for each other alone.
func spacesOf(from model.ClusterID, members []Cluster) []space {
	shared := space{
		name: model.ExchangeNamespace(from), from: from,
		labels: map[string]string{model.LabelExchangeFrom: string(from)},
	}
	var scoped []space
	for _, to := range members {
		if to.ID == from {
			continue
		}
		shared.readers = append(shared.readers, to.ID)
		scoped = append(scoped, space{
			name: model.ScopedExchangeNamespace(from, to.ID), from: from, readers: []model.ClusterID{to.ID},
			labels: map[string]string{model.LabelExchangeFrom: string(from), model.LabelExchangeTo: string(to.ID)},
		})
	}
	return append([]space{shared}, scoped...)
}

// HubObjects is everything but credentials that the hub needs for members:
// namespaces first, then their quotas, accounts, Roles and bindings. The exchange's
// CustomResourceDefinitions (config/crd) must be there already. It needs no
// access; ConnectHub applies the same objects.
func HubObjects(hub Hub, members []Cluster) ([]client.Object, error) {
	members, err := checkMembers(members)
	if err != nil {
		return nil, err
	}
	at, err := hub.cluster(members[0].Set).withDefaults()
	if err != nil {
		return nil, err
	}
	namespaces := []client.Object{namespace(at.Namespace, nil)}
	var accounts, quotas, roles []client.Object
	for _, m := range members {
		account := MemberName(m.ID)
		accounts = append(accounts, serviceAccount(at.Namespace, account))
		roles = append(roles, role(at.Namespace, account, renewRule(account)), roleBinding(at.Namespace, account, account, at.Namespace, account))
		for _, s := range spacesOf(m.ID, members) {
			if s.name == at.Namespace {
				return nil, fmt.Errorf("cluster id %q: its exchange namespace would be %s, which holds the accounts of the hub; choose another id, or another namespace in the hub",
					m.ID, s.name)
			}
			namespaces = append(namespaces, namespace(s.name, s.labels))
			quotas = append(quotas, quota(s.name))
			roles = append(roles, s.grants(at.Namespace)...)
		}
	}
	return slices.Concat(namespaces, quotas, accounts, roles), nil
}

// grants are the Roles of a namespace in the hub. Its member may also see that
// the namespace is there, and no other: a list would show all members.
func (s space) grants(accounts string) []client.Object {
	own := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{s.name}, Verbs: []string{"get"}}
	objects := []client.Object{
		role(s.name, writerRole, append(exchangeRules(writeVerbs, leaseVerbs), own)...),
		roleBinding(s.name, writerRole, writerRole, accounts, MemberName(s.from)),
		role(s.name, readerRole, exchangeRules(readVerbs, readVerbs)...),
	}
	for _, reader := range s.readers {
		objects = append(objects, roleBinding(s.name, MemberName(reader), readerRole, accounts, MemberName(reader)))
	}
	return objects
}

// exchangeRules grants verbs on what an exchange namespace holds, others on the
// Lease there, and none on anything else: no Secret, no status, no wildcard.
func exchangeRules(verbs, lease []string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{
			APIGroups: []string{v1alpha1.GroupVersion.Group},
			Resources: []string{"exportrecords", "importrecords", "memberrecords", "namespacerecords"},
			Verbs:     verbs,
		},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: verbs},
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

// peerSecret is the Secret by which holder reaches peer.
func peerSecret(holder, peer Cluster, kubeconfig []byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: meta(holder.Namespace, PeerName(peer.ID), nil),
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{KubeconfigKey: kubeconfig},
	}
}

// formatCIDRs lists prefixes in order, each once.
func formatCIDRs(prefixes []netip.Prefix) []string {
	texts := make([]string, len(prefixes))
	for i, prefix := range prefixes {
		texts[i] = prefix.String()
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

func meta(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	all := map[string]string{managedByLabel: FieldOwner}
	for key, value := range labels {
		all[key] = value
	}
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: all}
}

// namespace claims of Comity's own namespace, which belongs to whoever installed
// Comity there, only the label that the API server gives to every namespace. It
// has to claim something: a field owner without fields is written again each time.
func namespace(name string, labels map[string]string) *corev1.Namespace {
	ns := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	ns.Name, ns.Labels = name, map[string]string{corev1.LabelMetadataName: name}
	if labels != nil {
		ns.ObjectMeta = meta("", name, labels)
	}
	return ns
}

// serviceAccount is no Pod's, so nothing ever mounts its token.
func serviceAccount(namespace, name string) *corev1.ServiceAccount {
	mount := false
	return &corev1.ServiceAccount{
		TypeMeta:                     metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta:                   meta(namespace, name, nil),
		AutomountServiceAccountToken: &mount,
	}
}

func role(namespace, name string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
		ObjectMeta: meta(namespace, name, nil),
		Rules:      rules,
	}
}

func roleBinding(namespace, name, role, accountNamespace, account string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: meta(namespace, name, nil),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: accountNamespace, Name: account}},
	}
}
