// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
)

// Destinations are the clusters in the scope of a local export, sorted, and what each
// reports of importing it. This cluster is among them only if a takeover that concerns
// the export is on hold here. The result is false as long as it is not known where the
// export goes. Reports about an earlier export of the same name,
// one with another UID, are ignored.
func Destinations(self model.ClusterID, seen model.Observation, members []model.Member, reports []model.Report, uid types.UID) ([]model.Destination, bool) {
	if seen.Publication != model.Published && (seen.Publication != model.PublicationFailed || seen.Scope.Empty()) {
		return nil, false
	}
	latest := make(map[model.ClusterID]model.Report, len(reports))
	for _, report := range reports {
		if report.ExportUID == uid {
			latest[report.Cluster] = report
		}
	}
	var out []model.Destination
	for _, m := range members {
		if m.ID == self || !seen.Scope.Contains(m.ID) {
			continue
		}
		if report, has := latest[m.ID]; has {
			out = append(out, reportedBy(m, report))
		} else {
			out = append(out, notReportedBy(m))
		}
	}
	_, unknown := audience(self, seen.Scope, members)
	for _, id := range unknown {
		out = append(out, model.Destination{Cluster: id, Reason: model.ReasonUnknownCluster, Message: fmt.Sprintf(
			"no cluster %s is joined; join it, or remove it from the scope of the export", id)})
	}
	if seen.Import != nil {
		// Here no ImportRecord says it.
		if message := model.ReportTakeovers(seen.Takeovers, self, self, seen.Import.Key); message != "" {
			out = append(out, model.Destination{Cluster: self, Imported: true, Reason: model.ReasonTakeoverHeld, Message: message})
		}
	}
	slices.SortFunc(out, func(a, b model.Destination) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return out, true
}

// reportedBy is what m reported last. That its heartbeat is missing now changes
// nothing about what it imports, and is the reason only where there is no other.
func reportedBy(m model.Member, report model.Report) model.Destination {
	d := model.Destination{
		Cluster: m.ID, Imported: report.Imported, Reason: report.Reason, Message: model.Bound(report.Message, maxMessage), Since: report.Since,
		Decider: report.Decider,
	}
	if m.Liveness.State == model.Connected {
		return d
	}
	if d.Imported && d.Reason == model.ReasonImported {
		d.Reason, d.Message, d.Since = m.Liveness.State.String(), noHeartbeat(m), m.Liveness.Since
		return d
	}
	if d.Message != "" {
		d.Message += "; "
	}
	d.Message += "this is its last report: " + noHeartbeat(m)
	return d
}

// notReportedBy is a cluster that has reported nothing about the export.
func notReportedBy(m model.Member) model.Destination {
	d := model.Destination{Cluster: m.ID, Reason: model.ReasonPending}
	switch {
	case m.Liveness.State != model.Connected:
		d.Reason, d.Message, d.Since = model.ReasonUnreachable, noHeartbeat(m), m.Liveness.Since
	case m.Reported:
		d.Message = fmt.Sprintf("cluster %s has not reported yet whether it imports the export", m.ID)
	default:
		d.Unsynced, d.Message = true, fmt.Sprintf("cluster %s has not been read yet", m.ID)
	}
	return d
}

// noHeartbeat says since when the heartbeat of m is missing, and why if that is
// known. The text stays the same as long as it is missing.
func noHeartbeat(m model.Member) string {
	text := fmt.Sprintf("no heartbeat of cluster %s was seen since Comity started here", m.ID)
	if !m.Liveness.Confirmed.IsZero() {
		text = fmt.Sprintf("no heartbeat of cluster %s was seen since %s", m.ID, m.Liveness.Confirmed.UTC().Format(time.RFC3339))
	}
	if m.Liveness.Message != "" {
		text += ": " + m.Liveness.Message
	}
	return text
}
