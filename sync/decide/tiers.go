// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// tierSource is one source of an import, as its tiers see it.
type tierSource struct {
	model.ClusterLabels
	// available is true if it has a ready endpoint and is neither lost nor drained.
	available bool
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
func inTiers(t model.Tiers, self model.ClusterLabels, sources []tierSource, means tierMeans) (map[model.ClusterID]model.Traffic, int) {
	var available []int
	for _, s := range sources {
		if place, in := t.TierOf(s.ClusterLabels, self); in && s.available {
			available = append(available, place)
		}
	}
	slices.Sort(available)
	available = slices.Compact(available)
	serving, first, next := -1, 0, 1
	if len(available) > 0 {
		serving, first = available[0], available[0]
		next = len(t.Texts())
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
		place, in := t.TierOf(s.ClusterLabels, self)
		switch {
		case !in:
			out[s.ID] = model.Omitted
		case means == unordered, means == byReadiness && place <= first, hinted && place > first && place <= next:
			out[s.ID] = model.Served
		case hinted && place <= first:
			out[s.ID] = model.Preferred
		default:
			out[s.ID] = model.LastResort
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
	if s := plan.Standing(i.Current, in.Key, nil); s != nil {
		standing = s.Tiers
	}
	decider, _, _ := i.deciding()
	tiers, problems := i.tiersFor(decider.Cluster, in.Desired.Tiers, standing)
	d.Finding.Problems = slices.Concat(d.Finding.Problems, problems)
	desired := *in.Desired
	desired.Tiers = tiers.String()
	if in.Desired = &desired; !tiers.Exist() {
		return
	}
	maintained := i.MaintainSelectors && (len(desired.Selector) > 0 ||
		slices.ContainsFunc(i.Current.Services, func(s *corev1.Service) bool { return model.IsManaged(s) && len(s.Spec.Selector) > 0 }))
	means, limit := i.means(tiers, &desired, maintained)
	sources := []tierSource{{i.self(), i.hasReady(in, i.Self)}}
	for _, p := range i.Peers {
		labeled := model.ClusterLabels{ID: p.ID, Labels: p.Labels, Known: p.Known}
		sources = append(sources, tierSource{labeled, in.Traffic[p.ID] < model.LastResort && i.hasReady(in, p.ID)})
	}
	traffic, serving := inTiers(tiers, i.self(), sources, means)
	found := &model.TiersInForce{Tiers: tiers.Texts(), Serving: serving, Unordered: means == unordered, Limit: limit}
	for _, s := range sources {
		if place, is := tiers.TierOf(s.ClusterLabels, i.self()); is && s.available && place == serving {
			found.From = append(found.From, s.ID)
		}
		use, was := traffic[s.ID], in.Traffic[s.ID]
		// After a restart, what was the last resort seems to be down.
		if presumed := i.isPresumedDown(s.ID); use == model.Omitted || use == model.LastResort && presumed || use > was || was < model.LastResort {
			in.Traffic[s.ID] = use
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
		family := corev1.IPFamily(s.AddressType)
		isCarried := (len(in.Desired.IPFamilies) == 0 || slices.Contains(in.Desired.IPFamilies, family)) &&
			(len(i.LocalCluster.Families) == 0 || slices.Contains(i.LocalCluster.Families, family))
		return isCarried && slices.ContainsFunc(plan.Published(s), model.IsReady)
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
	export := &mcsv1beta1.ServiceExport{}
	export.Namespace, export.Name = v.Local.Key.Namespace, v.Local.Key.Name
	if exported != "" {
		export.Annotations = map[string]string{model.AnnotationTiers: exported}
	}
	type annotated struct {
		kind   string
		object metav1.Object
	}
	asked := []annotated{{"cluster " + string(from) + ", ServiceExport", export}}
	if v.Current.Import != nil && model.IsManaged(v.Current.Import) {
		asked = slices.Insert(asked, 0, annotated{mcsv1beta1.ServiceImportKindName, v.Current.Import})
	}
	if v.Local.Namespace != nil {
		asked = append(asked, annotated{"Namespace", v.Local.Namespace})
	}
	var problems []model.Problem
	for _, a := range asked {
		tiers, err := model.TiersOf(a.kind, a.object)
		if tiers.Exist() {
			return tiers, problems
		}
		if err == nil {
			continue
		}
		stands, unreadable := model.ParseTiers(standing)
		consequence := "it is ignored"
		if unreadable == nil {
			consequence = fmt.Sprintf("%q stays in force", stands)
		}
		problems = append(problems, model.Problemf(model.ReasonInvalidAnnotation, "", "%v; %s until that is corrected", err, consequence))
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
