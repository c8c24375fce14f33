// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/confirm"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// way are the steps from an export to a cluster that imports it.
func (h hop) way() (steps []Step) {
	isOther := h.from != h.to
	if isOther {
		steps = append(steps, h.record())
	}
	if err := h.to.whyImportUnread(); err != nil {
		unread := h.untried(check{name: "Import"}, h.to, err)
		if h.from.export != nil && isOther { // what the exporter knows of the importer
			c := ptr.Deref(meta.FindStatusCondition(h.from.export.Status.Conditions, condition.TypeAvailable), metav1.Condition{})
			unread.Message += fmt.Sprintf("; cluster %s says: %s %s (%s): %s", h.from.ID(), condition.TypeAvailable, c.Status, c.Reason, c.Message)
			steps = append(steps, hop{h.clusters, h.to, h.from}.peer())
		}
		return append(steps, unread)
	}
	steps = append(steps, h.agent(h.to))
	if isOther {
		steps = append(steps, h.peer())
	}
	return append(steps, h.source(), h.serviceImport(), h.slices(), h.dns())
}

// peer is the connection of the importer to the exporter.
func (h hop) peer() Step {
	c := h.to
	if err := c.whyUnread("Peer"); err != nil {
		return h.untried(checkPeer, c, err)
	}
	peer := c.peer(h.from.ID())
	switch {
	case peer == nil:
		return h.step(checkPeer, c, "NoPeer", "there is none, so the cluster is not read")
	case peer.Spec.Removed:
		return h.step(checkPeer, c, "Removed", "spec.removed is true")
	}
	accepted := h.condition(checkPeer, c, peer.Status.Conditions, v1alpha1.PeerAccepted)
	connected := h.condition(checkPeer, c, peer.Status.Conditions, v1alpha1.PeerConnected)
	switch {
	case accepted.Severity == finding.OK:
		return connected
	case connected.Severity == finding.OK: // by what was accepted before
		accepted.Severity = finding.Warning
	}
	return accepted
}

// source is the row of the import table that applies to the export, and what the importer
// reports to the exporter.
func (h hop) source() Step {
	c, list := h.to, h.to.list()
	entry, isListed := list.Find(h.from.ID())
	report := ptr.Deref(h.report(), v1alpha1.ImportRecordSpec{Imported: true, Reason: model.ReasonImported})
	state, since := cmp.Or(entry.Absent, model.SourcePublished), metav1.Time{Time: entry.Since}
	if peer := c.peer(h.from.ID()); peer != nil && !state.IsOut() && !meta.IsStatusConditionTrue(peer.Status.Conditions, v1alpha1.PeerConnected) {
		state = model.SourceNotRead
	}
	switch {
	case !report.Imported:
		return h.reported(report.Reason, report.Message, report.Since)
	case !state.IsRead():
		return h.step(checkSource, c, string(state), states[state]).since(since)
	case !isListed:
		return h.step(checkSource, c, model.ReasonPending, "the import does not have the export yet")
	case report.Reason != model.ReasonImported && report.Reason != model.ReasonTakeoverHeld:
		s := h.reported(report.Reason, report.Message, report.Since)
		s.Severity = finding.Warning
		return s
	}
	place := slices.Index(list.Entries, entry) + 1
	return h.step(checkSource, c, "", fmt.Sprintf("%s, %d of %d in the list of the import", state, place, len(list.Entries))).since(report.Since)
}

// report is what the importer reports of the export; nil if nothing.
func (h hop) report() *v1alpha1.ImportRecordSpec {
	for _, r := range h.exchange(h.to).reports.Items {
		if r.Namespace == model.ScopedExchangeNamespace(h.to.ID(), h.from.ID()) && (h.from.export == nil || r.Spec.ExportUID == h.from.export.UID) {
			return &r.Spec
		}
	}
	return nil
}

// states say what the rows of the import table are in which an export is not read.
var states = map[model.SourceState]string{
	model.SourceEnded:     "the export was withdrawn, and its ServiceExport is gone",
	model.SourceSuspended: "the export was withdrawn, and its ServiceExport exists",
	model.SourceNotRead:   "the export is not read, and what exists of it is kept",
	model.SourceRefused:   "a policy, or an annotation of the Namespace, refuses the export",
	model.SourceMissing:   "the export is missing without a withdrawal, and what exists of it is kept; if it is gone for good, run kubectl comity confirm missing with the cluster",
}

