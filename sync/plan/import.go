// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

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
	// Unsynced are the peers that were not read since start, in any order.
	// Nothing that came from them is written or deleted.
	Unsynced []model.ClusterID
	// Current is what exists in this cluster.
	Current Current
	// Taken are the names of derived Services that other imports of the
	// namespace have reserved, whether or not the Services exist yet.
	Taken []string

	// LocalCluster is what this cluster is like: its IP families and zones.
	LocalCluster model.LocalCluster
	// Lost are the clusters that are lost and whose endpoints do not answer a
	// probe either; what becomes of their endpoints, OnLost says (default
	// model.OnLostWithdrawUnlessLast).
	Lost   []model.ClusterID
	OnLost model.OnLost
	// MaintainSelectors gives the derived Service the selector of the exported
	// one, so that pods of this cluster join by themselves.
	MaintainSelectors bool
	// Takeover lets objects that the Sveltos pipeline made for this import be
	// adopted in place; otherwise they are foreign like any other.
	Takeover bool
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
	// Withdrawn are those of Lost whose endpoints are marked not ready, sorted.
	Withdrawn []model.ClusterID
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
	if p.besideForeign() {
		return p.foreignImportPlan()
	}
	plan := ImportPlan{DerivedName: p.derivedName(), Problems: p.nameProblems()}
	service, awaited := p.service()
	slices := p.slices()
	plan.AwaitsService, plan.Withdrawn = awaited, p.withdrawn
	plan.Problems = append(plan.Problems, p.serviceProblems()...)
	plan.Problems = append(plan.Problems, slices.problems...)
	if p.dropsSelector() {
		// The slices that the selector made go with it: ours come first.
		plan.Actions = append(slices.apply, service...)
	} else {
		plan.Actions = append(service, slices.apply...)
	}
	if !awaited {
		plan.Actions = append(plan.Actions, p.serviceImport()...)
	}
	plan.Actions = append(plan.Actions, slices.remove...)
	plan.Actions = append(plan.Actions, p.surplusServices()...)
	return plan
}

// Name returns the DerivedName of Import(in) without planning any object, so
// that a caller can reserve the name under a lock and plan outside of it.
func Name(in ImportInput) string { return newImporter(in).derivedName() }

// derivedName is the name of the derived Service that exists after the plan, or
// is to be created by it; empty if there is none.
func (p *importer) derivedName() string {
	switch {
	case p.Desired == nil && !p.kept:
		return ""
	case p.Desired == nil || p.besideForeign():
		return p.existingName()
	}
	return p.name
}

// besideForeign reports whether somebody else's ServiceImport has the name.
func (p *importer) besideForeign() bool { return p.Current.Import != nil && p.ownImport() == nil }

// foreignImportPlan plans an import whose name a foreign ServiceImport has.
// Nothing is created for it: the endpoints of Comity would be mixed with those
// of the other implementation. But clients may still use the address of a
// derived Service that existed before, so its slices are kept up to date, once
// every cluster was read: without a ServiceImport of Comity it is not known
// which clusters contribute to it.
func (p *importer) foreignImportPlan() ImportPlan {
	plan := ImportPlan{DerivedName: p.derivedName(), Problems: []model.Problem{foreignImport(p.Key)}}
	if p.existing == nil || p.kept || len(p.unsynced) > 0 {
		return plan
	}
	slices := p.slices()
	plan.Withdrawn = p.withdrawn
	plan.Actions = append(slices.apply, slices.remove...)
	return plan
}

// serviceProblems tells of a derived Service that is not as the exports ask.
func (p *importer) serviceProblems() []model.Problem {
	var problems []model.Problem
	if p.replaces() {
		problems = append(problems, p.typeChanged())
	}
	if p.unsupported {
		problems = append(problems, p.familyNotSupported())
	}
	if p.hints.tooManyZones() {
		problems = append(problems, p.tooManyZones())
	}
	return problems
}

