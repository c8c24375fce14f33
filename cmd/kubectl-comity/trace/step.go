// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/networkpolicy"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/status"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// check is what a step checks, and what fixes it and explains it where its reason has no fix
// of its own. Its texts have the variables of finding.Fix, and {selector}, that of the Service.
type check struct{ name, object, fix, docs string }

// The checks, in the order of the way, but for that of the agent, which is of package status.
var (
	checkEndpoints = check{"Endpoints", "Service {ns}/{name}", podsOfOwner, "troubleshooting.md#no-endpoints"}
	checkExport    = check{"ServiceExport", anExport, "", "concepts.md"}
	checkPolicies  = check{"Policies", anExport, "", ""}
	checkConflict  = check{"Conflict", anExport, "", ""}
	checkPublished = check{"Published", anExport, "", ""}
	checkRecord    = check{"ExportRecord", anExport, "the owner of the export, of the Namespace or of the labels of Peer {b} corrects the scope", "troubleshooting.md#scope"}
	checkPeer      = check{"Peer {a}", "Peer {a}", finding.FixJoin, "peers.md#only-removed-removes"}
	checkSource    = check{"Source", anImport, "", "imports.md#the-list"}
	checkImport    = check{"ServiceImport", anImport, "", noImport}
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
	a, b, key := string(h.from.ID()), string(h.to.ID()), h.from.key
	selector := labels.Set(ptr.Deref(h.from.service, corev1.Service{}).Spec.Selector)
	// A context that was not given is often called like the cluster.
	return finding.Fill(text, c.Agent.Mode, "{from}", cmp.Or(h.from.Context, a), "{to}", cmp.Or(h.to.Context, b), "{a}", a, "{b}", b,
		"{here}", c.Context, "{agent}", c.Agent.Namespace, "{ns}", key.Namespace, "{name}", key.Name, "{selector}", selector.String())
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
	found := cmp.Or(meta.FindStatusCondition(all, typ),
		&metav1.Condition{Status: metav1.ConditionUnknown, Reason: model.ReasonPending, Message: "the agent has not set the condition yet"})
	if (found.Status == metav1.ConditionTrue) != condition.BadWhenTrue(typ) {
		return h.step(of, c, "", cmp.Or(found.Message, typ)).since(found.LastTransitionTime)
	}
	reason, _, _ := strings.Cut(found.Reason, ",")
	kind, _, _ := strings.Cut(of.object, " ")
	s := h.step(of, c, reason, typ+" is "+string(found.Status)+": "+found.Message).since(found.LastTransitionTime)
	if !found.LastTransitionTime.IsZero() {
		s.Docs = finding.Condition(kind, typ, reason)
	}
	return s
}

func (s Step) since(at metav1.Time) Step {
	if !at.IsZero() {
		s.Since = &at
	}
	return s
}

// exporting are the steps within the exporting cluster.
func (h hop) exporting() []Step {
	c := h.from
	if err := c.whyUnread(); err != nil {
		return []Step{h.untried(check{name: "Export"}, c, err)}
	}
	steps := []Step{h.agent(c)}
	if err := c.whyUnread("ServiceExport"); err != nil {
		return append(steps, h.untried(checkExport, c, err))
	}
	if c.export == nil {
		return append(steps, h.step(checkExport, c, "NoExport", "there is none"))
	}
	for _, of := range []struct {
		check
		condition string
		// isPart is true if the Service is imported all the same, by some.
		isPart bool
	}{
		{checkExport, condition.TypeValid, false}, {checkPolicies, condition.TypeAdmitted, false}, {checkConflict, condition.TypeConflict, true},
		{checkPublished, condition.TypeReady, slices.ContainsFunc(h.exchange(c).records.Items, c.publishes)},
	} {
		s := h.condition(of.check, c, c.export.Status.Conditions, of.condition)
		if of.isPart && s.Severity == finding.Error {
			s.Severity = finding.Warning
		}
		steps = append(steps, s)
	}
	if err := c.whyUnread("EndpointSlice"); err != nil {
		return append(steps, h.untried(checkEndpoints, c, err))
	}
	_, reason, message := c.endpoints(c.key.Name, "")
	return append(steps, h.step(checkEndpoints, c, reason, message))
}

