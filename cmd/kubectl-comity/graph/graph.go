// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package graph is `kubectl comity graph`: who exports what to whom.
//
// It reads imports, the records of exports and Peers of the given clusters, of whatever
// number, and gives a table, or a graph in the languages of Graphviz and Mermaid, with
// conflicts, holds and lost clusters marked. It writes to no cluster.
package graph

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/confirm"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/status"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
)

const long = `Show who exports what to whom: each pair of an exporting and an importing cluster, with
the Services. Conflicts, exports that are held, missing or not imported, and clusters
that are not connected are marked.

What a cluster imports is read in that cluster. Of a cluster that is not given, the
command shows what the given ones import from it, and what they publish for it.

Without -o the output is a table; dot is for Graphviz, and mermaid for Markdown.`

// New gives the command graph.
func New(env *command.Env) *cobra.Command {
	var output command.Output
	cmd := env.Command("graph [CONTEXT...]", "Show which cluster exports which Services to which", long,
		"  kubectl comity graph a b\n  kubectl comity graph a b -o dot | dot -Tsvg > graph.svg\n  kubectl comity graph a b -o mermaid", 0,
		func(ctx context.Context, env *command.Env, args []string) error {
			sites, err := agent.Sites(ctx, env, args)
			if err != nil {
				return err
			}
			report, all := status.Read(ctx, sites, "", time.Now())
			for _, objects := range all {
				if objects.Err != nil {
					env.Warnf("%v", objects.Err)
				}
			}
			g := build(report, all)
			if l, is := map[string]language{"dot": dot, "mermaid": mermaid}[output.Format]; is {
				_, err = io.WriteString(command.Whole(env.Out), g.write(l))
				return err
			}
			return output.Print(env.Out, "ServiceGraph", &g, func() { g.print(env) })
		})
	output.AddFlags(cmd, "dot", "mermaid")
	return cmd
}

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
		id := c.Name()
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
	var published []confirm.Record
	for _, objects := range all {
		g.read[objects.ID] = objects.Err == nil
		for i := range objects.Imports {
			g.addImport(objects.ID, &objects.Imports[i])
		}
		for _, r := range objects.Published {
			if r.Spec.Withdrawn {
				continue
			}
			published = append(published, r)
			if g.node(string(r.From)); r.To != "" {
				g.node(string(r.To))
			}
		}
	}
	for _, r := range published { // when all clusters are known: one for all is for each of them
		g.addPublished(r)
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
			list.Entries = append(list.Entries, model.Entry{SourceExport: model.SourceExport{Cluster: model.ClusterID(c.Cluster)}})
		}
	}
	waiting, available := confirm.Waiting(list, i.Status.Conditions), meta.FindStatusCondition(i.Status.Conditions, condition.TypeAvailable)
	for at, entry := range list.Entries {
		var problems []string
		if entry.Absent != "" {
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
	for to := range g.Clusters {
		if to == string(r.From) || r.To != "" && string(r.To) != to {
			continue
		}
		var problems []string
		if g.read[to] {
			problems = []string{"NotImported"}
		}
		g.add(string(r.From), to, r.Service().String(), problems...)
	}
}

// most is how many Services an edge names.
const most = 3

// show gives the Services of an edge, first those with problems, and whether there are any.
func (e *Edge) show() (lines []string, isBad bool) {
	var good []string
	for _, name := range slices.Sorted(maps.Keys(e.Services)) {
		if problems := e.Services[name]; len(problems) > 0 {
			lines, isBad = append(lines, name+" ("+strings.Join(problems, ", ")+")"), true
		} else {
			good = append(good, name)
		}
	}
	lines = append(lines, good...)
	if more := len(lines) - most; more > 0 {
		lines = append(lines[:most], fmt.Sprintf("and %d more", more))
	}
	return lines, isBad
}

func (g Graph) print(env *command.Env) {
	table := command.NewTable(env.Out, "FROM", "TO", "COUNT", "SERVICES")
	for _, e := range g.Edges {
		lines, _ := e.show()
		table.Row(e.From, e.To, len(e.Services), strings.Join(lines, ", "))
	}
	table.Flush()
	for _, id := range slices.Sorted(maps.Keys(g.Clusters)) {
		if problems := g.Clusters[id]; len(problems) > 0 {
			env.Printf("Cluster %s: %s\n", id, strings.Join(problems, ", "))
		}
	}
}

// language is how a graph is written. A node has a name and a label, and an edge two names
// and a label; both have how one with problems, and one without, is drawn.
type language struct {
	head, tail, node, edge string
	nodes, edges           map[bool]string
	quote                  func(lines []string) string
}

var (
	red = map[bool]string{true: ", color=red"}
	dot = language{
		head: "digraph clusterset {\n  rankdir=LR;\n  node [shape=box];\n", tail: "}\n",
		node: "  %s [label=%s%s];\n", edge: "  %s -> %s [label=%s%s];\n", nodes: red, edges: red,
		quote: func(lines []string) string { return `"` + inDOT.Replace(strings.Join(lines, "\n")) + `"` },
	}
	mermaid = language{
		head: "flowchart LR\n  classDef bad stroke:red\n", node: "  %s[%s]%s\n", edge: "  %s %[4]s|%[3]s| %[2]s\n",
		nodes: map[bool]string{true: ":::bad"}, edges: map[bool]string{false: "-->", true: "==>"},
		quote: func(lines []string) string {
			escaped := model.Map(lines, func(line string) string {
				return special.ReplaceAllStringFunc(line, func(s string) string { return fmt.Sprintf("#%d;", []rune(s)[0]) })
			})
			return `"` + strings.Join(escaped, "<br/>") + `"`
		},
	}
	inDOT = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	// special is what may mean something in a label of Mermaid.
	special = regexp.MustCompile(`[^a-zA-Z0-9 ./_,():-]`)
)

// write gives the graph in a language. Clusters get short names, in order.
func (g Graph) write(l language) string {
	var out strings.Builder
	out.WriteString(l.head)
	names := map[string]string{}
	for i, id := range slices.Sorted(maps.Keys(g.Clusters)) {
		names[id] = fmt.Sprintf("c%d", i)
		problems := g.Clusters[id]
		_, _ = fmt.Fprintf(&out, l.node, names[id], l.quote(append([]string{id}, problems...)), l.nodes[len(problems) > 0])
	}
	for _, e := range g.Edges {
		lines, isBad := e.show()
		_, _ = fmt.Fprintf(&out, l.edge, names[e.From], names[e.To], l.quote(lines), l.edges[isBad])
	}
	return out.String() + l.tail
}
