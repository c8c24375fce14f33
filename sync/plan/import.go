// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/exchange"
	"github.com/comity-mcs/comity/sync/model"
)

// ImportInput is everything that the plan of one import depends on. Nothing in
// it is changed.
type ImportInput struct {
	// Key is the namespace and name of the exported Service. The namespace
	// must exist in this cluster.
	Key types.NamespacedName
	// Self is this cluster.
	Self model.ClusterID
	// Desired is the resolved import; nil if no export reaches this cluster.
	Desired *model.Import
	// Sources are the slices of each constituent: for Self the local slices of
	// the Service, for a peer the copies in its exchange, whose annotation
	// model.AnnotationSourceSlice names the slice that was copied.
	Sources map[model.ClusterID][]*discoveryv1.EndpointSlice
	// List is what the import consists of, stored with it.
	List model.List
	// Frozen is true if no property of the import changes. Then Desired is Standing.
	Frozen bool
	// KeepAddress keeps the derived Service, with its list and address, if Desired is
	// nil.
	KeepAddress bool
	// Unsynced are the clusters of which what exists is kept: those that were not read,
	// and those of which the export is missing. Nothing that came from them
	// is deleted, and no endpoint changes, but for Traffic and zone hints.
	Unsynced sets.Set[model.ClusterID]
	// Current is what exists in this cluster.
	Current Current
	// LocalCluster has the IP families and zones of this cluster.
	LocalCluster model.LocalCluster
	// Traffic is how the endpoints of each source may be used; Served where it says nothing.
	Traffic map[model.ClusterID]model.Traffic
	// LostSlices are, by cluster, the source slices that the cluster lost without
	// removing them: what was mirrored of them stays.
	LostSlices map[model.ClusterID][]string
	// Accepted are the addresses that are accepted now from clusters that were not
	// read, as far as known. Others go from what is kept of them.
	Accepted map[model.ClusterID]exchange.Filter
	// MaintainSelectors gives the derived Service the selector of the exported
	// Service, so that Kubernetes adds the pods of this cluster to it.
	MaintainSelectors bool
	// Takeover adopts, in place, objects that the Sveltos pipeline created for
	// this import; otherwise they are foreign like any other object.
	Takeover bool
}

// ImportPlan is what is outstanding for one import.
type ImportPlan struct {
	// Actions are to be made in this order; if one fails, the rest wait for the
	// next plan, unless Action.Source says otherwise, or the API server refuses an update.
	// None means that the import is as desired, unless there are problems.
	Actions []Action
	// DerivedName is the name of the derived Service. Empty if there is no derived
	// Service or no name is free.
	DerivedName string
	// AwaitsService is true if the ServiceImport can be planned only after the
	// actions on the derived Service were made, because its cluster IPs are
	// unknown or it is being replaced. Apply the actions and plan again with
	// Current.After. If no action is on the Service, wait for its next event.
	AwaitsService bool
	// Unready is, by source, how many endpoints are marked not ready because of Traffic.
	Unready map[model.ClusterID]int
	// Problems are shown on the ServiceImport, in a fixed order.
	Problems []model.Problem
}

