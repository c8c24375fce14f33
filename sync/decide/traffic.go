// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// direct adds how the endpoints of each source may be used, what is kept of lost slices,
// and what is to be probed.
func (i *importing) direct(d *ImportDecision) {
	in := &d.Plan
	choice, problems := onLost(in.Key, i.Current, i.Local.Namespace)
	in.LostSlices, in.Accepted, in.Traffic = map[model.ClusterID][]string{}, map[model.ClusterID]exchange.Filter{}, map[model.ClusterID]model.Traffic{}
	d.Probe = map[model.ClusterID][]netip.AddrPort{}
	for _, p := range i.Peers {
		if p.Accepted != nil {
			in.Accepted[p.ID] = *p.Accepted
		}
		derived, silent := i.derivedOf(p.ID), p.Liveness.Silent
		if lost := i.lostSlices(&p, derived); len(lost) > 0 {
			others := ""
			if len(lost) > 1 {
				others = fmt.Sprintf(" and those of %d more", len(lost)-1)
			}
			in.LostSlices[p.ID], problems = lost, append(problems, model.Problemf(model.ReasonSliceMissing, p.ID,
				"the copy of EndpointSlice %s/%s%s that cluster %s published is gone without a statement, so its endpoints are kept; check Comity there, and its exchange namespaces",
				in.Key.Namespace, lost[0], others, p.ID))
		}
		drained, forced := isDrained(&p, in.Key, i.Now)
		// The slices say that the source was down or drained.
		wasDown := !drained && slices.ContainsFunc(derived, func(s *discoveryv1.EndpointSlice) bool {
			_, directed := s.Annotations[model.AnnotationPublished]
			return directed
		})
		isDoubtful := i.isDoubtful(&p, wasDown)
		if wasDown = wasDown && isDoubtful; isDoubtful {
			published := in.Sources[p.ID] // says which endpoints were ready before they were directed here
			if len(published) == 0 {
				published = derived
			}
			d.Probe[p.ID] = exchange.Targets(published)
			answers, isProbed := i.Answers[p.ID]
			silent = silent || isProbed && !answers
			wasDown = wasDown && !answers
		}
		if t := trafficOf(silent || wasDown, drained, forced, choice); t != model.Served {
			in.Traffic[p.ID] = t
		}
		for n := range d.Finding.Sources {
			if s := &d.Finding.Sources[n]; s.Cluster == p.ID {
				s.Down, s.Drained = silent && choice != model.OnLostKeep, drained
			}
		}
	}
	d.Finding.Problems = slices.Concat(d.Finding.Problems, problems)
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

// isDrained reports whether an administrator has drained a cluster for the import of key by
// now, and whether by force.
func isDrained(p *exchange.Published, key types.NamespacedName, now time.Time) (drained, forced bool) {
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
func (i *importing) isDoubtful(p *exchange.Published, wasDown bool) bool {
	s := i.sources[p.ID]
	return s.State.IsServed() && (s.State == model.SourceMissing || !p.Known || !s.Liveness.Seen && wasDown)
}

// derivedOf are the slices that Comity made of those of cluster.
func (i *importing) derivedOf(cluster model.ClusterID) []*discoveryv1.EndpointSlice {
	return model.Without(i.Current.Slices, func(s *discoveryv1.EndpointSlice) bool {
		return !model.IsManaged(s) || plan.ClusterOf(s) != cluster
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

// lostSlices are the source slices that the export of p names and of which no copy is
// published any more, although something was imported of them, sorted: their publisher lost
// the copies. One that is new is named before it can be read, and is not among them. A copy of
// which nothing is accepted was read, and is not lost. Derived are the slices that exist of p.
func (i *importing) lostSlices(p *exchange.Published, derived []*discoveryv1.EndpointSlice) []string {
	if !i.sources[p.ID].State.IsRead() || !p.Synced {
		return nil
	}
	lost := sets.New(model.Map(derived, plan.SourceOf)...).Delete(model.Map(p.Slices, plan.SourceOf)...)
	return sets.List(lost.Intersection(sets.New(p.Export.Slices...)))
}

// tierSource is one source of an import, as its tiers see it.
type tierSource struct {
	id   model.ClusterID
	tier int // from 0; -1 if it is in none
	// available is true if it is in a tier, has a ready endpoint, and is neither lost nor drained.
	available bool
}

// inTier is a source in its tier.
func inTier(t model.Tiers, source, self model.ClusterLabels, available bool) tierSource {
	tier, in := t.TierOf(source, self)
	if !in {
		tier = -1
	}
	return tierSource{source.ID, tier, in && available}
}

// tierMeans is how the order of tiers reaches kube-proxy.
type tierMeans int

const (
	// byHints: endpoints of the serving tier are hinted to the zones of this cluster, those of
	// the next one to none of them.
	byHints tierMeans = iota
	// byZones: also to its own zone, where trafficDistribution asks for that.
	byZones
	// byReadiness: without zones, those of all later tiers are the last resort.
	byReadiness
	// unordered: kube-proxy would follow neither. Only what is in no tier is left out.
	unordered
)

// inTiers is how each source may be used, and the tier that serves: the first one with a source
// that is available, -1 if there is none. It goes by the place of a source alone, so that a
// source that becomes ready has its use already:
//
//	| place of the tier                                  | byHints    | byReadiness | unordered |
//	| that serves, or before; the first if none serves   | Preferred  | Served      | Served    |
//	| after it, up to the next with an available source  | Served     | LastResort  | Served    |
//	| after that one                                     | LastResort | LastResort  | Served    |
//	| none                                               | Omitted    | Omitted     | Omitted   |
//
// A tier that is the only one with an available source needs no preference. byHints it counts
// as the next one, so that nothing is written of it when the one before it comes and goes.
func inTiers(sources []tierSource, means tierMeans) (map[model.ClusterID]model.Traffic, int) {
	tiers := sets.Set[int]{}
	for _, s := range sources {
		if s.available {
			tiers.Insert(s.tier)
		}
	}
	available := sets.List(tiers)
	serving, first, next := -1, 0, 1
	if len(available) > 0 {
		serving, first, next = available[0], available[0], math.MaxInt
	}
	switch {
	case len(available) > 1:
		next = available[1]
	case means == byHints && serving > 0:
		first, next = serving-1, serving
	}
	hinted := means == byHints || means == byZones
	out := map[model.ClusterID]model.Traffic{}
	for _, s := range sources {
		switch {
		case s.tier < 0:
			out[s.id] = model.Omitted
		case means == unordered, means == byReadiness && s.tier <= first, hinted && s.tier > first && s.tier <= next:
			out[s.id] = model.Served
		case hinted && s.tier <= first:
			out[s.id] = model.Preferred
		default:
			out[s.id] = model.LastResort
		}
	}
	return out, serving
}

// addTiers adds how sources may be used by the tiers in force to what d has of them: one that
// is lost or drained does not count as available.
func (i *importing) addTiers(d *ImportDecision) {
	in := &d.Plan
	if in.Desired == nil {
		return
	}
	standing := ""
	if i.standing != nil {
		standing = i.standing.Tiers
	}
	tiers, problems := i.tiersFor(d.Finding.Decider.Cluster, in.Desired.Tiers, standing)
	d.Finding.Problems = slices.Concat(d.Finding.Problems, problems)
	desired := *in.Desired
	desired.Tiers = tiers.String()
	if in.Desired = &desired; !tiers.Exist() {
		return
	}
	maintained := i.MaintainSelectors && (len(desired.Selector) > 0 ||
		slices.ContainsFunc(i.Current.Services, func(s *corev1.Service) bool { return model.IsManaged(s) && len(s.Spec.Selector) > 0 }))
	means, limit := i.means(tiers, &desired, maintained)
	sources := []tierSource{inTier(tiers, i.self(), i.self(), i.hasReady(in, i.Self))}
	for _, p := range i.Peers {
		labeled := model.ClusterLabels{ID: p.ID, Labels: p.Labels, Known: p.Known}
		sources = append(sources, inTier(tiers, labeled, i.self(), in.Traffic[p.ID] < model.LastResort && i.hasReady(in, p.ID)))
	}
	traffic, serving := inTiers(sources, means)
	found := &model.TiersInForce{Tiers: tiers.Texts(), Serving: serving, Unordered: means == unordered, Limit: limit}
	for _, s := range sources {
		if s.available && s.tier == serving {
			found.From = append(found.From, s.id)
		}
		use, was := traffic[s.id], in.Traffic[s.id]
		// After a restart, what was the last resort seems to be down.
		if presumed := i.isPresumedDown(s.id); use == model.Omitted || use == model.LastResort && presumed || use > was || was < model.LastResort {
			in.Traffic[s.id] = use
		}
	}
	slices.Sort(found.From)
	d.Finding.Tiers = found
}

// hasReady reports whether a source published a ready endpoint that traffic can reach.
func (i *importing) hasReady(in *plan.ImportInput, id model.ClusterID) bool {
	published, isRead := in.Sources[id]
	if !isRead {
		published = i.derivedOf(id)
	}
	c, has := in.Desired.Constituent(id)
	if isRead && (!has || len(c.Ports) == 0 && len(in.Desired.Ports) > 0) {
		return false
	}
	return slices.ContainsFunc(published, func(s *discoveryv1.EndpointSlice) bool {
		isCarried := func(families []corev1.IPFamily) bool {
			return len(families) == 0 || slices.Contains(families, corev1.IPFamily(s.AddressType))
		}
		return isCarried(in.Desired.IPFamilies) && isCarried(i.LocalCluster.Families) && slices.ContainsFunc(plan.Published(s), model.IsReady)
	})
}

// isPresumedDown reports whether nothing but its slices says that a source is down.
func (i *importing) isPresumedDown(id model.ClusterID) bool {
	answers, isProbed := i.Answers[id]
	p := i.known(id)
	return p.ID == id && (answers || !isProbed) && !p.Liveness.Silent && !p.Liveness.Seen
}

// tiersFor are the tiers of an import of which an export with these tiers decides: those of
// the ServiceImport, of that export as KEP-5939 has it, or of the Namespace of this cluster.
// While the first that is set cannot be read, those that stand apply, else what comes next.
func (v *ImportView) tiersFor(from model.ClusterID, exported, standing string) (model.Tiers, []model.Problem) {
	var ofNamespace string
	if v.Local.Namespace != nil {
		ofNamespace = v.Local.Namespace.Annotations[model.AnnotationTiers]
	}
	var problems []model.Problem
	for _, a := range []struct{ text, where string }{
		{v.Current.ImportAnnotations()[model.AnnotationTiers], "ServiceImport " + v.Local.Key.String()},
		{exported, fmt.Sprintf("cluster %s, ServiceExport %s", from, v.Local.Key)},
		{ofNamespace, "Namespace " + v.Local.Key.Namespace},
	} {
		if a.text == "" {
			continue
		}
		tiers, err := model.ParseTiers(a.text)
		if err == nil {
			return tiers, problems
		}
		stands, unreadable := model.ParseTiers(standing)
		consequence := "it is ignored"
		if unreadable == nil {
			consequence = fmt.Sprintf("%q stays in force", stands)
		}
		problems = append(problems, model.Problemf(model.ReasonInvalidAnnotation, "", "%s, annotation %s: %v; %s until that is corrected", a.where, model.AnnotationTiers, err, consequence))
		if unreadable == nil {
			return stands, problems
		}
	}
	return model.Tiers{}, problems
}

// means is how the order of tiers reaches kube-proxy in an import, and why not as they say.
func (v *ImportView) means(t model.Tiers, desired *model.Import, maintained bool) (tierMeans, string) {
	unset := t.Unset(v.self())
	policy, ordered := desired.InternalTrafficPolicy, byHints
	if desired.TrafficDistribution != nil {
		ordered = byZones
	}
	switch {
	case desired.Type == mcsv1beta1.Headless:
		return unordered, "the import is headless, so DNS gives clients the addresses of all tiers"
	case policy != nil && *policy == corev1.ServiceInternalTrafficPolicyLocal:
		return unordered, "internalTrafficPolicy is Local, so each node uses its own endpoints only"
	case maintained:
		return byReadiness, "the derived Service selects Pods of this cluster, which are used in whatever tier they are"
	case len(v.LocalCluster.Zones) == 0:
		return byReadiness, "no Node of this cluster has a zone, so the later tiers are the last resort"
	case len(unset) > 0:
		return ordered, fmt.Sprintf("this cluster has no label %s, so what compares it selects no cluster; set clusterLabels", unset[0])
	}
	return ordered, ""
}

// self is this cluster with its labels.
func (v *ImportView) self() model.ClusterLabels {
	return model.ClusterLabels{ID: v.Self, Labels: v.ClusterLabels, Known: true}
}
