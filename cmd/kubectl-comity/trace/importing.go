// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/confirm"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/status/condition"
	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

// way are the steps from an export to a cluster that imports it.
func (h hop) way() (steps []Step) {
	isOther := h.from != h.to
	if isOther {
		steps = append(steps, h.record())
	}
	if unread, is := h.to.notRead("Import", "Namespace", "Service", "ServiceImport", "EndpointSlice"); is {
		if h.from.export != nil && isOther { // what the exporter knows of the importer
			c := ptr.Deref(meta.FindStatusCondition(h.from.export.Status.Conditions, condition.TypeAvailable), metav1.Condition{})
			unread.Message += fmt.Sprintf("; cluster %s says: %s %s (%s): %s", h.from.ID, condition.TypeAvailable, c.Status, c.Reason, c.Message)
			steps = append(steps, hop{h.clusters, h.to, h.from}.peer())
		}
		return append(steps, unread)
	}
	steps = append(steps, h.agent(h.to))
	if isOther {
		steps = append(steps, h.peer())
	}
	return append(steps, h.source(), h.serviceImport(), h.derived(), h.slices(), h.dns())
}

// peer is the connection of the importer to the exporter.
func (h hop) peer() Step {
	c, check := h.to, "Peer "+string(h.from.ID)
	if s, is := c.notRead(check, "Peer"); is {
		return s
	}
	peer := c.peer(h.from.ID)
	switch {
	case peer == nil:
		return h.broken(check, c, "NoPeer", "there is none, so the cluster is not read")
	case peer.Spec.Removed:
		return h.broken(check, c, "Removed", "spec.removed is true")
	}
	at := func(typ string) Step {
		s := h.condition(check, c, "Peer", peer.Status.Conditions, typ)
		s.Object = check
		return s
	}
	accepted, connected := at(exchangev1alpha1.PeerAccepted), at(exchangev1alpha1.PeerConnected)
	switch {
	case connected.Severity == finding.OK && slices.Contains(c.refused, h.from.ID):
		s := h.broken(check, c, "Unauthorized", "the cluster refuses the token in Secret "+peer.Spec.KubeconfigSecret+": it is revoked or expired")
		s.Docs = finding.Condition("Peer", exchangev1alpha1.PeerConnected, s.Reason)
		return s
	case accepted.Severity == finding.OK:
		return connected
	case connected.Severity == finding.OK: // by what was accepted before
		return accepted.warned()
	}
	return accepted
}

// source is the row of the import table that applies to the export, and what the importer
// reports to the exporter.
func (h hop) source() Step {
	const check = "Source"
	c, list := h.to, h.to.list()
	entry, isListed := list.Find(h.from.ID)
	report := ptr.Deref(h.report(), exchangev1alpha1.ImportRecordSpec{Imported: true, Reason: model.ReasonImported})
	state := cmp.Or(entry.Absent, model.SourcePublished)
	if peer := c.peer(h.from.ID); peer != nil && !state.IsOut() && !meta.IsStatusConditionTrue(peer.Status.Conditions, exchangev1alpha1.PeerConnected) {
		state = model.SourceNotRead
	}
	switch {
	case c.namespace == nil || c.namespace.DeletionTimestamp != nil:
		return h.broken(check, c, model.ReasonNamespaceMissing, "the cluster has no namespace "+h.key.Namespace).since(report.Since)
	case !report.Imported:
		return h.problem(check, report.Reason, report.Message).since(report.Since)
	case state == model.SourceRefused:
		return h.problem(check, model.ReasonPolicyDenied, "Refused: a policy, or an annotation of the Namespace").since(metav1.Time{Time: entry.Since})
	case !state.IsRead():
		return h.broken(check, c, string(state), string(state)+": "+states[state]).about("ServiceImport", c).since(metav1.Time{Time: entry.Since})
	case !isListed:
		return h.broken(check, c, model.ReasonPending, "the import does not have the export yet").about("ServiceImport", c)
	case report.Reason != model.ReasonImported && report.Reason != model.ReasonTakeoverHeld:
		return h.problem(check, report.Reason, report.Message).since(report.Since).warned()
	}
	place := slices.Index(list.Entries, entry) + 1
	return h.ok(check, c, fmt.Sprintf("%s, %d of %d in the list of the import", state, place, len(list.Entries)), report.Since)
}

