// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	"sigs.k8s.io/yaml"
)

// roleName is that of the ClusterRole and of its binding. CoreDNS's own role,
// system:coredns, is rewritten by kubeadm upgrade and by add-on managers: a
// rule in it would be lost while the Corefile still has the zone, and a CoreDNS
// that may not read ServiceImports does not become ready.
const roleName = "comity-coredns"

// fieldOwner owns what this command applies.
const fieldOwner = "kubectl-comity"

var readVerbs = []string{"list", "watch"}

// roleObjects let account read ServiceImports.
func roleObjects(account string) []client.Object {
	meta := metav1.ObjectMeta{Name: roleName, Labels: map[string]string{"app.kubernetes.io/managed-by": fieldOwner}}
	return []client.Object{
		&rbacv1.ClusterRole{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
			ObjectMeta: meta,
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{mcsv1alpha1.GroupName}, Resources: []string{"serviceimports"}, Verbs: readVerbs}},
		},
		&rbacv1.ClusterRoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: roleName},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
		},
	}
}

// roleText is roleObjects as a person reads them.
func roleText(account string) string {
	var documents []string
	for _, object := range roleObjects(account) {
		text, err := yaml.Marshal(object)
		if err != nil {
			panic(err) // Every object of Kubernetes can be encoded.
		}
		documents = append(documents, strings.Replace(string(text), "  creationTimestamp: null\n", "", 1))
	}
	return strings.Join(documents, "---\n")
}
