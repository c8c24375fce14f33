// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/model"
)

// importable are the exports of other members that may be imported.
type importable struct {
	exports []model.Export
	// kept are the clusters of which what exists stays as it is.
	kept     []model.ClusterID
	problems []model.Problem
}

// importable compares the identity of the namespace, so that what the webhook of
// the exporter did not compare, because it was down or bypassed or the label came
// later, is not imported. Without the Namespace nothing is imported anyway.
//
//	the namespace is not accepted from it,
//	or policies deny it                     not imported
//	the identity is another                 not imported, NamespaceMismatch
//	it is not known                         what exists stays, nothing is added, NamespaceUnknown
//	policies could not be evaluated         what exists stays, nothing is added
//	otherwise                               imported
func (v ImportView) importable() importable {
	var out importable
	standing, rules := Standing(v.Current, v.Self), v.sourceRules()
	compares := len(v.IdentityLabels) > 0 && v.Local.Namespace != nil
	for _, e := range v.Exports {
		if slices.Contains(v.NotAccepted, e.Cluster) {
			continue
		}
		theirs, known := v.identity(e)
		outcome, _ := rules.outcome(e.Cluster)
		if compares && !known && outcome == decision.Allowed {
			out.problems = append(out.problems, v.identityUnknown(e.Cluster))
		}
		switch label := v.differs(theirs); {
		case compares && known && label != "":
			out.problems = append(out.problems, mismatch(v.Local.Namespace, e.Cluster, label, theirs))
		case (known || !compares) && outcome == decision.Allowed:
			out.exports = append(out.exports, e)
		case slices.ContainsFunc(standing, func(s model.SourceExport) bool { return s.Cluster == e.Cluster }):
			out.kept = append(out.kept, e.Cluster)
		}
	}
	return out
}

// identity are the identity labels of the namespace of an export; false if they
// are not known.
func (v ImportView) identity(e model.Export) (map[string]string, bool) {
	if e.Identity != nil {
		return e.Identity, true
	}
	at := slices.IndexFunc(v.Namespaces, func(n model.MemberNamespace) bool { return n.Cluster == e.Cluster })
	if at < 0 || v.Namespaces[at].Presence != model.NamespacePresent {
		return nil, false
	}
	return v.Namespaces[at].Labels, true
}

// differs is the first identity label that is not the same here; empty if none.
// Other labels of theirs do not count: this cluster's administrator chooses them.
func (v ImportView) differs(theirs map[string]string) string {
	if v.Local.Namespace == nil {
		return ""
	}
	for _, label := range v.IdentityLabels {
		here, has := v.Local.Namespace.Labels[label]
		there, had := theirs[label]
		if has != had || here != there {
			return label
		}
	}
	return ""
}

func (v ImportView) identityUnknown(cluster model.ClusterID) model.Problem {
	return model.Problem{Reason: model.ReasonNamespaceUnknown, Cluster: cluster, Message: fmt.Sprintf(
		"the identity of Namespace %s in cluster %s is not known: the ExportRecord of cluster %s has no spec.namespace, and there is no valid NamespaceRecord %s of it; "+
			"endpoints that were imported from it stay as they are, and nothing new is imported from it; publish the identity there "+
			"(upgrade Comity, or select the Namespace with --publish-namespaces), or leave the Namespace out of annotation %s of the peer Secret of cluster %s here",
		v.Local.Key.Namespace, cluster, cluster, v.Local.Key.Namespace, model.AnnotationAcceptedNamespaces, cluster)}
}

func mismatch(namespace *corev1.Namespace, cluster model.ClusterID, label string, theirs map[string]string) model.Problem {
	show := func(labels map[string]string) string {
		if value, has := labels[label]; has {
			return model.Quote(value)
		}
		return "not set"
	}
	return model.Problem{Reason: model.ReasonNamespaceMismatch, Cluster: cluster, Message: fmt.Sprintf(
		"the export of cluster %s is not imported: label %s of Namespace %s is %s here and %s there; give both the same value, or rename one of the namespaces",
		cluster, label, namespace.Name, show(namespace.Labels), show(theirs))}
}