// reported is the step of a reason for which the export is not imported.
func (h hop) reported(reason, message string, since metav1.Time) Step {
	s := h.obstacle(h.step(checkSource, h.to, reason, message)).since(since)
	s.Docs = finding.Condition("ServiceExport", condition.TypeAvailable, reason)
	return s
}

// obstacle names in the step of an import what is in its way.
func (h hop) obstacle(s Step) Step {
	switch s.Reason {
	case model.ReasonNameTaken:
		if taken, is := model.Find(h.to.derived, func(s *corev1.Service) bool { return !model.IsManaged(s) }); is {
			s.Object = "Service " + taken.Namespace + "/" + taken.Name
			s.Message += "; if nothing else needs Service " + taken.Name + ", delete it"
			s.Fix = h.fill("kubectl --context {to} -n {ns} delete service "+taken.Name, h.to)
		}
	case model.ReasonPolicyDenied:
		if sources, err := model.SourcesOfNamespace(h.to.namespace); err == nil && !sources.Contains(h.from.ID()) {
			s.Fix = h.fill(fmt.Sprintf("kubectl --context {to} annotate namespace {ns} --overwrite %s=%s,{a}", model.AnnotationImportFrom, sources), h.to)
		}
	}
	return s
}

// serviceImport is the ServiceImport with its conditions.
func (h hop) serviceImport() Step {
	c := h.to
	switch {
	case c.imported == nil:
		return h.step(checkImport, c, "NotListed", "there is none")
	case !model.IsManaged(c.imported):
		return h.obstacle(h.step(checkImport, c, model.ReasonForeignImport, "Comity did not create it, so nothing is imported; if nothing else needs it, delete it"))
	}
	conditions := c.imported.Status.Conditions
	ready := h.condition(checkImport, c, conditions, condition.TypeImportReady)
	if ready.Severity != finding.OK {
		return h.obstacle(ready)
	}
	entries, waiting := c.list().Entries, confirm.Waiting(c.list(), conditions)
	_, waits := waiting[h.from.ID()]
	// Because of this export. The message names another one, and its source says that it is missing.
	isOwn := map[string]bool{
		condition.TypeTakeoverHeld: waits || len(waiting) == 0,
		condition.TypeFrozen:       len(entries) > 0 && entries[0].Cluster == h.from.ID(),
	}
	for _, typ := range []string{condition.TypeTakeoverHeld, condition.TypeFrozen, condition.TypeSourceMissing} {
		if s := h.condition(checkImport, c, conditions, typ); s.Severity != finding.OK {
			if !isOwn[typ] {
				s.Severity, s.Fix = finding.Warning, "do what the message says, if it is right"
			}
			return s
		}
	}
	return ready
}

// imported are the ready endpoints of the export in the importer, as endpoints gives them.
func (h hop) imported() (ready []endpoint, reason, message string) {
	if s := h.to.derivedService(); s != nil {
		return h.to.endpoints(s.Name, h.from.ID())
	}
	return nil, noEndpoints, "there is no derived Service"
}

func (h hop) slices() Step {
	_, reason, message := h.imported()
	var available Step
	if h.to.imported != nil {
		available = h.condition(checkSlices, h.to, h.to.imported.Status.Conditions, condition.TypeAvailable)
	}
	switch s := h.to.derivedService(); {
	case s != nil && s.Annotations[model.AnnotationTiers] != "" && available.Severity == finding.OK: // if another tier serves, none need be ready
		available.Message = message + "; " + available.Message
		return available
	case reason != "" && available.Reason == condition.ReasonWithdrawn:
		return available
	}
	return h.step(checkSlices, h.to, reason, message)
}

// dns is the first problem of the configuration of the importer's DNS.
func (h hop) dns() Step {
	if err := h.to.whyUnread("DNS"); err != nil {
		return h.untried(checkDNS, h.to, err)
	}
	s := h.step(checkDNS, h.to, "", "it is configured to serve clusterset names")
	if len(h.to.dns) > 0 {
		s.Finding = h.to.dns[0]
		s.Check, s.Cluster = checkDNS.name, h.to.Context
	}
	return s
}
