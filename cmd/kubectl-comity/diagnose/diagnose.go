// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/coredns"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/networkpolicy"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/status"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

const long = `Check what one export does not show: address ranges, definitions, the agent with its
webhook, rights and tokens, DNS, zones, NetworkPolicies, names that others took, other
implementations of the MCS API, versions of Kubernetes, and clocks.

Findings are listed with the worst first, and in the order in which to fix them. Each
has the command that fixes it, or names the object and who owns it.

With --pre, check what the installation needs, before anything is installed.

The exit code is 1 if there is an error, or if something could not be read.`

// timeout bounds how long all clusters are opened and their agents found, and then for each
// cluster the reading of what all checks need, and the checks.
const timeout = 20 * time.Second

// New gives the command diagnose.
func New(env *command.Env) *cobra.Command {
	var output command.Output
	var pre bool
	cmd := env.Command("diagnose [CONTEXT...]", "Check clusters and what lies between them, and say how to fix what is wrong", long,
		"  kubectl comity diagnose a b\n  kubectl comity diagnose a b --pre\n  kubectl comity diagnose a b -o json", 0,
		func(ctx context.Context, env *command.Env, contexts []string) error {
			opening, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			sites, err := agent.Sites(opening, env, contexts)
			if err != nil {
				return err
			}
			report := Sites(ctx, sites, pre)
			return output.Conclude(env.Out, "Diagnosis", &report, report.Healthy, func() { report.print(env) })
		})
	output.AddFlags(cmd)
	cmd.Flags().BoolVar(&pre, "pre", false, "Check what the installation needs, before Comity is installed")
	return cmd
}

// Report is what -o prints, under kind Diagnosis.
type Report struct {
	// Healthy is true if there is no error, and everything was read.
	Healthy  bool              `json:"healthy"`
	Findings []finding.Finding `json:"findings"`
}

// severities are in the order of the output.
var severities = []finding.Severity{finding.Error, finding.Warning, finding.NotRead, finding.OK}

// newReport sorts findings by severity and leaves them in their order otherwise.
func newReport(all []finding.Finding) Report {
	slices.SortStableFunc(all, func(a, b finding.Finding) int {
		return slices.Index(severities, a.Severity) - slices.Index(severities, b.Severity)
	})
	healthy := !slices.ContainsFunc(all, func(f finding.Finding) bool { return f.Severity == finding.Error || f.Severity == finding.NotRead })
	return Report{Healthy: healthy, Findings: all}
}

// print shows one line for each check that passed, and each fault with its fix.
func (r Report) print(env *command.Env) {
	var shown finding.Severity
	passed := map[string][]string{}
	for _, f := range r.Findings {
		if f.Severity == finding.OK {
			passed[f.Check] = append(passed[f.Check], f.Cluster)
		}
	}
	for _, f := range r.Findings {
		if f.Severity != shown {
			env.Printf("%s:\n", f.Severity)
			shown = f.Severity
		}
		if f.Severity != finding.OK {
			env.Printf("  %s\n%s", f, f.Advice("      "))
		} else if clusters := passed[f.Check]; clusters[0] == f.Cluster {
			env.Printf("  %s: %s\n", f.Check, strings.Join(clusters, ", "))
		}
	}
}

// cluster is a site with what several checks need of it.
type cluster struct {
	*agent.Site
	// all are the clusters that are diagnosed, this one among them.
	all     []*cluster
	status  status.Report
	objects status.Objects
	// version is that of the API server, and ahead by how much its clock is ahead of the one of
	// this machine.
	version   string
	ahead     time.Duration
	serverErr error
	ranges    join.Ranges
	rangesErr error
}

// When a check makes sense.
const (
	unreachable = 1 << iota // its API server does not answer
	before                  // with --pre
	absent                  // no agent is installed
	member                  // an agent should run
	hub                     // members publish here
)

// check finds what is wrong in a cluster; nothing if all is well. An error says that it
// could not be read.
type check struct {
	name, docs string
	when       int
	run        func(context.Context, *cluster) ([]finding.Finding, error)
}

// checks are in the order in which to fix what they find: what has no cure but other
// addresses first, and the cause before what follows from it.
var checks = []check{
	{"Pod and Service ranges", "troubleshooting.md#overlapping-ranges", before | absent | member, overlaps},
	{"Kubernetes version", "install.md#what-you-need", before | absent | member | hub, kubernetesVersion},
	{"clocks", "security.md#who-decides-an-import-what-remains-open", before | absent | member | hub, clocks},
	{"cert-manager", "install.md#1-install-cert-manager", before | absent, certManager},
	{"definitions", "install.md#2-install-comity", member | hub, definitions},
	{"other implementations", "settings.md#modes", before | absent | member, otherImplementations},
	{"agent", "troubleshooting.md#connection", unreachable | absent | member, func(_ context.Context, c *cluster) ([]finding.Finding, error) {
		return []finding.Finding{status.Agent(c.Site)}, nil
	}},
	{"webhook", "troubleshooting.md#policy", member, webhook},
	{"rights of the agent", "security.md#a-stolen-token-of-the-agent", member, agentRights},
	{"tokens", "peers.md#credentials", member, tokens},
	{"peers", "troubleshooting.md#connection", member | hub, connections},
	{"DNS", "troubleshooting.md#dns", before | absent | member, func(ctx context.Context, c *cluster) ([]finding.Finding, error) {
		return coredns.Check(ctx, c.Target, c.kind() == member)
	}},
	{"zones of Nodes", "settings.md#annotations", member, zones},
	{"NetworkPolicies", "troubleshooting.md#networkpolicy", member, func(ctx context.Context, c *cluster) ([]finding.Finding, error) {
		return networkpolicy.Check(ctx, c.Target, c.objects.Exports, c.objects.Peers)
	}},
	{"names", "troubleshooting.md#not-imported", member, names},
}

