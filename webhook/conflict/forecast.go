// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package conflict

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/sync/decide"
	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/merge"
	"github.com/comity-mcs/comity/sync/model"
)

// Peers has what was read of the other members of the clusterset.
type Peers interface {
	// Read is what each of them publishes of that name.
	Read(key types.NamespacedName, withSlices bool) []exchange.Published
}

// Forecaster predicts conflicts. Peers, Client, Self and Clock are required, and safe
// for concurrent use.
type Forecaster struct {
	Peers Peers
	// Client reads Services, Namespaces and ServiceImports from a cache.
	Client client.Reader
	// Self is the id of this cluster.
	Self  model.ClusterID
	Clock clock.PassiveClock
	// IdentityLabels, MaintainSelectors and ComityNamespace are those of
	// decide.ImportView.
	IdentityLabels    []string
	MaintainSelectors bool
	ComityNamespace   string
	// ImportDisabled leaves importing to another implementation, which has no list.
	ImportDisabled bool
}

// Warnings has one sentence or more for each conflict in which the export would take
// part, in the order of the reasons in KEP-1645. There are none while a member was not
// read, because it may have the oldest export, none while the import is frozen, and none if the Service is not known: then
// nothing is exported yet.
func (f Forecaster) Warnings(ctx context.Context, export *mcsv1beta1.ServiceExport) []string {
	key := client.ObjectKeyFromObject(export)
	peers := f.Peers.Read(key, false)
	var exports []model.Export
	for _, p := range peers {
		if p.Known && !p.Synced {
			return nil
		}
		if p.Export != nil {
			exports = append(exports, *p.Export)
		}
	}
	if len(exports) == 0 {
		return nil
	}
	namespace, service, imported := &corev1.Namespace{}, &corev1.Service{}, &mcsv1beta1.ServiceImport{}
	if f.Client.Get(ctx, types.NamespacedName{Name: key.Namespace}, namespace) != nil || f.Client.Get(ctx, key, service) != nil {
		return nil
	}
	view := decide.ImportView{
		Self: f.Self, ComityNamespace: f.ComityNamespace, Peers: peers,
		IdentityLabels: f.IdentityLabels, MaintainSelectors: f.MaintainSelectors, Now: f.Clock.Now(), Own: decide.OwnSource{State: model.SourcePublished},
		ImportDisabled: true, // who decides is asked, and not what is written
	}
	if !f.ImportDisabled && f.Client.Get(ctx, key, imported) == nil {
		view.Current.Import = imported
	}
	if export.CreationTimestamp.IsZero() {
		stamped := *export
		stamped.CreationTimestamp = metav1.NewTime(view.Now).Rfc3339Copy() // as it is stored
		export = &stamped
	}
	view.Local = decide.LocalExport{
		Key: key, Namespace: namespace, Service: service, Export: export, Verdict: decision.Verdict{Outcome: decision.Allowed},
	}
	own, err := exchange.LocalExport(f.Self, export, service, f.MaintainSelectors)
	if err != nil {
		return nil
	}
	exports = merge.OldestFirst(append(exports, own)) // with defaults
	decide.ReadList(&view)
	found := decide.Import(view).Finding
	if found.Import == nil || found.Freeze != nil { // what is missing decides
		return nil
	}
	// Those of which the import consists, the deciding one first.
	ordered := model.Map(found.Import.Constituents, func(c model.Constituent) model.Export {
		return exports[slices.IndexFunc(exports, func(e model.Export) bool { return e.Cluster == c.Cluster })]
	})
	return warnings(own, ordered, found)
}

// maxWarning bounds one warning, in bytes: the API server cuts the warnings of a request
// that have more than 4,096 characters together.
const maxWarning = 900

// maxNamed is how many clusters a warning names of those that serve a port, and of the others.
const maxNamed = 5

// warnings are those on one export among those of which its import would consist, in
// their order.
func warnings(own model.Export, ordered []model.Export, found decide.ImportFinding) []string {
	concerned := reasonsOf(ordered, own.Cluster)
	var out []string
	for _, c := range found.Conflicts {
		opponent, is := concerned[c.Reason]
		if !is {
			continue // only others disagree
		}
		field, effect := effectOf(c.Reason, found)
		text := fmt.Sprintf("conflict of %s with cluster %s: %s %s Until they agree, %s. The export is stored all the same.",
			field, opponent.Cluster, c.Message, precedence(ordered[0], own, opponent), effect)
		out = append(out, model.OneLine(text, maxWarning))
	}
	return out
}

// reasonsOf are the reasons for which the export of self disagrees with the deciding one
// or, if it decides itself, with others; and with which, the oldest. Where it agrees
// with the deciding export, its properties are used, and others have the conflict.
func reasonsOf(ordered []model.Export, self model.ClusterID) map[mcsv1beta1.ServiceExportConditionReason]model.Export {
	at := slices.IndexFunc(ordered, func(e model.Export) bool { return e.Cluster == self })
	if at < 0 {
		return nil // it does not contribute
	}
	opponents := ordered[:1]
	if at == 0 {
		opponents = ordered[1:]
	}
	found := map[mcsv1beta1.ServiceExportConditionReason]model.Export{}
	for _, other := range slices.Backward(opponents) {
		pair := []model.Export{other, ordered[at]}
		if at == 0 {
			slices.Reverse(pair)
		}
		_, conflicts := merge.ResolveInOrder(pair)
		for _, c := range conflicts {
			found[c.Reason] = other
		}
	}
	return found
}

