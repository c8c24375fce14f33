// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// Destinations are the clusters in the scope of the local export key, sorted,
// without this one, and what came of the export in each; false as long as it is
// not known where the export goes.
func (r *Reporter) Destinations(key types.NamespacedName) ([]model.Destination, bool) {
	seen, ok := r.opts.Observations.Observe(key)
	if !ok || !published(seen) {
		return nil, false
	}
	export := &mcsv1beta1.ServiceExport{}
	if err := r.client.Get(context.Background(), key, export); err != nil { // a cache: it does not wait
		return nil, false
	}
	return destinations(r.opts.Self, seen.Scope, r.opts.Peers.Members(), r.opts.Peers.Reports(key), export.UID), true
}

// published reports whether the export stands in the exchange, be it only for
// part of its scope.
func published(seen model.Observation) bool {
	return seen.Publication == model.Published || seen.Publication == model.PublicationFailed && !seen.Scope.Empty()
}

// destinations joins members and reports. A report about another export of the
// same name, one deleted since, says nothing.
func destinations(self model.ClusterID, scope model.Scope, members []model.Member, reports []model.Report, uid types.UID) []model.Destination {
	said := make(map[model.ClusterID]model.Report, len(reports))
	for _, report := range reports {
		if report.ExportUID == uid {
			said[report.Cluster] = report
		}
	}
	var out []model.Destination
	known := make(map[model.ClusterID]bool, len(members))
	for _, m := range members {
		known[m.ID] = true
		if m.ID == self || !scope.Contains(m.ID) {
			continue
		}
		if report, has := said[m.ID]; has {
			out = append(out, reported(m, report))
		} else {
			out = append(out, silent(m))
		}
	}
	for _, id := range scope.Clusters() {
		if id != self && !known[id] {
			out = append(out, model.Destination{Cluster: id, Reason: model.ReasonUnknownCluster, Message: fmt.Sprintf(
				"no cluster %s is joined; join it, or take it out of the scope of the export", id)})
		}
	}
	slices.SortFunc(out, func(a, b model.Destination) int { return cmp.Compare(a.Cluster, b.Cluster) })
	return out
}

// reported is what m said last. That it is not heard of now changes nothing
// about what it imports, and is the reason only where there is no other.
func reported(m model.Member, report model.Report) model.Destination {
	d := model.Destination{
		Cluster: m.ID, Imported: report.Imported, Reason: report.Reason, Message: model.Bound(report.Message, maxMessage), Since: report.Since,
	}
	if m.Liveness.State == model.Connected {
		return d
	}
	if d.Imported && d.Reason == model.ReasonImported {
		d.Reason, d.Message, d.Since = m.Liveness.State.String(), unheard(m), m.Liveness.Since
		return d
	}
	if d.Message != "" {
		d.Message += "; "
	}
	d.Message += "that is what it said last: " + unheard(m)
	return d
}

// silent is a cluster that has said nothing about the export.
func silent(m model.Member) model.Destination {
	d := model.Destination{Cluster: m.ID, Reason: model.ReasonPending}
	switch {
	case m.Liveness.State != model.Connected:
		d.Reason, d.Message, d.Since = model.ReasonUnreachable, unheard(m), m.Liveness.Since
	case m.Reported:
		d.Message = fmt.Sprintf("cluster %s has not said yet what came of the export", m.ID)
	default:
		d.Unsynced, d.Message = true, fmt.Sprintf("cluster %s has not been read yet", m.ID)
	}
	return d
}

// unheard says since when nothing is heard of m, and why if that is known. The
// times stand still as long as nothing is.
func unheard(m model.Member) string {
	text := fmt.Sprintf("nothing was heard of cluster %s since Comity started here", m.ID)
	if !m.Liveness.Confirmed.IsZero() {
		text = fmt.Sprintf("nothing was heard of cluster %s since %s", m.ID, m.Liveness.Confirmed.UTC().Format(time.RFC3339))
	}
	if m.Liveness.Message != "" {
		text += ": " + m.Liveness.Message
	}
	return text
}
