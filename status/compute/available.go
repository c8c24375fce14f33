// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

// Reports is what the clusters in the scope of an export say of importing it.
type Reports struct {
	// Destinations are those clusters, without this one.
	Destinations []model.Destination
	// Known is false as long as it is not known where the export goes.
	Known bool
}

// maxReason bounds the word that a cluster of another version gives as a reason,
// maxSaid what one says in the message of a condition that tells of many.
const (
	maxReason = 64 // bytes
	maxSaid   = 240
)

// availability says which clusters in scope import the export: one condition, or
// none if there is nothing to go by.
//
//	not published               False    NotPublished
//	about to be                 Unknown  Pending
//	no other cluster in scope   False    NoDestinations
//	some cluster has a problem  False    the first problem in the order of condition.ProblemRank
//	some have not reported      Unknown  Pending
//	all import it               True     Imported
func availability(in ExportInput) []metav1.Condition {
	old := in.Export.Status.Conditions
	if in.Reports == nil {
		return nil
	}
	if in.Observation == nil {
		return present(old, condition.TypeAvailable)
	}
	destinations := in.Reports.Destinations
	var wanted metav1.Condition
	switch {
	case in.Observation.Publication == model.PublicationNone, in.Observation.Publication == model.PublicationWithheld,
		// What could not be brought up to date may stand there as it was.
		in.Observation.Publication == model.PublicationFailed && !slices.ContainsFunc(destinations, imports):
		wanted = condition.Available(condition.ReasonNotPublished, "no cluster can import what is not published; see condition Ready")
	case in.Observation.Publication == model.PublicationPending:
		wanted = condition.Available(condition.ReasonAvailablePending, "not published yet; see condition Ready")
	case !in.Reports.Known:
		return present(old, condition.TypeAvailable)
	case len(destinations) == 0:
		wanted = condition.Available(condition.ReasonNoDestinations, fmt.Sprintf(
			"no other cluster is in the scope of this export; join one, or widen %s on it or on its Namespace", model.AnnotationExportTo))
	default:
		wanted = reported(destinations)
	}
	return []metav1.Condition{hold(old, wanted, availabilityIsSettled(in))}
}

func imports(d model.Destination) bool { return d.Imported }

// reported is what all destinations say together.
func reported(destinations []model.Destination) metav1.Condition {
	var imported []model.ClusterID
	for _, d := range destinations {
		if d.Imported {
			imported = append(imported, d.Cluster)
		}
	}
	slices.Sort(imported)
	groups := grouped(destinations)
	reason := condition.ReasonImported
	if len(groups) > 0 && !groups[0].imported {
		reason = condition.AvailableReason(groups[0].reason)
	}
	parts := make([]part, len(groups))
	for i, g := range groups {
		parts[i] = g.part()
	}
	return condition.Available(reason, fit(importedBy(imported, len(destinations)), parts))
}

func importedBy(imported []model.ClusterID, all int) string {
	switch {
	case len(imported) < all:
		return fmt.Sprintf("imported by %d of %d clusters", len(imported), all)
	case all == 1:
		return "imported by the one cluster in scope: " + string(imported[0])
	case all > maxListed:
		return fmt.Sprintf("imported by all %d clusters in scope", all)
	}
	return fmt.Sprintf("imported by all %d clusters in scope: %s", all, some(names(imported), maxListed))
}

// group is the destinations that give one reason, sorted by cluster.
type group struct {
	reason   string
	imported bool
	members  []model.Destination
}

// grouped gives what there is to tell, in this order: problems by their rank,
// what is pending, and what is imported but not quite well. That a cluster
// imports and is well needs no telling.
func grouped(destinations []model.Destination) []group {
	sorted := slices.SortedStableFunc(slices.Values(destinations), func(a, b model.Destination) int {
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

// rank puts groups in order. No problem ranks as high as what is pending, nor
// that as high as what is imported.
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
	list := some(names(clusters), maxNamed)
	if g.reason == model.ReasonPending && !g.imported {
		return part{"not reported yet by " + list, len(clusters)}
	}
	said := plain(g.members[0].Message)
	if said != "" && slices.ContainsFunc(g.members, func(d model.Destination) bool { return d.Message != g.members[0].Message }) {
		said = string(clusters[0]) + " says: " + said
	}
	if said != "" {
		said = ": " + said
	}
	return part{either(g.reason, "unknown reason") + " in " + list + g.since() + model.Bound(said, maxSaid), len(clusters)}
}

// since is when the first of the group began, as the clusters report it. What
// this cluster itself sees of them begins anew with each process here: since when
// is then lastTransitionTime's to say, and the message stays as it is.
func (g group) since() string {
	switch g.reason {
	case model.ReasonUnreachable, string(condition.ReasonStale), string(condition.ReasonLost):
		return ""
	}
	first := g.members[0].Since
	same := true
	for _, d := range g.members[1:] {
		same = same && d.Since.Equal(first)
		if first.IsZero() || (!d.Since.IsZero() && d.Since.Before(first)) {
			first = d.Since
		}
	}
	switch {
	case first.IsZero():
		return ""
	case same:
		return " since " + moment(first)
	}
	return ", first since " + moment(first)
}
