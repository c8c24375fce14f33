// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// sameness compares the identity of the namespace of an export, so that what the webhook
// of the exporter did not compare, because it was down or bypassed or the label came
// later, is not imported. Without the Namespace nothing is imported anyway.
func (v *ImportView) sameness(p *PeerView) ruling {
	if len(v.IdentityLabels) == 0 || v.Local.Namespace == nil {
		return ruling{outcome: decision.Allowed}
	}
	theirs, known := p.identity()
	if !known {
		return ruling{decision.NotEvaluated, model.ReasonNamespaceUnknown, fmt.Sprintf(
			"the identity of Namespace %s in cluster %s is not known: the ExportRecord of cluster %s has no spec.namespace, and there is no valid NamespaceRecord %s of it; "+
				"publish the identity there (select the Namespace with --publish-namespaces), or leave the Namespace out of spec.acceptedNamespaces of Peer %s here",
			v.Local.Key.Namespace, p.ID, p.ID, v.Local.Key.Namespace, p.ID)}
	}
	if label := v.differs(theirs); label != "" {
		return ruling{decision.Denied, model.ReasonNamespaceMismatch, mismatch(v.Local.Key.Namespace, v.Local.Namespace.Labels, p.ID, label, theirs)}
	}
	return ruling{outcome: decision.Allowed}
}

// identity are the identity labels of the namespace of the export; false if they are not
// known.
func (p *PeerView) identity() (map[string]string, bool) {
	if p.Export != nil && p.Export.Identity != nil {
		return p.Export.Identity, true
	}
	return p.Namespace.Labels, p.Namespace.Presence == model.NamespacePresent
}

// differs is the first identity label that is not the same here; empty if none.
// Other labels of theirs do not count: this cluster's administrator chooses them.
func (v *ImportView) differs(theirs map[string]string) string {
	for _, label := range v.IdentityLabels {
		here, has := v.Local.Namespace.Labels[label]
		there, had := theirs[label]
		if has != had || here != there {
			return label
		}
	}
	return ""
}

func mismatch(namespace string, ours map[string]string, cluster model.ClusterID, label string, theirs map[string]string) string {
	show := func(labels map[string]string) string {
		if value, has := labels[label]; has {
			return model.Quote(value)
		}
		return "not set"
	}
	return fmt.Sprintf("label %s of Namespace %s is %s here and %s in cluster %s; give both the same value, or rename one of the namespaces",
		label, namespace, show(ours), show(theirs), cluster)
}