// Import plans one import.
//
// The order of creation is: the derived Service, to which the slices belong; the
// slices, so that the name has endpoints when it is published; the ServiceImport,
// with which DNS publishes the name; then the deletions. The order of removal is
// the reverse: the ServiceImport, the slices, the derived Service.
//
// A slice that the API server refuses costs its source cluster only: everything
// else does not depend on it. There are two exceptions. A derived Service is deleted
// only after all its slices, because those that stay would serve the next Service of
// that name. Its selector is removed only after the slices of this cluster exist.
// If the API server refuses an update of the derived Service or of the ServiceImport, slices
// that exist are updated all the same, and nothing is added or deleted.
func Import(in ImportInput) ImportPlan {
	p := newImporter(in)
	if in.Desired == nil {
		return p.remove()
	}
	if in.Current.Import != nil && p.own == nil { // somebody else's ServiceImport has the name
		return p.foreignImportPlan()
	}
	service, awaited := p.service()
	mirrored := p.slices()
	plan := ImportPlan{DerivedName: p.name, AwaitsService: awaited, Unready: p.unready}
	plan.Problems = slices.Concat(p.nameProblems(), p.serviceProblems(), mirrored.problems)
	plan.Actions = append(service, mirrored.apply...)
	if p.dropsSelector() {
		// Kubernetes empties its slices of the selector when the selector
		// changes, so Comity's slices are created before.
		each(mirrored.apply, func(a *Action) {
			if a.Source == p.Self {
				a.Source = ""
			}
		})
		plan.Actions = append(mirrored.apply, service...)
	}
	if !awaited {
		plan.Actions = append(plan.Actions, p.serviceImport()...)
	}
	plan.Actions = slices.Concat(plan.Actions, mirrored.remove, p.removeServices(p.existing))
	return plan
}

// foreignImportPlan plans an import whose name a foreign ServiceImport has.
// Nothing is created for it: the endpoints of Comity would be mixed with those
// of the other implementation. But clients may still use the address of a
// derived Service that existed before, so its slices are kept up to date, once
// every cluster was read: without a ServiceImport of Comity it is not known
// which ports are those of a cluster that was not. The list is written in any case: what
// ended is else in it for ever.
func (p *importer) foreignImportPlan() ImportPlan {
	plan := ImportPlan{Problems: []model.Problem{model.Problemf(model.ReasonForeignImport, "",
		"ServiceImport %s was not created by Comity, so nothing of that name is imported; delete it to let Comity create its own", p.Key)}}
	if p.existing == nil {
		return plan
	}
	plan.DerivedName = p.name
	plan.Actions = p.annotateService()
	if len(p.Unsynced) > 0 {
		return plan
	}
	mirrored := p.slices()
	plan.Unready, plan.Actions = p.unready, slices.Concat(plan.Actions, mirrored.apply, mirrored.remove)
	return plan
}

// serviceProblems are the ways in which the derived Service differs from what
// the exports ask for.
func (p *importer) serviceProblems() []model.Problem {
	var problems []model.Problem
	add := func(reason, format string, args ...any) {
		problems = append(problems, model.Problemf(reason, "", format, args...))
	}
	if p.replaces() {
		what := fmt.Sprintf("of type %s", p.Desired.Type)
		if model.ImportType(p.existing) == p.Desired.Type {
			what = "of IP family " + model.Join(p.families, " and ")
		}
		add(model.ReasonTypeChanged, "the export that decides %s is now %s, so derived Service %q is created again; clients have to resolve the name again",
			p.Key, what, p.name)
	}
	if p.unsupported() {
		add(model.ReasonIPFamilyNotSupported, "the export that decides %s has none of the IP families of this cluster (%s); export it with one of them",
			p.Key, model.Join(p.LocalCluster.Families, " and "))
	}
	if p.hints.tooManyZones() {
		add(model.ReasonTooManyZones, "this cluster has %d zones, and an endpoint can be hinted to %d only: the tier that serves %s is not preferred in the others",
			len(p.LocalCluster.Zones), maxHintedZones, p.Key)
	}
	return problems
}

// importer holds values that several steps of one plan need.
type importer struct {
	ImportInput
	// kept is true if an export of which what exists is kept is part of the import.
	kept bool
	// own is the existing ServiceImport if Comity manages or adopts it, existing the derived
	// Service; nil if there is none.
	own      *mcsv1beta1.ServiceImport
	existing *corev1.Service
	// services are the derived Services that Comity manages or adopts: only after a crash
	// between two writes are there others than existing.
	services []*corev1.Service
	// name is that of the existing derived Service, or else the first free one; empty if none
	// is free. Then only the ServiceImport is created, as for an unsupported IP family.
	name string
	// ports are the ports of the import that slices may serve.
	ports []mcsv1beta1.ServicePort
	// families are those of the derived Service. If they are nil, the API server
	// chooses; if they are empty but not nil, none is supported.
	families []corev1.IPFamily
	hints    hintRule
	// takesOver is true if objects of the Sveltos pipeline are adopted.
	takesOver bool
	// currentSlices are those of Current, and desiredSlices those that are to exist, by name,
	// once the slices are planned. A slice that is kept unchanged is in both.
	currentSlices, desiredSlices map[string]*discoveryv1.EndpointSlice
	// unready is that of the plan, once the slices were planned.
	unready map[model.ClusterID]int
}

