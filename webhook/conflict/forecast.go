// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package conflict

import (
	"context"
	"fmt"
	"slices"

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

// Forecaster predicts conflicts. All is required, and safe for concurrent use.
type Forecaster struct {
	Peers Peers
	// Client reads Services, Namespaces and ServiceImports from a cache.
	Client client.Reader
	Clock  clock.PassiveClock
	// View has what is the same for every import of this cluster: Self, ComityNamespace,
	// IdentityLabels, MaintainSelectors and ImportDisabled.
	View decide.ImportView
}

// Warnings has one line for each conflict in which the export would take
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
	view := f.View
	view.Peers, view.Now, view.Own = peers, f.Clock.Now(), decide.OwnSource{State: model.SourcePublished}
	if !view.ImportDisabled && f.Client.Get(ctx, key, imported) == nil { // another implementation has no list
		view.Current.Import = imported
	}
	view.ImportDisabled = true // who decides is asked, and not what is written
	if export.CreationTimestamp.IsZero() {
		stamped := *export
		stamped.CreationTimestamp = metav1.NewTime(view.Now).Rfc3339Copy() // as it is stored
		export = &stamped
	}
	view.Local = decide.LocalExport{
		Key: key, Namespace: namespace, Service: service, Export: export, Verdict: decision.Verdict{Outcome: decision.Allowed},
	}
	own, err := exchange.LocalExport(view.Self, export, service, view.MaintainSelectors)
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
	return warnings(view.Self, ordered)
}

// maxWarning bounds one warning, in bytes: the API server cuts the warnings of a request
// that have more than 4,096 characters together.
const maxWarning = 900

// warnings are those on the export of a cluster among those of which its import would consist: it disagrees with the
// deciding one or, if it decides itself, others disagree with it. Where only others disagree, they have the conflict.
func warnings(self model.ClusterID, ordered []model.Export) []string {
	at := slices.IndexFunc(ordered, func(e model.Export) bool { return e.Cluster == self })
	if at < 0 {
		return nil // it does not contribute
	}
	own, decider := ordered[at], ordered[0].Cluster
	if at > 0 {
		ordered = []model.Export{ordered[0], own}
	}
	_, conflicts := merge.ResolveInOrder(ordered)
	return model.Map(conflicts, func(c model.Conflict) string {
		return model.OneLine(fmt.Sprintf("ServiceExport %s would have %s: %s Until they agree, the import is as the export of cluster %s has it. "+
			"The export is stored all the same.", own.Key, c.Reason, c.Message, decider), maxWarning)
	})
}