// report is what the importer reports of the export; nil if nothing.
func (h hop) report() *exchangev1alpha1.ImportRecordSpec {
	for _, r := range h.exchange(h.to).reports {
		if r.Namespace == model.ScopedExchangeNamespace(h.to.ID, h.from.ID) && (h.from.export == nil || r.Spec.ExportUID == h.from.export.UID) {
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
	model.SourceMissing:   "the export is missing without a withdrawal, and what exists of it is kept; if it is gone for good, run kubectl comity confirm missing with the cluster",
}

// problem is a reason for which the export is not imported. The remedy of some depends on
// what is in the way.
func (h hop) problem(check, reason, message string) Step {
	c := h.to
	s := h.broken(check, c, reason, message).about("ServiceImport", c)
	switch reason {
	case model.ReasonNameTaken:
		for _, taken := range c.derived {
			if !model.IsManaged(&taken) {
				s.Object = "Service " + taken.Namespace + "/" + taken.Name
				s.Message += "; if nothing else needs Service " + taken.Name + ", delete it"
				return s.fixedBy(fmt.Sprintf("kubectl --context %s -n %s delete service %s", c.Context, h.key.Namespace, taken.Name))
			}
		}
	case model.ReasonForeignImport:
		s.Message += "; if nothing else needs it, delete it"
	case model.ReasonPolicyDenied:
		if sources, err := model.SourcesOfNamespace(c.namespace); err == nil && !sources.Contains(h.from.ID) {
			s = s.fixedBy(fmt.Sprintf("kubectl --context %s annotate namespace %s --overwrite %s=%s,%s", c.Context, h.key.Namespace, model.AnnotationImportFrom, sources, h.from.ID))
		}
	}
	return s
}

// serviceImport is the ServiceImport with its conditions.
func (h hop) serviceImport() Step {
	const check = "ServiceImport"
	c := h.to
	switch {
	case c.imported == nil:
		return h.broken(check, c, "NotListed", "there is none").about(check, c)
	case !model.IsManaged(c.imported):
		return h.problem(check, model.ReasonForeignImport, "Comity did not create it, so nothing is imported")
	}
	conditions := c.imported.Status.Conditions
	ready := h.condition(check, c, check, conditions, condition.TypeImportReady)
	if ready.Severity != finding.OK {
		return ready.fixedBy(cmp.Or(h.problem(check, ready.Reason, "").Fix, ready.Fix))
	}
	if !slices.ContainsFunc(c.imported.Status.Clusters, func(s mcsv1beta1.ClusterStatus) bool { return s.Cluster == string(h.from.ID) }) {
		return h.broken(check, c, "NotListed", "status.clusters does not have cluster "+string(h.from.ID)).about(check, c)
	}
	// Because of which cluster it is held, if it is.
	because := map[string]model.ClusterID{}
	for i, e := range c.list().Entries {
		if i == 0 {
			because[condition.TypeFrozen] = e.Cluster
		}
		if e.Absent == model.SourceMissing {
			because[condition.TypeSourceMissing] = e.Cluster
		}
	}
	waiting := slices.Sorted(maps.Keys(confirm.Waiting(c.imported)))
	if slices.Contains(waiting, h.from.ID) {
		waiting = []model.ClusterID{h.from.ID}
	}
	because[condition.TypeTakeoverHeld] = slices.Concat(waiting, []model.ClusterID{h.from.ID})[0]
	for _, typ := range []string{condition.TypeTakeoverHeld, condition.TypeFrozen, condition.TypeSourceMissing} {
		by := hop{h.clusters, h.of(because[typ]), c}
		if s := by.condition(check, c, check, conditions, typ); s.Severity != finding.OK && by.from.ID == h.from.ID {
			return s
		} else if s.Severity != finding.OK {
			return s.warned()
		}
	}
	return ready
}

func (h hop) derived() Step {
	s := h.to.derivedService()
	if s == nil {
		return h.broken("Derived Service", h.to, "NotListed", "there is none")
	}
	return h.ok("Derived Service", h.to, s.Name+", clusterset IP "+cmp.Or(strings.Join(s.Spec.ClusterIPs, ", "), "none"), s.CreationTimestamp)
}

// imported are the ready endpoints of the export in the importer.
func (h hop) imported() ([]endpoint, string) {
	derived := h.to.derivedService()
	return endpoints(h.to.slices, func(s discoveryv1.EndpointSlice) bool {
		return derived != nil && s.Labels[discoveryv1.LabelServiceName] == derived.Name && s.Labels[model.LabelSourceCluster] == string(h.from.ID)
	})
}

func (h hop) slices() Step {
	const check = "EndpointSlices"
	ready, message := h.imported()
	if len(ready) > 0 {
		return h.ok(check, h.to, message, metav1.Time{})
	}
	if h.to.imported != nil {
		if s := h.condition(check, h.to, "ServiceImport", h.to.imported.Status.Conditions, condition.TypeAvailable); s.Reason == condition.ReasonWithdrawn {
			return s
		}
	}
	return h.broken(check, h.to, "NoReadyEndpoints", message)
}

// dns is the first problem of the configuration of the importer's DNS.
func (h hop) dns() Step {
	if s, is := h.to.notRead("CoreDNS", "DNS"); is {
		return s
	}
	for _, found := range h.to.dns {
		found.Check, found.Cluster = "CoreDNS", h.to.Context
		return Step{Finding: found}
	}
	return h.ok("CoreDNS", h.to, "it is configured to serve clusterset names", metav1.Time{})
}