func newImporter(in ImportInput) *importer {
	p := &importer{ImportInput: in, takesOver: in.Takeover && in.Desired != nil}
	p.kept = slices.ContainsFunc(p.List.Entries, func(e model.Entry) bool { return p.Unsynced.Has(e.Cluster) }) ||
		slices.ContainsFunc(p.Current.Slices, func(s *discoveryv1.EndpointSlice) bool { return p.Unsynced.Has(p.adoptedFrom(s)) })
	p.own = p.ownImport()
	p.name, _ = model.Find(derivedNames(p.Key, p.Current.announced()), func(name string) bool { return p.occupier(name) == nil })
	p.services = slices.DeleteFunc(derivedServices(p.Current, p.Key), func(s *corev1.Service) bool { return !model.IsManaged(s) && !p.adoptsService(s) })
	if len(p.services) > 0 {
		p.existing, p.name = p.services[0], p.services[0].Name
	}
	if in.Desired == nil {
		return p
	}
	p.ports = p.importPorts()
	p.resolveFamilies()
	return p
}

func (p *importer) resolveFamilies() {
	var existing []corev1.IPFamily
	if p.existing != nil {
		existing = p.existing.Spec.IPFamilies
	}
	switch {
	case p.existing != nil && p.Frozen:
		p.families = existing
	case p.existing == nil && p.Frozen && p.own != nil && p.own.Annotations[model.AnnotationDerivedName] == "" && p.name != "": // it never had a Service: nothing else would say so
		p.families = []corev1.IPFamily{}
	default:
		p.families = supportedFamilies(p.Desired.IPFamilies, p.LocalCluster.Families, existing)
	}
}

// unsupported reports whether this cluster has none of the IP families of the import.
func (p *importer) unsupported() bool { return p.families != nil && len(p.families) == 0 }

// ownImport is the existing ServiceImport if Comity manages it, or if the Sveltos
// pipeline created it and it is to be adopted; nil otherwise. That of the pipeline has no mark
// but the name of the derived Service, which has to be the pipeline's, too.
func (p *importer) ownImport() *mcsv1beta1.ServiceImport {
	s := p.Current.Import
	switch {
	case s == nil:
		return nil
	case model.IsManaged(s):
		return s
	case p.takesOver && s.Annotations[model.AnnotationDerivedName] == model.DerivedName(p.Key.Name) && slices.ContainsFunc(p.Current.Services, func(s *corev1.Service) bool {
		return s.Name == model.DerivedName(p.Key.Name) && (p.adoptsService(s) || model.IsManaged(s) && s.Labels[model.LabelServiceName] == p.Key.Name)
	}):
		return s
	}
	return nil
}

// remove plans the removal of an import, or of all but its derived Service.
func (p *importer) remove() ImportPlan {
	mirrored := p.slices()
	plan := ImportPlan{Unready: p.unready}
	var kept *corev1.Service
	if p.KeepAddress && p.existing != nil {
		kept, plan.DerivedName, plan.Actions = p.existing, p.name, p.annotateService()
	}
	if p.own != nil {
		plan.Actions = append(plan.Actions, remove(p.own, importKind)...)
	}
	plan.Actions = slices.Concat(plan.Actions, mirrored.apply, mirrored.remove, p.removeServices(kept))
	return plan
}
