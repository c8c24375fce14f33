// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"context"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join/corefile"
)

// plan is what is to be done in one cluster. Its JSON is what -o prints.
type plan struct {
	Context string `json:"context"`
	// Changed is true if something was changed, or would be with --dry-run.
	Changed bool   `json:"changed"`
	DryRun  bool   `json:"dryRun,omitempty"`
	Diff    string `json:"diff,omitempty"`
	// Served is true once every replica of CoreDNS serves the change.
	Served   bool     `json:"served"`
	Warnings []string `json:"warnings,omitempty"`

	target *command.Target
	found  found
	// before and after are the Corefile; the same if it stays.
	before, after string
	// role is true if the ClusterRole and its binding are to be made, or removed.
	role bool
}

// plan reads one cluster and checks whether it can be changed. It writes nothing.
func (o options) plan(ctx context.Context, target *command.Target) (*plan, error) {
	f, err := inspect(ctx, target)
	if err != nil {
		return nil, err
	}
	if reason := f.refusal(target.Context); reason != "" {
		return nil, target.Errorf("nothing is changed: %s", reason)
	}
	p := &plan{Context: target.Context, DryRun: o.dryRun, target: target, found: f, before: f.config.Data[configKey]}
	change := corefile.Disable
	if o.enable {
		if err := f.checkVersion(target.Context, o.version); err != nil {
			return nil, target.Errorf("nothing is changed: %w", err)
		}
		change = corefile.Enable
		p.warn()
	}
	if p.after, err = change(p.before); err != nil {
		return nil, target.Errorf("ConfigMap kube-system/coredns, key Corefile: %w", err)
	}
	differs := hasRole
	if o.enable {
		differs = lacksRight
	}
	p.role, err = differs(ctx, target, f.account())
	p.Changed, p.Diff = p.role || p.before != p.after, p.diff(o.enable)
	return p, err
}

// warn collects what the administrator must know after enabling.
func (p *plan) warn() {
	warn := func(text string) { p.Warnings = append(p.Warnings, text) }
	if p.found.kubeadm {
		warn("kubeadm upgrade stops at the option multicluster; run kubectl comity coredns disable before it, and enable after it")
	}
	if release := p.found.config.Annotations["meta.helm.sh/release-name"]; release != "" {
		warn("the Corefile belongs to the Helm release " + release + ", whose next upgrade takes the change back; make it in the values of that release too")
	}
	if why, fix := p.found.nodeLocalProblem(p.target.Context); why != "" {
		warn(why + "; " + fix)
	}
}

// nodeLocalProblem says what NodeLocal DNSCache lacks, and what to do; empty if it does not run or lacks nothing.
func (f found) nodeLocalProblem(contextName string) (why, fix string) {
	if !f.nodeLocalRuns {
		return "", ""
	}
	if block := corefile.NodeLocal(f.nodeLocal); block != "" {
		return "NodeLocal DNSCache runs and sends queries for " + corefile.Zone + " elsewhere",
			"add this server block to the Corefile in ConfigMap kube-system/node-local-dns, and restart it (kubectl --context " +
				contextName + " -n kube-system rollout restart daemonset/node-local-dns):\n" + indented(block)
	}
	if !strings.Contains(f.nodeLocal, corefile.Zone) {
		return "NodeLocal DNSCache runs without a server block for the cluster's own domain", "make sure that it forwards " + corefile.Zone + " to CoreDNS"
	}
	return "", ""
}

// diff is the whole change as text.
func (p *plan) diff(enable bool) string {
	text := unified("ConfigMap kube-system/coredns, key Corefile", p.before, p.after)
	if !p.role {
		return text
	}
	before, after := "", roleText(p.found.account())
	if !enable {
		before, after = after, before
	}
	return text + unified("ClusterRole and ClusterRoleBinding "+roleName, before, after)
}

// unified is the difference of two texts as diff -u prints it, under name.
func unified(name, before, after string) string {
	text, _ := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{ // a builder of strings gives no error
		A: slices.Collect(strings.Lines(before)), B: slices.Collect(strings.Lines(after)), FromFile: name, ToFile: name, Context: 3,
	})
	return text
}

// print shows the plan before it is carried out.
func (p *plan) print(env *command.Env) {
	if !p.Changed {
		env.Printf("context %q: there is nothing to change\n", p.target.Context)
	} else {
		env.Printf("context %q:\n%s", p.target.Context, p.Diff)
	}
	for _, warning := range p.Warnings {
		env.Warnf("context %q: %s", p.target.Context, warning)
	}
}