// precedence says which export decides, and how old both are. The younger one decides
// only where it did before, while the takeover by the older one is held.
func precedence(first, own, other model.Export) string {
	text := fmt.Sprintf("The export of cluster %s decides: it was created %s, and this one %s.", other.Cluster, moment(other), moment(own))
	if first.Cluster == own.Cluster {
		text = fmt.Sprintf("This export decides: it was created %s, and that of cluster %s %s.", moment(own), other.Cluster, moment(other))
	}
	if merge.OldestFirst([]model.Export{own, other})[0].Cluster != first.Cluster {
		text += " The other one is older: the takeover of the import is held (its condition TakeoverHeld says how to confirm it)."
	}
	return text
}

func moment(e model.Export) string { return e.CreatedAt.UTC().Format(time.RFC3339) }

// effectOf is what an author changes to end a conflict, and what the conflict does to the clients
// of the import: of that in every cluster, unless a takeover is held in this one.
func effectOf(reason mcsv1beta1.ServiceExportConditionReason, found decide.ImportFinding) (field, effect string) {
	resolved, every := found.Import, "every cluster"
	if len(found.Takeovers) > 0 {
		every = "this cluster"
	}
	routes, decider := every+" routes with ", "of cluster "+string(resolved.Constituents[0].Cluster)
	const notAffected = "traffic is not affected, and the ServiceImports have those "
	switch reason {
	case mcsv1beta1.ServiceExportReasonPortConflict:
		return "spec.ports of the Service", portTraffic(resolved)
	case mcsv1beta1.ServiceExportReasonTypeConflict:
		field, effect = "spec.clusterIP of the Service", "the import has a clusterset IP in "+every+", and the endpoints of every cluster are behind it"
		if resolved.Type == mcsv1beta1.Headless {
			effect = "the import is headless in " + every + ": clients get the addresses of pods, and no clusterset IP"
		}
		return field, effect
	case mcsv1beta1.ServiceExportReasonSessionAffinityConflict:
		return "spec.sessionAffinity of the Service", routes + "session affinity " + string(resolved.SessionAffinity)
	case mcsv1beta1.ServiceExportReasonSessionAffinityConfigConflict:
		return "spec.sessionAffinityConfig of the Service", routes + "the affinity timeout " + decider
	case mcsv1beta1.ServiceExportReasonLabelsConflict:
		return "spec.exportedLabels of the ServiceExport", notAffected + decider
	case mcsv1beta1.ServiceExportReasonAnnotationsConflict:
		return "spec.exportedAnnotations of the ServiceExport", notAffected + decider
	case mcsv1beta1.ServiceExportReasonInternalTrafficPolicyConflict:
		return "spec.internalTrafficPolicy of the Service", routes + "internalTrafficPolicy " + string(*resolved.InternalTrafficPolicy)
	case mcsv1beta1.ServiceExportReasonTrafficDistributionConflict:
		return "spec.trafficDistribution of the Service", routes + "the trafficDistribution " + decider
	case model.ReasonTiersConflict:
		return "annotation " + model.AnnotationTiers + " of the ServiceExport", every + " uses its source clusters in the order " + decider
	case mcsv1beta1.ServiceExportReasonIPFamilyConflict:
		return "spec.ipFamilies of the Service",
			"the import has " + model.Join(resolved.IPFamilies, " and ") + ", and a cluster without one of these families gets no traffic of it"
	}
	return "the Service", "the value " + decider + " is used"
}

// portTraffic says which clusters serve each port of the import, and which do not.
func portTraffic(resolved *model.Import) string {
	const limit = 4
	var parts []string
	for _, p := range resolved.Ports {
		var served, without []model.ClusterID
		for _, c := range resolved.Constituents {
			if slices.ContainsFunc(c.Ports, func(q mcsv1beta1.ServicePort) bool { return q.Name == p.Name }) {
				served = append(served, c.Cluster)
			} else {
				without = append(without, c.Cluster)
			}
		}
		if len(without) > 0 {
			parts = append(parts, fmt.Sprintf("traffic to %s reaches %s and not %s", portText(p), decision.Some(served, maxNamed), decision.Some(without, maxNamed)))
		}
	}
	switch {
	case len(parts) == 0: // they differ in the appProtocol, or in a port that no import has
		return "traffic reaches every cluster on the ports of the import"
	case len(parts) > limit:
		parts = append(parts[:limit], fmt.Sprintf("the same holds for %d more ports", len(parts)-limit))
	}
	return strings.Join(parts, "; ")
}

func portText(p mcsv1beta1.ServicePort) string {
	protocol := cmp.Or(p.Protocol, corev1.ProtocolTCP)
	if p.Name == "" {
		return fmt.Sprintf("port %d/%s", p.Port, protocol)
	}
	return fmt.Sprintf("port %s (%d/%s)", p.Name, p.Port, protocol)
}
