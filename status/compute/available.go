// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

// maxReason bounds a reason that a cluster of another version reports, maxQuoted
// the message of one cluster in a condition about many.
const (
	maxReason = 64 // bytes
	maxQuoted = 240
)

// availability is Available of a ServiceExport: which clusters in scope import it.
// One condition, or none if nothing is known.
//
//	not published               False    NotPublished
//	about to be                 Unknown  Pending
//	no other cluster in scope   False    NoDestinations
//	some cluster has a problem  False    the first problem in the order of condition.ProblemRank
//	some have not reported      Unknown  Pending
//	all import it               True     Imported
func availability(in ExportInput) []metav1.Condition {
	old := in.Export.Status.Conditions
	if in.Observation == nil {
		return present(old, condition.TypeAvailable)
	}
	destinations := in.Destinations
	var wanted metav1.Condition
	switch {
	case takesNoPart(in.Observation),
		// An earlier version may still be published and imported.
		in.Observation.Publication == model.PublicationFailed && !slices.ContainsFunc(destinations, func(d model.Report) bool { return d.Imported }):
		wanted = condition.Available(condition.ReasonNotPublished, "no cluster can import what is not published; see condition Ready")
	case in.Observation.Publication == model.PublicationPending:
		wanted = condition.Available(model.ReasonPending, "not published yet; see condition Ready")
	case !in.DestinationsKnown:
		return present(old, condition.TypeAvailable)
	case len(destinations) == 0:
		wanted = condition.Available(condition.ReasonNoDestinations, fmt.Sprintf(
			"no other cluster is in the scope of this export; join one, or widen %s on it or on its Namespace", model.AnnotationExportTo))
	default:
		wanted = reported(destinations, deciders(in.Observation, destinations))
	}
	return []metav1.Condition{hold(old, wanted, in.availabilityIsSettled)}
}

// reported puts the reports of all destinations together.
func reported(destinations []model.Report, deciders string) metav1.Condition {
	var imported []model.ClusterID
	for _, d := range destinations {
		if d.Imported {
			imported = append(imported, d.Cluster)
		}
	}
	slices.Sort(imported)
	groups := grouped(destinations)
	reason := model.ReasonImported
	switch {
	case len(groups) > 0 && !groups[0].imported:
		reason = groups[0].reason
	case deciders != "":
		reason = condition.ReasonDecidersDiffer
	}
	parts := make([]part, len(groups), len(groups)+1)
	for i, g := range groups {
		parts[i] = g.part()
	}
	if deciders != "" {
		parts = append(parts, part{deciders, 0})
	}
	return condition.Available(reason, fit(counted(imported, len(destinations),
		"imported by %d of %d clusters", "imported by the one cluster in scope", "imported by all %d clusters in scope"), parts))
}

// deciders says which export decides the import where, if that is not the same one
// everywhere, as far as this cluster may know: the lists of the clusters formed, or were
// confirmed, in another order. Empty if it is the same.
func deciders(seen *model.Observation, destinations []model.Report) string {
	where := map[model.ClusterID][]string{}
	if d := seen.Decider; d.Cluster != "" && !d.Scoped {
		where[d.Cluster] = []string{"this cluster"}
	}
	for _, d := range destinations {
		if d.Imported && d.Decider != "" {
			where[d.Decider] = append(where[d.Decider], string(d.Cluster))
		}
	}
	if len(where) < 2 {
		return ""
	}
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(where)) {
		slices.Sort(where[id])
		parts = append(parts, fmt.Sprintf("cluster %s in %s", id, decision.Some(where[id], maxNamed)))
	}
	return "the import is not decided by the same export everywhere, but by that of " + decision.Some(parts, maxListed) +
		"; to change that, run kubectl comity confirm takeover there"
}

// group is the destinations that give one reason, sorted by cluster.
type group struct {
	reason   string
	imported bool
	members  []model.Report
}

// grouped lists, in this order: problems by their rank, pending clusters, and
// clusters that import with a problem. Clusters that import without one are left out.
func grouped(destinations []model.Report) []group {
	sorted := slices.SortedStableFunc(slices.Values(destinations), func(a, b model.Report) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Reason, b.Reason))
	})
	var groups []group
	for _, d := range sorted {
		if d.Imported && (d.Reason == "" || d.Reason == model.ReasonImported) {
			continue
		}
		reason := model.Bound(plain(d.Reason), maxReason)
		i := slices.IndexFunc(groups, func(g group) bool { return g.reason == reason && g.imported == d.Imported })
		if i < 0 {
			i, groups = len(groups), append(groups, group{reason: reason, imported: d.Imported})
		}
		groups[i].members = append(groups[i].members, d)
	}
	slices.SortFunc(groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.reason, b.reason))
	})
	return groups
}

// rank orders groups: problems, then pending clusters, then those that import.
func (g group) rank() int {
	const pending, imported = 1000, 2000
	switch {
	case g.imported:
		return imported + condition.ProblemRank(g.reason)
	case g.reason == model.ReasonPending:
		return pending
	}
	return condition.ProblemRank(g.reason)
}

// part is "NamespaceMissing in c since 2026-11-21T10:02:11Z: namespace ...".
func (g group) part() part {
	clusters := make([]model.ClusterID, len(g.members))
	for i, d := range g.members {
		clusters[i] = d.Cluster
	}
	list := decision.Some(clusters, maxNamed)
	if g.reason == model.ReasonPending && !g.imported {
		return part{"not reported yet by " + list, len(clusters)}
	}
	quoted := plain(g.members[0].Message)
	if quoted != "" && slices.ContainsFunc(g.members, func(d model.Report) bool { return d.Message != g.members[0].Message }) {
		quoted = string(clusters[0]) + " reports: " + quoted
	}
	if quoted != "" {
		quoted = ": " + quoted
	}
	return part{cmp.Or(g.reason, "unknown reason") + " in " + list + g.since() + model.Bound(quoted, maxQuoted), len(clusters)}
}

// since is when the first problem of the group began, as the clusters report it.
// States that this cluster observes itself, such as Lost, have no time here: it would
// be another one after each restart. lastTransitionTime has it.
func (g group) since() string {
	switch g.reason {
	case model.ReasonUnreachable, condition.ReasonLost:
		return ""
	}
	var first time.Time
	for _, d := range g.members {
		if first.IsZero() || !d.Since.IsZero() && d.Since.Before(first) {
			first = d.Since
		}
	}
	switch {
	case first.IsZero():
		return ""
	case slices.ContainsFunc(g.members, func(d model.Report) bool { return !d.Since.Equal(first) }):
		return ", first since " + moment(first)
	}
	return " since " + moment(first)
}