// publishes is true for a record of the export that is in force.
func (c *cluster) publishes(r v1alpha1.ExportRecord) bool {
	return !r.Spec.Withdrawn && (c.export == nil || r.Spec.ExportUID == c.export.UID)
}

// agent says whether a replica of the agent leads.
func (h hop) agent(c *cluster) Step {
	s := Step{Finding: status.Agent(c.Site)}
	s.Check = "Agent"
	return s
}

// endpoint is a ready one, with the slice that it is of.
type endpoint struct {
	address string
	slice   discoveryv1.EndpointSlice
}

const noEndpoints = "NoReadyEndpoints"

// endpoints are those of a Service that are ready, imported from source or its own, and how
// many there are; if none is, with the reason noEndpoints.
func (c *cluster) endpoints(service string, source model.ClusterID) (ready []endpoint, reason, message string) {
	n := 0
	reason = noEndpoints
	for _, slice := range c.slices.Items {
		if slice.Labels[discoveryv1.LabelServiceName] != service || slice.Labels[model.LabelSourceCluster] != string(source) {
			continue
		}
		for _, e := range slice.Endpoints {
			if n++; model.IsReady(e) && len(e.Addresses) > 0 {
				ready, reason = append(ready, endpoint{e.Addresses[0], slice}), ""
			}
		}
	}
	return ready, reason, fmt.Sprintf("%d of %d are ready", len(ready), n)
}

// record says whether a record of the export is where the importer reads it, or what
// leaves that cluster out.
func (h hop) record() Step {
	c, at, to := h.from, h.exchange(h.from), h.to.ID()
	if err := cmp.Or(c.whyUnread("ServiceExport", "Peer"), at.whyUnread("ExportRecord")); err != nil {
		return h.untried(checkRecord, c, err)
	}
	for _, r := range at.records.Items {
		if r.Namespace != model.ExchangeNamespace(c.ID()) && r.Namespace != model.ScopedExchangeNamespace(c.ID(), to) {
			continue
		}
		if c.publishes(r) {
			return h.step(checkRecord, at, "", "published in namespace "+r.Namespace).since(r.CreationTimestamp)
		}
	}
	reason, why, fix := h.leftOut()
	s := h.step(checkRecord, c, reason, fmt.Sprintf("nothing is published for cluster %s: %s", to, why))
	s.Fix = cmp.Or(h.fill(fix, c), s.Fix)
	if reason == condition.ReasonClustersExcluded {
		s.Docs = finding.Condition("ServiceExport", condition.TypeAdmitted, reason)
	}
	return s
}

// leftOut says why nothing is published for the importer, and what widens the scope if the
// list of the export leaves it out.
func (h hop) leftOut() (reason, why, fix string) {
	c, to := h.from, h.to.ID()
	if c.export == nil {
		return "NoExport", "there is no ServiceExport", ""
	}
	if peer := c.peer(to); peer == nil || peer.Spec.Removed {
		return model.ReasonUnknownCluster, fmt.Sprintf("cluster %s has no Peer %s that is a member", c.ID(), to), ""
	}
	scope, err := networkpolicy.Scope(c.export, c.namespace, c.peers.Items)
	switch admitted := ptr.Deref(meta.FindStatusCondition(c.export.Status.Conditions, condition.TypeAdmitted), metav1.Condition{}); {
	case err != nil:
		return "ScopeNotAllowed", err.Error(), ""
	case scope.Contains(to) && admitted.Reason == condition.ReasonClustersExcluded:
		return admitted.Reason, admitted.Message, ""
	case scope.Contains(to):
		return condition.ReasonNotPublished, "it is in the scope, and there is no record; join restores exchange namespaces, and the agent the records", ""
	}
	if listed, _ := model.ScopeOfExport(c.export); !listed.Contains(to) {
		fix = fmt.Sprintf("kubectl --context {from} -n {ns} annotate serviceexport {name} --overwrite %s=%s,%s", model.AnnotationExportTo, listed, to)
	}
	return "OutOfScope", "its scope is " + scope.String(), fix
}
