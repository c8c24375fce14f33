// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	policyv1alpha1 "github.com/comity-mcs/comity/policies/v1alpha1"
	"github.com/comity-mcs/comity/status/condition"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// exporting are the steps within the exporting cluster.
func (h hop) exporting() []Step {
	c := h.from
	if s, is := c.notRead("Export"); is {
		return []Step{s}
	}
	steps := append([]Step{h.agent(c)}, h.service()...)
	if s, is := c.notRead("ServiceExport", "ServiceExport"); is {
		return append(steps, s)
	}
	if c.export == nil {
		return append(steps, h.broken("ServiceExport", c, "NoExport", "there is none").about("ServiceExport", c))
	}
	conditions := c.export.Status.Conditions
	if len(conditions) == 0 {
		return append(steps, h.broken("ServiceExport", c, model.ReasonPending, "it has no conditions: the agent has not seen it").about("ServiceExport", c).since(c.export.CreationTimestamp))
	}
	admitted := h.condition("Policies", c, "ServiceExport", conditions, condition.TypeAdmitted)
	admitted.Message += c.answers()
	conflict := h.condition("Conflict", c, "ServiceExport", conditions, condition.TypeConflict)
	if conflict.Severity == finding.Error { // the Service is imported all the same
		conflict = conflict.warned()
	}
	published := h.condition("Published", c, "ServiceExport", conditions, condition.TypeReady)
	if isRead := func(r exchangev1alpha1.ExportRecord) bool {
		return !r.Spec.Withdrawn && r.Spec.ExportUID == c.export.UID
	}; published.Severity == finding.Error && slices.ContainsFunc(h.exchange(c).records, isRead) {
		published = published.warned() // some importers read it
	}
	return append(steps, h.condition("ServiceExport", c, "ServiceExport", conditions, condition.TypeValid), admitted, conflict, published)
}

// agent says whether a replica of the agent leads.
func (h hop) agent(c *cluster) Step {
	if c.Err == nil {
		for _, found := range c.Agent.Pod.Status.Conditions {
			if found.Type == corev1.PodReady && found.Status != corev1.ConditionTrue {
				return h.broken("Agent", c, "NotReady", "the leader is not ready: "+found.Message).since(found.LastTransitionTime)
			}
		}
		return h.ok("Agent", c, fmt.Sprintf("Comity %s, Pod %s leads", c.Agent.Version, c.Agent.Pod.Name), ptr.Deref(c.Agent.Pod.Status.StartTime, metav1.Time{}))
	}
	reason := "NotRunning"
	if errors.Is(c.Err, agent.ErrNotInstalled) {
		reason = "NotInstalled"
	}
	s := h.broken("Agent", c, reason, c.Err.Error()).since(metav1.Time{Time: c.Agent.Renewed})
	for _, d := range c.deployments {
		if ptr.Deref(d.Spec.Replicas, 1) == 0 {
			s = s.fixedBy(fmt.Sprintf("kubectl --context %s -n %s scale deployment %s --replicas=2", c.Context, d.Namespace, d.Name))
		}
	}
	return s
}

