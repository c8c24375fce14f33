// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/sync/model"
)

const long = `Show the way of one Service from each cluster that exports it to each one that
imports it, as a tree: each step with what was found, in which cluster, and since when.
The first broken step has the command that fixes it, or names who can, and the address
of its documentation. What follows from it is marked, and not tried.

Give the contexts of as many clusters as you can reach. Of others the command shows what
these know. Give the context of a hub, too, if there is one.

The last steps are the answer of the DNS and a TCP connection to each ready endpoint, up to 50. They are
tried from the Pod of each importing cluster's agent (comity probe). A NetworkPolicy may
treat other clients differently. With --no-connect the command only reads.

The exit code is 1 if a step is broken.`

// options are the flags.
type options struct {
	command.Output
	from, to  string
	noConnect bool
}

// New gives the command trace.
func New(env *command.Env) *cobra.Command {
	var o options
	cmd := env.Command("trace NAMESPACE/NAME [CONTEXT...]", "Show where the way of a Service from cluster to cluster is broken, and what fixes it",
		long, "  kubectl comity trace shop/web --from a --to b\n  kubectl comity trace shop/web a b c --no-connect -o json", 1, o.run)
	o.AddFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.from, "from", "", "Only the way from this cluster: a context, or the id of a cluster")
	flags.StringVar(&o.to, "to", "", "Only the way to this cluster: a context, or the id of a cluster")
	flags.BoolVar(&o.noConnect, "no-connect", false, "Only read, and try no connection")
	return cmd
}

func (o *options) run(ctx context.Context, env *command.Env, args []string) error {
	key, err := command.ParseKey(args[0])
	if err != nil {
		return err
	}
	contexts := args[1:]
	for _, end := range []string{o.from, o.to} { // one that is no context is the id of a cluster
		if _, err := env.ContextNames([]string{end}); end != "" && err == nil && !slices.Contains(contexts, end) {
			contexts = append(contexts, end)
		}
	}
	sites, err := agent.Sites(ctx, env, contexts)
	if err != nil {
		return err
	}
	report := Service(ctx, sites, key, o.from, o.to, !o.noConnect)
	return o.Conclude(env.Out, "ServiceTrace", report, !report.Broken, func() { report.print(env, time.Now()) })
}

// Service traces one from and to a cluster that is named by its context or id; all without
// one. The last steps are tried only if isTried.
func Service(ctx context.Context, sites []*agent.Site, key types.NamespacedName, from, to string, isTried bool) Report {
	all := make(clusters, len(sites))
	command.InParallel(sites, func(i int, site *agent.Site) { all[i] = read(ctx, site, key) })
	report := all.trace(from, to)
	report.connect(ctx, isTried)
	report.conclude()
	return report
}

// trace derives the steps of all ways, or of those from and to a cluster that is named by
// its context or id.
func (s clusters) trace(from, to string) Report {
	r := Report{Namespace: s[0].key.Namespace, Name: s[0].key.Name, Exports: []Export{}}
	for _, id := range s.named(from, s.exporters()) {
		c := s.of(id)
		e := Export{Cluster: id, Steps: hop{s, c, s.of("")}.exporting(), Ways: []Way{}}
		for _, other := range s.named(to, s.importers(c)) {
			h := hop{s, c, s.of(other)}
			e.Ways = append(e.Ways, Way{To: other, Steps: h.way(), hop: h})
		}
		r.Exports = append(r.Exports, e)
	}
	return r
}

// named is the cluster of a context or id; all without one.
func (s clusters) named(name string, all []model.ClusterID) []model.ClusterID {
	if name == "" {
		slices.Sort(all)
		return slices.Compact(all)
	}
	if c, is := model.Find(s, func(c *cluster) bool { return c.Context == name }); is {
		return []model.ClusterID{c.ID()}
	}
	return []model.ClusterID{model.ClusterID(name)}
}

