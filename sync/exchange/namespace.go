// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/comity-mcs/comity/sync/model"
)

// NamespaceProblem says why self cannot publish in the exchange namespace called
// name, nil if it does not exist; "" if it can. The agent may not create it:
// kubectl comity join does, together with its Roles.
func NamespaceProblem(self model.ClusterID, name string, namespace *corev1.Namespace) string {
	switch {
	case namespace == nil:
		return fmt.Sprintf("exchange namespace %s does not exist; run kubectl comity join", name)
	case namespace.DeletionTimestamp != nil:
		return fmt.Sprintf("exchange namespace %s is being deleted; run kubectl comity join once it is gone", name)
	case namespace.Labels[model.LabelExchangeFrom] != string(self):
		return fmt.Sprintf("namespace %s, label %s: is %q; expected %q; run kubectl comity join, or remove the namespace if it is not an exchange",
			name, model.LabelExchangeFrom, namespace.Labels[model.LabelExchangeFrom], self)
	}
	return ""
}

// ReservedNamespace reports whether nothing is imported into the namespace,
// whatever a peer publishes: it is one of Kubernetes' own.
func ReservedNamespace(name string) bool { return strings.HasPrefix(name, "kube-") }