// Sites runs all checks. pre is true before anything is installed.
func Sites(ctx context.Context, sites []*agent.Site, pre bool) Report {
	all := make([]*cluster, len(sites))
	for i, site := range sites {
		all[i] = &cluster{Site: site, all: all}
	}
	command.InParallel(all, func(_ int, c *cluster) { c.read(ctx, pre) })
	for _, c := range all {
		c.acceptedRanges()
	}
	found := make([][]finding.Finding, len(checks)*len(all)) // in the order of the checks
	command.InParallel(all, func(i int, c *cluster) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		for n, one := range checks {
			found[n*len(all)+i] = one.in(ctx, c)
		}
	})
	return newReport(slices.Concat(found...))
}

const notReadFix = "name a context whose user may read it, or repeat the command"

// in runs the check in a cluster.
func (k check) in(ctx context.Context, c *cluster) []finding.Finding {
	if k.when&c.kind() == 0 {
		return nil
	}
	found, err := k.run(ctx, c)
	if err != nil {
		found = append(found, finding.Finding{Severity: finding.NotRead, Message: err.Error(), Fix: notReadFix})
	}
	if len(found) == 0 {
		found = []finding.Finding{{Severity: finding.OK}}
	}
	for i := range found {
		f := &found[i]
		f.Severity, f.Check, f.Cluster = cmp.Or(f.Severity, finding.Error), k.name, c.Context
		if f.Severity != finding.OK {
			f.Docs = cmp.Or(f.Docs, finding.Docs(k.docs))
		}
	}
	return found
}

// kind says which checks make sense in the cluster.
func (c *cluster) kind() int {
	if c.Target == nil {
		return unreachable
	}
	if c.status.Clusters == nil {
		return before
	}
	switch state := c.status.Clusters[0].State; {
	case state == status.Hub && len(c.objects.Peers) == 0:
		return hub
	case state == status.Hub || state == status.NotInstalled: // one that was joined, and published, is no hub
		return absent
	}
	return member
}

// read reads what several checks need.
func (c *cluster) read(ctx context.Context, pre bool) {
	if c.Target == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c.serverErr = c.readServer(ctx)
	c.ranges, c.rangesErr = join.RangesOf(ctx, c.Cluster())
	if !pre {
		report, objects := status.Read(ctx, []*agent.Site{c.Site}, "", time.Now())
		c.status, c.objects = report, objects[0]
	}
}

// acceptedRanges takes, where a cluster does not say its Pod ranges, those that another one
// accepts of it.
func (c *cluster) acceptedRanges() {
	for _, other := range c.all {
		for _, peer := range other.objects.Peers {
			if peer.Name == string(c.ID()) && len(c.ranges.Pods) == 0 {
				c.ranges.Pods, _ = model.ParsePrefixes(peer.Spec.AcceptedCIDRs)
			}
		}
	}
}

// peerOf is the diagnosed cluster of a Peer; nil if there is none.
func (c *cluster) peerOf(name string) *cluster {
	found, _ := model.Find(c.all, func(other *cluster) bool { return string(other.Agent.ID) == name })
	return found
}

// fix is a text of package finding for the cluster and one of its peers.
func (c *cluster) fix(text, peer string) string {
	from := "CONTEXT-OF-" + peer
	if other := c.peerOf(peer); other != nil {
		from = other.Context
	}
	return finding.Fill(text, c.Agent.Mode, "{from}", from, "{to}", c.Context, "{a}", peer)
}

// connections are the problems that status has with Peers, or why something was not read.
func connections(_ context.Context, c *cluster) (all []finding.Finding, err error) {
	for _, f := range c.status.Problems {
		name, is := strings.CutPrefix(f.Object, "Peer ")
		if !is {
			continue
		}
		advice := cmp.Or(finding.Fix(f.Reason), finding.FixJoin)
		if slices.Contains([]string{"", "Missing", "TakeoverHeld"}, f.Reason) { // status has the command for these
			advice = "follow the message"
		}
		f.Fix = cmp.Or(f.Fix, c.fix(advice, name))
		all = append(all, f)
	}
	return all, c.objects.Err
}

// names are the exports and imports of which status says that others have their names.
func names(_ context.Context, c *cluster) (all []finding.Finding, err error) {
	contexts := model.Map(c.all, func(other *cluster) string { return other.Context })
	for _, f := range c.status.Problems {
		if slices.Contains([]string{model.ReasonNameTaken, model.ReasonForeignImport}, f.Reason) {
			_, name, _ := strings.Cut(f.Object, " ")
			f.Fix = "see which object it is, and what deletes it: kubectl comity trace " + name + " " + strings.Join(contexts, " ")
			all = append(all, f)
		}
	}
	return all, nil
}
