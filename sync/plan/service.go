// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

var serviceKind = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}

const labelManagedBy = "app.kubernetes.io/managed-by"

// derivedNames are the names that the derived Service may have, the preferred one first.
// The announced one, that of the existing ServiceImport, is preferred to the
// other: a rename would change the clusterset IP.
func derivedNames(key types.NamespacedName, announced string) []string {
	names := []string{model.DerivedName(key.Name), model.AlternateDerivedName(key.Name)}
	if announced == names[1] {
		slices.Reverse(names)
	}
	return names
}

// canDerive reports whether name is one that the derived Service of an import
// called service can have.
func canDerive(service, name string) bool {
	return service != "" && (model.DerivedName(service) == name || model.AlternateDerivedName(service) == name)
}

// removeServices deletes the derived Services but the one that is kept, if nothing before was
// refused. One that is not adopted yet stays.
func (p *importer) removeServices(kept *corev1.Service) (actions []Action) {
	for _, s := range p.services {
		if s != kept && model.IsManaged(s) {
			actions = append(actions, remove(s, serviceKind)...)
		}
	}
	return each(actions, func(a *Action) { a.AfterAll = true })
}

// adoptsService reports whether s is a Service of the Sveltos pipeline that is to
// be adopted. One that would have to be replaced stays foreign.
func (p *importer) adoptsService(s *corev1.Service) bool {
	isPipelines := s.Name == model.DerivedName(p.Key.Name) && s.Labels[model.LabelServiceName] == p.Key.Name &&
		s.Labels[model.LabelServiceImported] == "true" && s.Labels[labelManagedBy] == sveltos
	return p.takesOver && !model.IsManaged(s) && isPipelines && !p.mustReplace(s)
}

// mustReplace reports whether s cannot be changed into the derived Service:
// Kubernetes allows no change of clusterIP from or to None, or to another family.
func (p *importer) mustReplace(s *corev1.Service) bool {
	if model.ImportType(s) != p.Desired.Type {
		return s.Spec.Type != corev1.ServiceTypeExternalName // which has no cluster IP
	}
	return p.Desired.Type != mcsv1beta1.Headless && losesFirstFamily(s.Spec.IPFamilies, supportedFamilies(p.Desired.IPFamilies, p.LocalCluster.Families, s.Spec.IPFamilies))
}

// occupier is the Service called name if it is not this import's; nil if none is.
func (p *importer) occupier(name string) *corev1.Service {
	s, _ := model.Find(p.Current.Services, func(s *corev1.Service) bool { return s.Name == name && s != p.existing })
	return s
}

// nameProblems are the names that foreign Services have. A name that another
// import has is no problem: that is how adler32 collisions are resolved.
func (p *importer) nameProblems() []model.Problem {
	var problems []model.Problem
	for _, name := range derivedNames(p.Key, "") {
		if name == p.name {
			break // the other name was not needed
		}
		if s := p.occupier(name); s != nil && !model.IsManaged(s) {
			problems = append(problems, p.nameTaken("Service", name, p.name))
		}
	}
	if p.name == "" && len(problems) == 0 {
		problems = append(problems, model.Problemf(model.ReasonNameTaken, "",
			"other imports have both names that the derived Service of %s can have; rename the exported Service", p.Key))
	}
	return problems
}

func (p *importer) nameTaken(kind, name, instead string) model.Problem {
	consequence := fmt.Sprintf("%q is used instead", instead)
	if instead == "" {
		consequence = "what it stands for is not imported"
	}
	return model.Problemf(model.ReasonNameTaken, "",
		"%s %s/%s, which Comity did not create, has the name of a derived object, so %s; rename or delete it", kind, p.Key.Namespace, name, consequence)
}

// replaces reports whether the derived Service has to be deleted and created again.
func (p *importer) replaces() bool {
	return p.existing != nil && !p.Frozen && !p.unsupported() && p.mustReplace(p.existing)
}

// possible reports whether there is a derived Service or can be one.
func (p *importer) possible() bool {
	return p.existing != nil || !p.unsupported() && p.name != ""
}

// service plans the derived Service, and reports whether the ServiceImport has to
// wait for it (ImportPlan.AwaitsService).
func (p *importer) service() (actions []Action, awaited bool) {
	switch {
	case !p.possible():
		return nil, false
	case p.existing == nil:
		return []Action{create(p.desiredService())}, true
	case p.replaces():
		// The list outlives the Service: until there is another one, the copy is the list.
		actions = p.annotateService()
		if p.own != nil {
			actions = append(actions, p.annotateList(&mcsv1beta1.ServiceImport{TypeMeta: importKind}, p.own)...)
		}
		if len(actions) == 0 {
			actions = remove(p.existing, serviceKind)
		}
		return actions, true
	case p.Frozen || p.unsupported():
		return p.annotateService(), !p.hasAddress()
	}
	desired := p.desiredService()
	hasAll, strip := compareService(&p.existing.Spec, &desired.Spec)
	if p.existing.Spec.Type == corev1.ServiceTypeExternalName { // it is applied first: its IP families can be compared only then
		actions = updateOrAdopt(desired, p.existing, false, nil)
	} else {
		actions = updateOrAdopt(desired, p.existing, hasAll, strayPatch(p.existing, desired, strip))
	}
	c, d := p.existing.Spec, desired.Spec
	readdressed := c.IPFamilyPolicy == nil || *c.IPFamilyPolicy != *d.IPFamilyPolicy || len(d.IPFamilies) > 0 && !slices.Equal(c.IPFamilies, d.IPFamilies)
	return asRead(p.existing, actions), readdressed || !p.hasAddress()
}

