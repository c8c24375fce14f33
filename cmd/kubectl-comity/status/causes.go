// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/status/condition"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
)

// effects are the reasons of exports and imports that wait for a peer which is not connected.
var effects = []string{
	condition.ReasonLost, condition.ReasonWithdrawn, model.ReasonUnreachable, model.ReasonFrozen, string(model.SourceNotRead),
}

// behind is the silent peer that a condition of an export or import waits for; empty if it
// waits for none. listed are the clusters of an import.
func (p *part) behind(c metav1.Condition, listed ...model.ClusterID) model.ClusterID {
	if !slices.Contains(effects, c.Reason) {
		return ""
	}
	ids := sortedKeys(p.silent)
	if len(ids) == 1 {
		return ids[0]
	}
	for _, id := range ids { // "Lost in b, c: …" is what an export says
		if slices.Contains(listed, id) || len(listed) == 0 && regexp.MustCompile(`( in |, )`+string(id)+`\b`).MatchString(c.Message) {
			return id
		}
	}
	return ""
}

// causes are the problems of all parts: one for each cause, those of clusters and peers
// first. A peer whose agent does not run is an effect of that, and one that is silent to
// several clusters is one cause.
func causes(parts []part) []finding.Finding {
	stopped := map[string]*finding.Finding{}
	for _, p := range parts {
		if p.cluster.State == NotRunning {
			stopped[string(p.agent.ID)] = p.problems[0] // that of the agent
		}
	}
	type key struct{ peer, reason string }
	silent := map[key]*finding.Finding{}
	var found []*finding.Finding
	for _, p := range parts {
		for _, problem := range p.problems {
			k := key{strings.TrimPrefix(problem.Object, "Peer "), problem.Reason}
			is := p.silent[model.ClusterID(k.peer)] == problem
			isHeartbeat := slices.Contains([]string{condition.ReasonLost, remote.ReasonHeartbeatMissing}, k.reason)
			switch same := silent[k]; {
			case is && isHeartbeat && stopped[k.peer] != nil:
				stopped[k.peer].Affects += 1 + problem.Affects
				continue
			case is && same != nil:
				same.Cluster += ", " + problem.Cluster
				same.Affects += problem.Affects
				continue
			case is:
				silent[k] = problem
			}
			found = append(found, problem)
		}
	}
	slices.SortStableFunc(found, func(a, b *finding.Finding) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.Affects, a.Affects))
	})
	all := []finding.Finding{}
	for _, problem := range found {
		all = append(all, *problem)
	}
	return all
}

// rank orders clusters before peers, and both before exports and imports, which have
// their causes elsewhere.
func rank(p *finding.Finding) int {
	switch {
	case strings.Contains(p.Object, kindExport) || strings.Contains(p.Object, kindImport):
		return 2
	case strings.HasPrefix(p.Object, "Peer "):
		return 1
	}
	return 0
}