// service are the Service and its endpoints.
func (h hop) service() []Step {
	c := h.from
	if s, is := c.notRead("Service", "Service", "EndpointSlice"); is {
		return []Step{s}
	}
	if c.service == nil {
		return []Step{h.broken("Service", c, "NoService", "there is none").about("Service", c)}
	}
	var ports []string
	for _, p := range c.service.Spec.Ports {
		ports = append(ports, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
	}
	ready, message := endpoints(c.slices, func(s discoveryv1.EndpointSlice) bool { return s.Labels[discoveryv1.LabelServiceName] == c.key.Name })
	found := h.ok("Endpoints", c, message, metav1.Time{})
	if len(ready) == 0 {
		found = h.broken("Endpoints", c, "NoReadyEndpoints", message).about("Service", c)
		if selector := c.service.Spec.Selector; len(selector) > 0 {
			found = found.fixedBy(fmt.Sprintf("the owner of the Pods finds out why none is ready: kubectl --context %s -n %s get pods -l %s", c.Context, c.key.Namespace, labels.FormatLabels(selector)))
		}
	}
	return []Step{h.ok("Service", c, string(c.service.Spec.Type)+" "+strings.Join(ports, ", "), c.service.CreationTimestamp), found}
}

// endpoint is a ready one, with the slice that it is of.
type endpoint struct {
	address string
	slice   *discoveryv1.EndpointSlice
}

// endpoints are those that are ready, and how many there are, of slices.
func endpoints(all []discoveryv1.EndpointSlice, of func(discoveryv1.EndpointSlice) bool) (ready []endpoint, message string) {
	n := 0
	for i, slice := range all {
		if !of(slice) {
			continue
		}
		for _, e := range slice.Endpoints {
			if n++; ptr.Deref(e.Conditions.Ready, true) && len(e.Addresses) > 0 {
				ready = append(ready, endpoint{e.Addresses[0], &all[i]})
			}
		}
	}
	return ready, fmt.Sprintf("%d of %d are ready", len(ready), n)
}

// answers is what each policy says of the export.
func (c *cluster) answers() string {
	var texts []string
	for _, p := range c.policies {
		answer, v := " allows it", ptr.Deref(p.Status.Violations, policyv1alpha1.Violations{})
		if int(v.Total) > len(v.Items) {
			answer = " is violated by more exports than its status names"
		}
		for _, item := range v.Items {
			if item.Namespace == c.key.Namespace && item.Name == c.key.Name {
				answer = fmt.Sprintf(" (%s): %s", p.Spec.Enforcement, item.Message)
			}
		}
		if p.Spec.Stage != policyv1alpha1.StageImport {
			texts = append(texts, p.Name+answer)
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return " [" + strings.Join(texts, "; ") + "]"
}

// record says whether a record of the export is where the importer reads it, or what
// leaves that cluster out.
func (h hop) record() Step {
	const check = "ExportRecord"
	c, at, to := h.from, h.exchange(h.from), h.to.ID
	for _, unread := range []func() (Step, bool){
		func() (Step, bool) { return c.notRead(check, "ServiceExport", "Peer") }, func() (Step, bool) { return at.notRead(check, "ExportRecord") },
	} {
		if s, is := unread(); is {
			return s
		}
	}
	var since metav1.Time
	for _, r := range at.records {
		if r.Namespace != model.ExchangeNamespace(c.ID) && r.Namespace != model.ScopedExchangeNamespace(c.ID, to) {
			continue
		}
		if !r.Spec.Withdrawn && (c.export == nil || r.Spec.ExportUID == c.export.UID) {
			audience := "that every member reads"
			if r.Namespace != model.ExchangeNamespace(c.ID) {
				audience = "that cluster " + string(to) + " alone reads"
			}
			return h.ok(check, at, "published in namespace "+r.Namespace+", "+audience, r.CreationTimestamp)
		}
		since = ptr.Deref(r.Spec.WithdrawnAt, since)
	}
	reason, why, fix := h.leftOut()
	s := h.broken(check, c, reason, fmt.Sprintf("nothing is published for cluster %s: %s", to, why)).about("ServiceExport", c).since(since)
	return s.fixedBy(cmp.Or(fix, s.Fix))
}

// leftOut says why nothing is published for the importer, and the command, if the remedy of
// the reason is not enough.
func (h hop) leftOut() (reason, why, fix string) {
	c, to := h.from, h.to.ID
	if c.export == nil {
		return "NoExport", "there is no ServiceExport", ""
	}
	peer := c.peer(to)
	if peer == nil || peer.Spec.Removed {
		return model.ReasonUnknownCluster, fmt.Sprintf("cluster %s has no Peer %s that is a member", c.ID, to), ""
	}
	var members []model.Member
	for _, p := range c.peers {
		members = append(members, model.Member{ID: model.ClusterID(p.Name), Labels: p.Labels})
	}
	scope, err := model.EffectiveScope(h.key, c.export, c.namespace, members)
	listed, _ := model.ScopeOfExport(c.export)
	switch admitted := ptr.Deref(meta.FindStatusCondition(c.export.Status.Conditions, condition.TypeAdmitted), metav1.Condition{}); {
	case err != nil:
		return "ScopeNotAllowed", err.Error(), ""
	case scope.Contains(to) && admitted.Reason == condition.ReasonClustersExcluded:
		return admitted.Reason, admitted.Message, ""
	case scope.Contains(to):
		return "NotPublished", "it is in the scope, and there is no record; join restores exchange namespaces, and the agent the records", ""
	case !listed.Contains(to):
		fix = fmt.Sprintf("kubectl --context %s -n %s annotate serviceexport %s --overwrite %s=%s,%s", c.Context, h.key.Namespace, h.key.Name, model.AnnotationExportTo, listed, to)
	}
	if limit, err := model.ScopeOfNamespace(c.namespace); err == nil && !limit.Contains(to) {
		fix = strings.Join(slices.DeleteFunc([]string{fix, fmt.Sprintf("kubectl --context %s annotate namespace %s --overwrite %s=%s,%s", c.Context, h.key.Namespace, model.AnnotationExportTo, limit, to)},
			func(s string) bool { return s == "" }), " && ")
	}
	if selector := c.export.Annotations[model.AnnotationExportToSelector]; selector != "" && fix == "" {
		fix = fmt.Sprintf("give Peer %s labels that match %q: kubectl --context %s label peer %s KEY=VALUE", to, selector, c.Context, to)
	}
	return "OutOfScope", "its scope is " + scope.String(), fix
}
