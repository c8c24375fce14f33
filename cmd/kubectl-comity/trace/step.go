// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

// check is what a step checks, and what fixes it and explains it where its reason has no fix
// of its own. Its texts have the variables of finding.Fix, and {selector}, that of the Service.
type check struct{ name, object, fix, docs string }

// The checks, in the order of the way.
var (
	checkService   = check{"Service", "Service {ns}/{name}", "", "conditions.md#serviceexport-valid-noservice"}
	checkEndpoints = check{"Endpoints", "Service {ns}/{name}", podsOfOwner, "troubleshooting.md#no-endpoints"}
	checkExport    = check{"ServiceExport", anExport, "", "concepts.md"}
	checkPolicies  = check{"Policies", anExport, "", ""}
	checkConflict  = check{"Conflict", anExport, "", ""}
	checkPublished = check{"Published", anExport, "", ""}
	checkRecord    = check{"ExportRecord", anExport, "the owner of the export corrects its scope", "troubleshooting.md#scope"}
	checkPeer      = check{"Peer {a}", "Peer {a}", finding.FixJoin, "peers.md#only-removed-removes"}
	checkSource    = check{"Source", anImport, "", "imports.md#the-list"}
	checkImport    = check{"ServiceImport", anImport, "", noImport}
	checkDerived   = check{"Derived Service", anImport, "", noImport}
	checkSlices    = check{"EndpointSlices", anImport, podsOfOwner, "troubleshooting.md#no-endpoints"}
	checkDNS       = check{"CoreDNS", "", "", ""}
	checkAnswer    = check{"DNS answer", "", "see CoreDNS and what is before it: kubectl --context {to} -n kube-system get pods -l k8s-app=kube-dns", "troubleshooting.md#dns"}
	checkConnect   = check{"Connection", "", "", "troubleshooting.md#routing"}
)

const (
	anExport = "ServiceExport {ns}/{name}"
	anImport = "ServiceImport {ns}/{name}"
	noImport = "troubleshooting.md#not-imported"

	podsOfOwner = "the owner of the Pods finds out why none is ready: kubectl --context {from} -n {ns} get pods -l '{selector}'"
)

// hop is a pair of clusters; to is one that was not read within the exporting cluster.
type hop struct {
	clusters
	from, to *cluster
}

// step is what a check found in a cluster: all is well if there is no reason.
func (h hop) step(of check, c *cluster, reason, message string) Step {
	s := Step{Finding: finding.Finding{Severity: finding.OK, Check: h.fill(of.name, c), Cluster: c.Context, Message: message}}
	if reason == "" {
		return s
	}
	s.Severity, s.Reason, s.Object = finding.Error, reason, h.fill(of.object, c)
	s.Fix = h.fill(cmp.Or(finding.Fix(reason), of.fix, "the administrator of cluster "+string(c.ID())+" does what the message says"), c)
	s.Docs = finding.Docs(of.docs)
	return s
}

// fill replaces the variables of a text of check.
func (h hop) fill(text string, c *cluster) string {
	var selector labels.Set
	if h.from.service != nil {
		selector = h.from.service.Spec.Selector
	}
	// A context that was not given is often called like the cluster.
	return strings.NewReplacer("{from}", cmp.Or(h.from.Context, string(h.from.ID())), "{to}", cmp.Or(h.to.Context, string(h.to.ID())),
		"{a}", string(h.from.ID()), "{b}", string(h.to.ID()), "{here}", c.Context, "{agent}", c.Agent.Namespace, "{ns}", h.from.key.Namespace, "{name}", h.from.key.Name, "{selector}", selector.String(),
	).Replace(text)
}

// untried is the step of what was not read, or not tried.
func (h hop) untried(of check, c *cluster, why error) Step {
	s := h.step(of, c, "", why.Error())
	s.Severity = finding.NotRead
	return s
}

// condition is the step of a condition of the object of a check; broken if it is not as it
// should be.
func (h hop) condition(of check, c *cluster, all []metav1.Condition, typ string) Step {
	found := meta.FindStatusCondition(all, typ)
	if found == nil && condition.BadWhenTrue(typ) {
		return h.step(of, c, "", typ)
	}
	if found == nil {
		found = &metav1.Condition{Status: metav1.ConditionUnknown, Reason: model.ReasonPending, Message: "the agent has not set the condition yet"}
	}
	if (found.Status == metav1.ConditionTrue) != condition.BadWhenTrue(typ) {
		return h.step(of, c, "", cmp.Or(found.Message, typ)).since(found.LastTransitionTime)
	}
	reason, _, _ := strings.Cut(found.Reason, ",")
	kind, _, _ := strings.Cut(of.object, " ")
	s := h.step(of, c, reason, typ+" is "+string(found.Status)+": "+found.Message).since(found.LastTransitionTime)
	s.Docs = finding.Condition(kind, typ, reason)
	return s
}

func (s Step) since(at metav1.Time) Step {
	if !at.IsZero() {
		s.Since = &at
	}
	return s
}

// warned is a step that is not broken after all.
func (s Step) warned() Step {
	s.Severity = finding.Warning
	return s
}
