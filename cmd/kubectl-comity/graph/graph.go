// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/confirm"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/status"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

// Graph is what -o json prints, under kind ServiceGraph.
type Graph struct {
	// Clusters are the problems of each: "NotRunning", "Lost in a".
	Clusters map[string][]string `json:"clusters"`
	Edges    []*Edge             `json:"edges"`

	read      map[string]bool
	conflicts map[string]bool
	pairs     map[[2]string]*Edge
}

// Edge is what one cluster exports to another.
type Edge struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Services are the problems of each: the state of a source that is not published,
	// NotImported, Conflict, Frozen, TakeoverHeld, and LaterTier of an import whose first tier
	// does not serve.
	Services map[string][]string `json:"services"`
}

// build makes the graph of what the status and the objects say.
func build(report status.Report, all []status.Objects) Graph {
	g := Graph{Clusters: map[string][]string{}, read: map[string]bool{}, conflicts: map[string]bool{}, pairs: map[[2]string]*Edge{}}
	for _, c := range report.Clusters {
		if c.State == status.Hub {
			continue
		}
		id := cmp.Or(c.ID, c.Context)
		if g.node(id); c.State != status.Running {
			g.node(id, string(c.State))
		}
		for _, peer := range c.Peers {
			if g.node(peer.ID); peer.State != status.Connected {
				g.node(peer.ID, string(peer.State)+" in "+id)
			}
		}
	}
	for _, s := range report.Services { // a conflict is on every export of the Service
		if meta.IsStatusConditionTrue(s.Conditions, condition.TypeConflict) {
			g.conflicts[s.Namespace+"/"+s.Name] = true
		}
	}
	for _, objects := range all {
		g.read[objects.ID] = objects.Err == nil
		for i := range objects.Imports {
			g.addImport(objects.ID, &objects.Imports[i])
		}
	}
	for _, objects := range all {
		for _, r := range objects.Published {
			g.addPublished(r)
		}
	}
	g.Edges = slices.SortedFunc(maps.Values(g.pairs), func(a, b *Edge) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return g
}

// node adds a cluster, or problems of it.
func (g *Graph) node(id string, problems ...string) {
	g.Clusters[id] = slices.Sorted(slices.Values(append(g.Clusters[id], problems...)))
}

// add adds an export with its problems, unless it is there.
func (g *Graph) add(from, to, service string, problems ...string) {
	pair := [2]string{from, to}
	if g.pairs[pair] == nil {
		g.node(from)
		g.node(to)
		g.pairs[pair] = &Edge{from, to, map[string][]string{}}
	}
	if g.conflicts[service] {
		problems = append(problems, condition.TypeConflict)
	}
	if services := g.pairs[pair].Services; services[service] == nil {
		services[service] = append([]string{}, problems...)
	}
}

// addImport adds the sources of an import in cluster to, but for its own export.
func (g *Graph) addImport(to string, i *mcsv1beta1.ServiceImport) {
	list, err := model.ParseList(i.Annotations[model.AnnotationList])
	if err != nil || len(list.Entries) == 0 { // of another implementation
		for _, c := range i.Status.Clusters {
			list.Entries = append(list.Entries, model.Entry{SourceExport: model.SourceExport{Cluster: model.ClusterID(c.Cluster)}, Absent: model.SourcePublished})
		}
	}
	waiting, available := confirm.Waiting(i), meta.FindStatusCondition(i.Status.Conditions, condition.TypeAvailable)
	for at, entry := range list.Entries {
		var problems []string
		if entry.Absent != model.SourcePublished {
			problems = append(problems, string(entry.Absent))
		}
		if at == 0 && meta.IsStatusConditionTrue(i.Status.Conditions, condition.TypeFrozen) {
			problems = append(problems, condition.TypeFrozen)
		}
		if available != nil && available.Reason == condition.ReasonLaterTier {
			problems = append(problems, available.Reason)
		}
		if _, waits := waiting[entry.Cluster]; waits {
			problems = append(problems, condition.TypeTakeoverHeld)
		}
		if from := string(entry.Cluster); from != to {
			g.add(from, to, i.Namespace+"/"+i.Name, problems...)
		}
	}
}

// addPublished adds an export, to all members if it is for all. One that a cluster that was
// read does not import has that as its problem.
func (g *Graph) addPublished(r confirm.Record) {
	for _, to := range slices.Sorted(maps.Keys(g.Clusters)) {
		if r.Spec.Withdrawn || to == string(r.From) || r.To != "" && string(r.To) != to {
			continue
		}
		var problems []string
		if g.read[to] {
			problems = []string{"NotImported"}
		}
		g.add(string(r.From), to, r.Service().String(), problems...)
	}
}
