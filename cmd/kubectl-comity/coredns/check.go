// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/sync/join/corefile"
)

// Check says what keeps the cluster's DNS from serving the zone: nothing is found where it
// does. Before anything is installed, only what enable could not change is a problem.
func Check(ctx context.Context, target *command.Target, installed bool) (all []finding.Finding, err error) {
	f, err := inspect(ctx, target)
	if err != nil {
		return nil, err
	}
	served, zone := f.zone()
	add := func(severity finding.Severity, object, reason, message, fix, section string) {
		all = append(all, finding.Finding{Severity: severity, Object: object, Reason: reason, Message: message, Fix: fix,
			Docs: finding.Docs("coredns.md#" + section)})
	}
	const deployment, enable = "Deployment kube-system/coredns", "kubectl comity coredns enable "
	if f.deployment != nil {
		switch why, fix := f.outdated(""); {
		case fix != "":
			add(finding.Error, deployment, "VersionTooOld", why, fix, "which-version")
		case why != "" && !served:
			add(finding.Warning, deployment, "VersionUnknown", why, enable+target.Context+" --coredns-version VERSION", "which-version")
		}
	}
	severity := finding.Error
	if !installed {
		severity, zone.Severity = finding.Warning, finding.Warning
	}
	if !served && (installed || f.refusal() != "") {
		all = append(all, zone)
	}
	if installed && f.deployment != nil {
		lacks, err := lacksRight(ctx, target, f.account())
		if err != nil {
			return all, err
		}
		if lacks {
			add(finding.Error, "ServiceAccount kube-system/"+f.account(), "Forbidden",
				"CoreDNS may not list and watch ServiceImports, so it does not answer for "+corefile.Zone,
				enable+target.Context, "two-things-in-every-recipe")
		}
	}
	if why, fix := f.nodeLocalProblem(); why != "" {
		add(severity, "ConfigMap kube-system/node-local-dns", "ZoneNotForwarded", why, fix, "nodelocal-dnscache")
	}
	return all, nil
}

// zone says whether the configuration has the zone, and what to do if it has not.
func (f found) zone() (served bool, problem finding.Finding) {
	problem = finding.Finding{Severity: finding.Error, Object: "ConfigMap kube-system/coredns", Reason: "ZoneMissing", Docs: finding.Docs("coredns.md#two-things-in-every-recipe")}
	if why := f.refusal(); why != "" {
		has := func(config *corev1.ConfigMap) bool {
			return config != nil && strings.Contains(strings.Join(slices.Collect(maps.Values(config.Data)), "\n"), corefile.Zone)
		}
		problem.Message, problem.Fix = "no configuration of the cluster's DNS that is known has the zone "+corefile.Zone, why
		problem.Docs = finding.Docs("coredns.md")
		if f.config == nil && f.stubs == nil {
			problem.Object, problem.Severity = "", finding.Warning
		}
		return has(f.config) || has(f.custom) || f.deployment == nil && has(f.stubs), problem
	}
	text := f.config.Data[configKey]
	changed, err := corefile.Enable(text)
	if err != nil {
		problem.Message, problem.Fix = "key Corefile: "+err.Error(), "kubectl --context "+f.context+" -n kube-system edit configmap coredns"
		return false, problem
	}
	problem.Message, problem.Fix = "the Corefile does not have the zone "+corefile.Zone+", so its names do not resolve in this cluster", "kubectl comity coredns enable "+f.context
	return changed == text, problem
}
