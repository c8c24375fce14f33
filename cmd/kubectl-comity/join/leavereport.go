// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

// confirm shows how many imports lose an export, and asks.
func (l *leaving) confirm(ctx context.Context, peers []join.Cluster) error {
	var text strings.Builder
	fmt.Fprintf(&text, "Cluster %s leaves clusterset %s.\n", l.leaver.ID, l.leaver.Set)
	count := func(at model.ClusterID, target *command.Target, from ...join.Cluster) error {
		imports, err := join.Imports(ctx, target.Client)
		if err != nil {
			return target.Errorf("%w", err)
		}
		leaves := func(e model.Entry) bool {
			return slices.ContainsFunc(from, func(c join.Cluster) bool { return c.ID == e.Cluster })
		}
		lose, end := 0, 0
		for _, i := range imports {
			if !slices.ContainsFunc(i.List.Entries, leaves) {
				continue
			}
			lose++
			if len(slices.DeleteFunc(i.List.Entries, leaves)) == 0 {
				end++
			}
		}
		fmt.Fprintf(&text, "In cluster %s (context %q), imports that lose an export: %d, of which %d are deleted with their clusterset IPs\n",
			at, target.Context, lose, end)
		return nil
	}
	if l.target != nil {
		if err := count(l.leaver.ID, l.target, peers...); err != nil {
			return err
		}
	}
	for _, s := range l.remaining {
		if err := count(s.Agent.ID, s.Target, l.leaver); err != nil {
			return err
		}
	}
	if l.purge {
		fmt.Fprintf(&text, "Everything that Comity created in cluster %s is deleted\n", l.leaver.ID)
	}
	if l.how.DryRun {
		_, _ = fmt.Fprint(l.env.ErrOut, text.String())
		return nil
	}
	return l.ask.Ask(l.env, text.String())
}

// finish prints what was done, and what is left to do elsewhere.
func (l *leaving) finish(peers []join.Cluster) error {
	left := l.undone(peers)
	result := leaveResult{Cluster: string(l.leaver.ID), DryRun: l.how.DryRun, Steps: l.report.steps, Undone: left}
	err := l.output.Print(l.env.Out, "LeaveResult", result, func() {
		done := fmt.Sprintf("Cluster %s left clusterset %s", l.leaver.ID, l.leaver.Set)
		if l.how.DryRun {
			done = "Dry run, nothing was removed. Without --dry-run"
		}
		l.env.Printf("\n%s: %s in %.1f s.\n", done, l.report.counts(), time.Since(l.report.start).Seconds())
		for _, text := range left {
			l.env.Printf("Left to do: %s\n", text)
		}
	})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(l.report.steps, func(s join.Step) bool { return s.Verb == join.Pending }) {
		return command.Incomplete(fmt.Errorf("not all agents have removed what they imported; see above how to finish"))
	}
	if len(l.lost) > 0 {
		return command.Incomplete(fmt.Errorf("%w\nWhat could be removed without these clusters was removed; see above how to finish", l.lostErrors()))
	}
	return nil
}

// leaveResult is what leave prints with -o.
type leaveResult struct {
	Cluster string      `json:"cluster"`
	DryRun  bool        `json:"dryRun,omitempty"`
	Steps   []join.Step `json:"steps"`
	// Undone says what is left to do in clusters that were not given or did not answer.
	Undone []string `json:"undone,omitempty"`
}

func (l *leaving) undone(peers []join.Cluster) (texts []string) {
	for _, step := range l.report.steps {
		if step.Verb == join.Pending {
			texts = append(texts, fmt.Sprintf("Peer %s of cluster %s stays with spec.removed: %s; when the agent of cluster %s runs, repeat the command", step.Name, step.Cluster, step.Note, step.Cluster))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.lost)) {
		if name == l.hub {
			texts = append(texts, fmt.Sprintf("the hub (context %q) did not answer and still has the account and namespaces of cluster %s; run again: kubectl comity leave --hub %s --id %s %s",
				name, l.leaver.ID, name, l.leaver.ID, cmp.Or(contextsOf(l.remaining), "REMAINING...")))
			continue
		}
		texts = append(texts, fmt.Sprintf("the cluster of context %q did not answer and still has the credential and account of cluster %s; when it answers, run: kubectl comity leave --id %s %s",
			name, l.leaver.ID, l.leaver.ID, name))
	}
	for _, peer := range peers {
		if peer.RESTConfig == nil && len(l.lost) == 0 {
			texts = append(texts, fmt.Sprintf("cluster %s still has the credential and account of cluster %s; run: kubectl comity leave --id %s CONTEXT, with the context of cluster %s",
				peer.ID, l.leaver.ID, l.leaver.ID, peer.ID))
		}
	}
	return texts
}
