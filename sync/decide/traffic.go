// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// direct adds how the endpoints of each source may be used, what is kept of lost slices,
// and what is to be probed.
func (i *importing) direct(d *ImportDecision) {
	in := &d.Plan
	choice, problems := onLost(in.Key, i.Current, i.Local.Namespace)
	in.LostSlices, in.Accepted, in.Traffic = i.lostSlices(), map[model.ClusterID]exchange.Filter{}, map[model.ClusterID]model.Traffic{}
	d.Probe = map[model.ClusterID][]netip.AddrPort{}
	d.Finding.Problems = slices.Concat(d.Finding.Problems, problems, lostSliceProblems(in))
	for _, p := range i.Peers {
		if p.Accepted != nil {
			in.Accepted[p.ID] = *p.Accepted
		}
		derived, silent := i.derivedOf(p.ID), p.Liveness.Silent
		drained, forced := p.drained(in.Key, i.Now)
		// The slices say that the source was down or drained.
		wasDown := !drained && slices.ContainsFunc(derived, func(s *discoveryv1.EndpointSlice) bool {
			_, directed := s.Annotations[model.AnnotationPublished]
			return directed
		})
		if i.isDoubtful(&p, wasDown) {
			published := in.Sources[p.ID] // says which endpoints were ready before they were directed here
			if len(published) == 0 {
				published = derived
			}
			d.Probe[p.ID] = exchange.Targets(published)
			answers, isProbed := i.Answers[p.ID]
			silent = silent || isProbed && !answers
			wasDown = wasDown && !answers
		} else {
			wasDown = false
		}
		if t := trafficOf(silent || wasDown, drained, forced, choice); t != model.Served {
			in.Traffic[p.ID] = t
		}
		if at := slices.IndexFunc(d.Finding.Sources, func(s model.Source) bool { return s.Cluster == p.ID }); at >= 0 {
			d.Finding.Sources[at].Down, d.Finding.Sources[at].Drained = silent && choice != model.OnLostKeep, drained
		}
	}
	i.addTiers(d)
}

// trafficOf is the table of how the endpoints of a source may be used, before tiers (see
// inTiers); the first row that matches applies:
//
//	| the source | its endpoints |
//	| they do not answer, and comity.dev/on-lost is withdraw | are withheld |
//	| its cluster is drained by force | are withheld |
//	| they do not answer, and comity.dev/on-lost is not keep | are the last resort, after those of drained clusters |
//	| its cluster is drained | are the last resort |
//	| otherwise | are served |
func trafficOf(down, drained, forced bool, choice model.OnLost) model.Traffic {
	switch {
	case down && choice == model.OnLostWithdraw, forced:
		return model.Withheld
	case down && choice != model.OnLostKeep:
		return model.Unanswered
	case drained:
		return model.LastResort
	}
	return model.Served
}

// drained reports whether an administrator has drained a cluster for the import of key by
// now, and whether by force.
func (p *PeerView) drained(key types.NamespacedName, now time.Time) (drained, forced bool) {
	for _, d := range p.Drains {
		if !now.Before(d.Begins(key)) {
			drained, forced = true, forced || d.Force
		}
	}
	return drained, forced
}

// isDoubtful reports whether probes for this import alone say whether the endpoints of a
// source are down, as no heartbeat speaks for them: its export is missing, its cluster has
// no Peer, or they were down before a restart.
func (i *importing) isDoubtful(p *PeerView, wasDown bool) bool {
	s := i.sources[p.ID]
	return s.State.IsServed() && (s.State == model.SourceMissing || !p.Known || !s.Liveness.Seen && wasDown)
}

// derivedOf are the slices that Comity made of those of cluster.
func (i *importing) derivedOf(cluster model.ClusterID) []*discoveryv1.EndpointSlice {
	return model.Without(i.Current.Slices, func(s *discoveryv1.EndpointSlice) bool {
		return !model.IsManaged(s) || s.Labels[model.LabelSourceCluster] != string(cluster)
	})
}

// onLost is what happens to the endpoints of lost clusters: the annotation of
// the ServiceImport says it, else that of its Namespace.
func onLost(key types.NamespacedName, current plan.Current, namespace *corev1.Namespace) (model.OnLost, []model.Problem) {
	where, text := "Namespace "+namespace.Name, namespace.Annotations[model.AnnotationOnLost]
	if current.Import != nil {
		if value, set := current.Import.Annotations[model.AnnotationOnLost]; set {
			where, text = "ServiceImport "+key.String(), value
		}
	}
	value, err := model.ParseOnLost(text)
	if err != nil {
		return value, []model.Problem{model.Problemf(model.ReasonInvalidAnnotation, "",
			"%s, annotation %s: %v; %s applies until that is corrected", where, model.AnnotationOnLost, err, value)}
	}
	return value, nil
}

// lostSlices are, by cluster, the source slices that exports name and of which no
// copy is published any more, although something was imported of them: their
// publisher lost the copies. One that is new is named before it can be read, and is
// not among them. A copy of which nothing is accepted was read, and is not lost.
func (i *importing) lostSlices() map[model.ClusterID][]string {
	out := map[model.ClusterID][]string{}
	for _, p := range i.Peers {
		if !i.sources[p.ID].State.IsRead() || !p.Synced {
			continue
		}
		published := map[string]bool{}
		for _, s := range p.Slices {
			published[s.Annotations[model.AnnotationSourceSlice]] = true
		}
		for _, s := range i.derivedOf(p.ID) {
			source := s.Annotations[model.AnnotationSourceSlice]
			if !published[source] && slices.Contains(p.Export.Slices, source) && !slices.Contains(out[p.ID], source) {
				out[p.ID] = append(out[p.ID], source)
			}
		}
		slices.Sort(out[p.ID])
	}
	return out
}

func lostSliceProblems(in *plan.ImportInput) []model.Problem {
	var out []model.Problem
	for _, id := range slices.Sorted(maps.Keys(in.LostSlices)) {
		names := in.LostSlices[id]
		others := ""
		if len(names) > 1 {
			others = fmt.Sprintf(" and those of %d more", len(names)-1)
		}
		out = append(out, model.Problemf(model.ReasonSliceMissing, id,
			"the copy of EndpointSlice %s/%s%s that cluster %s published is gone without a statement, so its endpoints are kept; check Comity there, and its exchange namespaces",
			in.Key.Namespace, names[0], others, id))
	}
	return out
}
