// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// ImportInput is everything that decides what one import looks like here.
// Nothing in it is changed.
type ImportInput struct {
	// Key is the namespace and name of the exported Service. The namespace
	// must exist in this cluster.
	Key types.NamespacedName
	// Self is this cluster.
	Self model.ClusterID
	// Desired is the resolved import; nil if no export reaches this cluster.
	Desired *model.Import
	// Sources are the slices of each constituent: for Self the local slices of
	// the Service, for a peer the copies in its exchange, which name the slice
	// they were made from in model.AnnotationSourceSlice.
	Sources map[model.ClusterID][]*discoveryv1.EndpointSlice
	// Unread are the peers that were not read since start, in any order.
	// Nothing that came from them is written or deleted.
	Unread []model.ClusterID
	// Current is what exists in this cluster.
	Current Current
	// Taken are the names of derived Services that other imports of the
	// namespace have reserved, whether or not the Services exist yet.
	Taken []string
}

// Current is what exists of an import, whoever made it.
type Current struct {
	// Services are those of the namespace that are called
	// model.DerivedName(name) or model.AlternateDerivedName(name) and those
	// labeled model.LabelServiceName=name, in any order, each once.
	Services []*corev1.Service
	// Import is the ServiceImport called name; nil if there is none.
	Import *mcsv1beta1.ServiceImport
	// Slices are those of the namespace labeled model.LabelServiceName=name,
	// and any other whose name a Create of an earlier plan met: a user may have
	// taken the label off one of ours, or given the name to another object.
	Slices []*discoveryv1.EndpointSlice
}

// ImportPlan is what is outstanding for one import.
type ImportPlan struct {
	// Actions are to be made in this order; when one fails, those after it wait.
	// None means that the import is as it should be, unless there are problems.
	Actions []Action
	// DerivedName is the name of the derived Service, which the caller keeps
	// reserved (ImportInput.Taken of other imports) while the import exists.
	// Empty if there is nothing to derive or no name is free.
	DerivedName string
	// AwaitsService is true if the ServiceImport cannot be written before the
	// API server has answered the actions on the derived Service, because its
	// cluster IPs are not known or because it is being replaced. Apply the
	// actions, put the returned Service into Current (or take a deleted one
	// out) and plan again. Without an action on the Service there is nothing to
	// do but to wait for its next event.
	AwaitsService bool
	// Problems are for the reader of the import, in a fixed order.
	Problems []model.Problem
}

// Import plans one import.
//
// Order: the derived Service, so that slices have something to belong to; the
// slices, so that nobody is led to a name without endpoints; the ServiceImport,
// which makes the name known; then what leaves. A removed import goes the other
// way round: first the name, then the endpoints, then the address.
func Import(in ImportInput) ImportPlan {
	p := newImporter(in)
	if in.Desired == nil {
		return p.remove()
	}
	if in.Current.Import != nil && !Ours(in.Current.Import) {
		// Slices and a Service beside somebody else's ServiceImport would mix
		// our endpoints into answers that are not ours to give.
		return ImportPlan{DerivedName: p.existingName(), Problems: []model.Problem{foreignImport(in.Key)}}
	}
	plan := ImportPlan{DerivedName: p.name, Problems: p.nameProblems()}
	if p.name == "" {
		return plan
	}
	service, awaited := p.service()
	plan.Actions = append(plan.Actions, service...)
	plan.AwaitsService = awaited
	if p.replaces() {
		plan.Problems = append(plan.Problems, p.typeChanged())
	}
	slices := p.slices()
	plan.Problems = append(plan.Problems, slices.problems...)
	plan.Actions = append(plan.Actions, slices.apply...)
	if !awaited {
		plan.Actions = append(plan.Actions, p.serviceImport()...)
	}
	plan.Actions = append(plan.Actions, slices.remove...)
	plan.Actions = append(plan.Actions, p.surplusServices()...)
	return plan
}

// importer holds what several steps of one plan need.
type importer struct {
	ImportInput
	unread map[model.ClusterID]bool
	// kept is true if a cluster that was not read contributes to what exists
	// here: then the existing Service and ServiceImport are not touched, since
	// without its export they would be resolved on a guess.
	kept bool
	// existing is the derived Service; nil if there is none.
	existing *corev1.Service
	// name is the derived Service's name; empty if none is free.
	name string
	// ports are those of the import that traffic is measured against.
	ports []mcsv1beta1.ServicePort
}

func newImporter(in ImportInput) *importer {
	p := &importer{ImportInput: in, unread: map[model.ClusterID]bool{}}
	for _, id := range in.Unread {
		p.unread[id] = true
	}
	p.kept = p.unreadContributes()
	p.existing = p.ownService()
	p.name = p.chooseName()
	if in.Desired != nil {
		p.ports = in.Desired.Ports
	}
	if p.kept && p.ownImport() != nil {
		p.ports = in.Current.Import.Spec.Ports
	}
	return p
}

// unreadContributes reports whether what exists here came in part from a
// cluster that was not read.
func (p *importer) unreadContributes() bool {
	for _, s := range p.Current.Slices {
		if p.owns(s) && p.unread[clusterOf(s)] {
			return true
		}
	}
	if own := p.ownImport(); own != nil {
		for _, c := range own.Status.Clusters {
			if p.unread[model.ClusterID(c.Cluster)] {
				return true
			}
		}
	}
	return false
}

// ownImport is the ServiceImport if it is Comity's; nil otherwise.
func (p *importer) ownImport() *mcsv1beta1.ServiceImport {
	if p.Current.Import == nil || !Ours(p.Current.Import) {
		return nil
	}
	return p.Current.Import
}

func (p *importer) existingName() string {
	if p.existing == nil {
		return ""
	}
	return p.existing.Name
}

// remove plans the end of an import. As long as an unread cluster contributes,
// only what came from the clusters that were read goes.
func (p *importer) remove() ImportPlan {
	plan := ImportPlan{}
	if own := p.ownImport(); own != nil && !p.kept {
		plan.Actions = append(plan.Actions, remove(own, importKind)...)
	}
	plan.Actions = append(plan.Actions, p.slices().remove...)
	if p.kept {
		plan.DerivedName = p.existingName()
		return plan
	}
	if p.existing != nil {
		plan.Actions = append(plan.Actions, remove(p.existing, serviceKind)...)
	}
	plan.Actions = append(plan.Actions, p.surplusServices()...)
	return plan
}