// hasAddress reports whether the API server has assigned what the ServiceImport
// copies.
func (p *importer) hasAddress() bool {
	return len(p.existing.Spec.ClusterIPs) > 0 && len(p.existing.Spec.IPFamilies) > 0
}

func (p *importer) desiredService() *corev1.Service {
	s := &corev1.Service{TypeMeta: serviceKind, ObjectMeta: p.meta(p.name), Spec: p.serviceSpec()}
	s.Labels[model.LabelServiceImported] = "true"
	s.Labels[labelManagedBy] = model.ManagedBy
	s.Annotations[model.AnnotationList] = p.List.String()
	if p.Desired.Tiers != "" {
		s.Annotations[model.AnnotationTiers] = p.Desired.Tiers
	}
	if p.maintains() {
		// Kubernetes copies the Service's labels to the slices that it creates
		// for the selector, and DNS reads the cluster from this label.
		s.Labels[model.LabelSourceCluster] = string(p.Self)
	}
	return sign(s)
}

// maintains reports whether the derived Service selects pods of this cluster.
// Kubernetes then creates their slices, and Comity mirrors none of this cluster. That
// stays while the own export was not read, since nothing else could serve its endpoints. What
// tiers leave out is not selected.
func (p *importer) maintains() bool {
	if p.Traffic[p.Self] == model.Omitted {
		return false
	}
	if (p.Frozen || p.Unsynced.Has(p.Self)) && p.existing != nil {
		return p.MaintainSelectors && len(p.existing.Spec.Selector) > 0 && !selectsNothing(p.existing)
	}
	return p.MaintainSelectors && len(p.Desired.Selector) > 0
}

// dropsSelector reports whether the existing Service has a selector that has to
// be removed.
func (p *importer) dropsSelector() bool {
	return p.existing != nil && len(p.existing.Spec.Selector) > 0 && !p.maintains()
}

// selector is the selector of the derived Service. A selector is removed in two
// steps: first it is replaced by one that matches no pod, and, once Kubernetes has
// emptied the slices of the old one, it is removed. Kubernetes does not update the
// slices of a Service without a selector, so their endpoints would stay for ever.
func (p *importer) selector() map[string]string {
	switch {
	case p.maintains() && p.Unsynced.Has(p.Self) && p.existing != nil:
		return p.existing.Spec.Selector
	case p.maintains():
		return p.Desired.Selector
	case !p.dropsSelector():
		return nil
	}
	filled := slices.ContainsFunc(p.Current.Slices, func(s *discoveryv1.EndpointSlice) bool { return p.isSelectors(s) && len(s.Endpoints) > 0 })
	if selectsNothing(p.existing) && !filled {
		return nil
	}
	return map[string]string{model.LabelSelectsNothing: "true"}
}

func selectsNothing(s *corev1.Service) bool {
	_, is := s.Spec.Selector[model.LabelSelectsNothing]
	return is && len(s.Spec.Selector) == 1
}

// target is the target port of port. It matters only with a selector: Comity's
// slices hold port numbers.
func (p *importer) target(port mcsv1beta1.ServicePort) intstr.IntOrString {
	t, found := model.Find(p.Desired.Targets, func(t model.Target) bool { return t.Port == port.Port && t.Protocol == port.Protocol })
	if found && p.maintains() {
		return t.TargetPort
	}
	return intstr.FromInt32(port.Port)
}

// meta is the metadata that all objects of the import share.
func (p *importer) meta(name string) metav1.ObjectMeta {
	return objectMeta(p.Key.Namespace, name, map[string]string{model.LabelServiceName: p.Key.Name}, map[string]string{})
}

// proxyName is the name of port in the derived Service and its slices. A Service
// with several ports must name each of them, but the union of the unnamed port of
// one cluster and a named port of another contains an unnamed port.
func proxyName(port mcsv1beta1.ServicePort, all []mcsv1beta1.ServicePort) string {
	if port.Name != "" || len(all) < 2 {
		return port.Name
	}
	name := unnamed(port)
	for n := 2; slices.ContainsFunc(all, func(other mcsv1beta1.ServicePort) bool { return other.Name == name }); n++ {
		name = fmt.Sprintf("%s-%d", unnamed(port), n)
	}
	return name
}

// unnamed is the name of a port that has none.
func unnamed(port mcsv1beta1.ServicePort) string { return fmt.Sprintf("unnamed-%d", port.Port) }