// exporters are the clusters that export the Service, as far as anyone knows; or else
// those that have a Service of the name, or all.
func (s clusters) exporters() []model.ClusterID {
	var exporting, having, read []model.ClusterID
	for _, c := range s {
		if !s.isHub(c) {
			read = append(read, c.ID())
		}
		if c.service != nil {
			having = append(having, c.ID())
		}
		if c.export != nil {
			exporting = append(exporting, c.ID())
		}
		exporting = append(exporting, model.Map(c.list().Entries, func(e model.Entry) model.ClusterID { return e.Cluster })...)
	}
	switch {
	case len(exporting) > 0:
		return exporting
	case len(having) > 0:
		return having
	}
	return read
}

// importers are the clusters that may import what c exports: all others that are known.
func (s clusters) importers(c *cluster) (ids []model.ClusterID) {
	for _, other := range s {
		if other != c && !s.isHub(other) {
			ids = append(ids, other.ID())
		}
	}
	for _, p := range c.peers.Items {
		ids = append(ids, model.ClusterID(p.Name))
	}
	return ids
}

// Report is what -o prints, under kind ServiceTrace.
type Report struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Broken is true if a step is.
	Broken bool `json:"broken"`
	// Cause is the first broken step, or else the first one with a warning.
	Cause   *Step    `json:"cause,omitempty"`
	Exports []Export `json:"exports"`
}

// Export is the Service of one cluster that exports it.
type Export struct {
	Cluster model.ClusterID `json:"cluster"`
	Steps   []Step          `json:"steps"`
	Ways    []Way           `json:"ways"`
}

// Way leads from an export to another cluster.
type Way struct {
	To    model.ClusterID `json:"to"`
	Steps []Step          `json:"steps"`

	hop hop
}

// Step is one step.
type Step struct {
	finding.Finding
	// Follows is true if a step before it is broken.
	Follows bool `json:"follows,omitempty"`
}

func isBroken(steps []Step) bool {
	return slices.ContainsFunc(steps, func(s Step) bool { return s.Severity == finding.Error })
}

// conclude marks what follows from broken steps, and finds the cause.
func (r *Report) conclude() {
	var broken, warned *Step
	mark := func(steps []Step, follows bool) bool {
		for i := range steps {
			s := &steps[i]
			if s.Follows = follows; s.Severity == finding.Error {
				broken, follows = cmp.Or(broken, s), true
			} else if s.Severity == finding.Warning {
				warned = cmp.Or(warned, s)
			}
		}
		return follows
	}
	for _, e := range r.Exports {
		follows := mark(e.Steps, false)
		for _, w := range e.Ways {
			mark(w.Steps, follows)
		}
	}
	r.Broken, r.Cause = broken != nil, cmp.Or(broken, warned)
}

// print shows the report as a tree.
func (r Report) print(env *command.Env, now time.Time) {
	env.Printf("Service %s/%s\n", r.Namespace, r.Name)
	for _, e := range r.Exports {
		env.Printf("\nfrom cluster %s\n", e.Cluster)
		printSteps(env, now, "  ", e.Steps)
		for _, w := range e.Ways {
			env.Printf("  to cluster %s\n", w.To)
			printSteps(env, now, "    ", w.Steps)
		}
	}
	if !r.Broken {
		env.Printf("\nNo step is broken.\n")
	}
	if r.Cause != nil {
		env.Printf("\n%s: %s", r.Cause.Severity, r.Cause)
	}
}

var marks = map[finding.Severity]string{finding.OK: "ok", finding.Error: "BROKEN", finding.Warning: "warning", finding.NotRead: "not read"}

func printSteps(env *command.Env, now time.Time, indent string, steps []Step) {
	for _, s := range steps {
		mark, inside := marks[s.Severity], indent+"          "
		if s.Follows {
			mark = "follows"
		}
		text := strings.ReplaceAll(s.Message, "\n", "\n"+inside)
		if s.Reason != "" {
			text = s.Reason + ": " + text
		}
		env.Printf("%s%-8s  %s: %s", indent, mark, s.Check, text)
		if s.Since != nil {
			env.Printf(" (for %s)", duration.HumanDuration(now.Sub(s.Since.Time)))
		}
		env.Printf("\n")
		if !s.Follows && s.Severity != finding.OK {
			env.Printf("%s", s.Advice(inside))
		}
	}
}

// String has the finding, and in lines of their own what fixes it.
func (s Step) String() string { return s.Finding.String() + "\n" + s.Advice("  ") }
