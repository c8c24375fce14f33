// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

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
// and a label; one with problems is drawn in another way.
type language struct {
	head, tail, node, badNode, edge, badEdge string
	quote                                    func(lines []string) string
}

var (
	dot = language{
		head: "digraph clusterset {\n  rankdir=LR;\n  node [shape=box];\n", tail: "}\n",
		node: "  %s [label=%s];\n", badNode: "  %s [label=%s, color=red];\n",
		edge: "  %s -> %s [label=%s];\n", badEdge: "  %s -> %s [label=%s, color=red];\n",
		quote: func(lines []string) string { return `"` + inDOT.Replace(strings.Join(lines, "\n")) + `"` },
	}
	mermaid = language{
		head: "flowchart LR\n  classDef bad stroke:red\n",
		node: "  %s[%s]\n", badNode: "  %s[%s]:::bad\n",
		edge: "  %s -->|%[3]s| %[2]s\n", badEdge: "  %s ==>|%[3]s| %[2]s\n",
		quote: func(lines []string) string {
			escaped := make([]string, len(lines))
			for i, line := range lines {
				escaped[i] = special.ReplaceAllStringFunc(line, func(s string) string { return fmt.Sprintf("#%d;", []rune(s)[0]) })
			}
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
		format, problems := l.node, g.Clusters[id]
		if len(problems) > 0 {
			format = l.badNode
		}
		_, _ = fmt.Fprintf(&out, format, names[id], l.quote(append([]string{id}, problems...)))
	}
	for _, e := range g.Edges {
		lines, isBad := e.show()
		format := l.edge
		if isBad {
			format = l.badEdge
		}
		_, _ = fmt.Fprintf(&out, format, names[e.From], names[e.To], l.quote(lines))
	}
	return out.String() + l.tail
}
