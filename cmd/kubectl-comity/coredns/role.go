// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// roleName is that of the ClusterRole and of its binding. CoreDNS's own role,
// system:coredns, is rewritten by kubeadm upgrade and by add-on managers: a
// rule in it would be lost while the Corefile still has the zone, and a CoreDNS
// that may not read ServiceImports does not become ready.
const roleName = "comity-coredns"

// fieldOwner owns what this command applies.
const fieldOwner = "kubectl-comity"

// roleText lets an account of kube-system read ServiceImports.
func roleText(account string) string {
	return fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: %[1]s
  labels:
    app.kubernetes.io/managed-by: %[2]s
rules:
- apiGroups: [multicluster.x-k8s.io]
  resources: [serviceimports]
  verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: %[1]s
  labels:
    app.kubernetes.io/managed-by: %[2]s
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: %[1]s
subjects:
- kind: ServiceAccount
  namespace: kube-system
  name: %[3]s
`, roleName, fieldOwner, account)
}

func roleObjects(account string) (objects []*unstructured.Unstructured) {
	for text := range strings.SplitSeq(roleText(account), "---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
			panic(err) // not reached: the text is fixed
		}
		objects = append(objects, object)
	}
	return objects
}