// importer holds what several steps of one plan need.
type importer struct {
	ImportInput
	unsynced map[model.ClusterID]bool
	// kept is true if a cluster that was not read contributes to what exists
	// here: then the existing Service and ServiceImport are not touched, since
	// without its export they would be resolved on a guess.
	kept bool
	// existing is the derived Service; nil if there is none.
	existing *corev1.Service
	// name is the derived Service's name; empty if none is free. Then nothing
	// but the ServiceImport is made, as if unsupported.
	name string
	// ports are those of the import that traffic is measured against.
	ports []mcsv1beta1.ServicePort
	// families are those of the derived Service; nil leaves them to the API
	// server, and none at all is unsupported.
	families    []corev1.IPFamily
	unsupported bool
	hints       hintRule
	// takesOver is true if objects of the Sveltos pipeline are adopted.
	takesOver bool
	// withdrawn are the clusters whose endpoints are withdrawn, once slices
	// were planned.
	withdrawn []model.ClusterID
}

func newImporter(in ImportInput) *importer {
	p := &importer{ImportInput: in, unsynced: map[model.ClusterID]bool{}, takesOver: in.Takeover && in.Desired != nil}
	for _, id := range in.Unsynced {
		p.unsynced[id] = true
	}
	p.kept = p.unsyncedContributes()
	p.existing = p.ownService()
	p.name = p.chooseName()
	if in.Desired == nil {
		return p
	}
	p.ports = in.Desired.Ports
	if p.kept && p.ownImport() != nil {
		p.ports = in.Current.Import.Spec.Ports
	}
	p.resolveFamilies()
	if !p.maintains() || !in.Desired.PreferLocal {
		// Kubernetes gives the slices that it makes of a selector no such hints,
		// and kube-proxy honors none unless all endpoints have some.
		p.hints = newHintRule(in.Desired, in.Self, in.LocalCluster.Zones)
	}
	return p
}

func (p *importer) resolveFamilies() {
	if p.existing == nil {
		p.families = supportedFamilies(p.Desired.IPFamilies, p.LocalCluster.Families, nil)
	} else if p.kept {
		p.families = p.existing.Spec.IPFamilies
		return
	} else {
		p.families = supportedFamilies(p.Desired.IPFamilies, p.LocalCluster.Families, p.existing.Spec.IPFamilies)
	}
	p.unsupported = p.families != nil && len(p.families) == 0
}

func (p *importer) tooManyZones() model.Problem {
	return model.Problem{Reason: model.ReasonTooManyZones, Message: fmt.Sprintf(
		"this cluster has %d zones, and an endpoint can be hinted to %d only, so local endpoints of %s are preferred in the first %d zones by name alone",
		len(p.LocalCluster.Zones), maxHintedZones, p.Key, maxHintedZones)}
}

// unsyncedContributes reports whether what exists here came in part from a
// cluster that was not read.
func (p *importer) unsyncedContributes() bool {
	for _, s := range p.Current.Slices {
		if p.owns(s) && p.unsynced[clusterOf(s)] || p.unsynced[p.adoptedFrom(s)] {
			return true
		}
	}
	if own := p.ownImport(); own != nil {
		for _, c := range own.Status.Clusters {
			if p.unsynced[model.ClusterID(c.Cluster)] {
				return true
			}
		}
	}
	return false
}

// ownImport is the ServiceImport if it is Comity's, or the Sveltos pipeline's
// and to be taken over; nil otherwise.
func (p *importer) ownImport() *mcsv1beta1.ServiceImport {
	s := p.Current.Import
	switch {
	case s == nil:
		return nil
	case model.IsManaged(s):
		return s
	case p.takesOver && maybeSveltosImport(s, p.Key) && slices.ContainsFunc(p.Current.Services, func(s *corev1.Service) bool {
		return s.Name == model.DerivedName(p.Key.Name) && (p.adoptsService(s) || model.IsManaged(s) && s.Labels[model.LabelServiceName] == p.Key.Name)
	}):
		return s
	}
	return nil
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
	plan := ImportPlan{DerivedName: p.derivedName()}
	if own := p.ownImport(); own != nil && !p.kept {
		plan.Actions = append(plan.Actions, remove(own, importKind)...)
	}
	slices := p.slices()
	plan.Actions = append(plan.Actions, slices.apply...)
	plan.Actions = append(plan.Actions, slices.remove...)
	plan.Withdrawn = p.withdrawn
	if p.kept {
		return plan
	}
	if p.existing != nil {
		plan.Actions = append(plan.Actions, remove(p.existing, serviceKind)...)
	}
	plan.Actions = append(plan.Actions, p.surplusServices()...)
	return plan
}
