// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// assigned are the fields of a Service that the API server sets where they are not applied.
var assigned = []string{"clusterIP", "clusterIPs", "ipFamilies", "internalTrafficPolicy", "externalTrafficPolicy", "healthCheckNodePort"}

// compareSpec compares the specs of an existing object and of the desired one, which are
// structs. It reports whether the existing one has all desired values, and returns the
// fields, set to nil, that others set and that are not desired. Fields that the API server
// assigns where they are not applied are compared only where they are desired.
func compareSpec[S any](current, desired *S, assigned ...string) (hasAll bool, strip map[string]any) {
	hasAll, strip = true, map[string]any{}
	was, is := reflect.ValueOf(current).Elem(), reflect.ValueOf(desired).Elem()
	for n := range is.NumField() {
		name, _, _ := strings.Cut(is.Type().Field(n).Tag.Get("json"), ",")
		switch {
		case !is.Field(n).IsZero():
			hasAll = hasAll && equality.Semantic.DeepEqual(was.Field(n).Interface(), is.Field(n).Interface())
		case !was.Field(n).IsZero() && !slices.Contains(assigned, name):
			strip[name] = nil
		}
	}
	return hasAll, strip
}

// serviceSpec is that of the derived Service.
func (p *importer) serviceSpec() corev1.ServiceSpec {
	policy := familyPolicy(p.families, p.Desired.IPFamilies)
	spec := *model.CopyFields(&corev1.ServiceSpec{}, &p.Desired.ServiceProperties)
	spec.Type, spec.Selector, spec.IPFamilies, spec.IPFamilyPolicy = corev1.ServiceTypeClusterIP, p.selector(), p.families, &policy
	spec.SessionAffinity = cmp.Or(spec.SessionAffinity, corev1.ServiceAffinityNone)
	if p.Desired.Type == mcsv1beta1.Headless { // otherwise the API server assigns one
		spec.ClusterIP = corev1.ClusterIPNone
	}
	for _, port := range p.ports {
		spec.Ports = append(spec.Ports, corev1.ServicePort{
			Name: proxyName(port, p.ports), Protocol: port.Protocol, AppProtocol: port.AppProtocol, Port: port.Port, TargetPort: p.target(port),
		})
	}
	return spec
}

// compareService is compareSpec of a derived Service. The API server merges its ports by
// number and protocol, and fills in node ports; a merge patch replaces all of them.
func compareService(current, desired *corev1.ServiceSpec) (hasAll bool, strip map[string]any) {
	merged := *current
	isMissing := func(want corev1.ServicePort) bool {
		return !slices.ContainsFunc(current.Ports, func(port corev1.ServicePort) bool {
			port.NodePort = 0
			return equality.Semantic.DeepEqual(port, want)
		})
	}
	isSurplus := func(port corev1.ServicePort) bool {
		return !slices.ContainsFunc(desired.Ports, func(want corev1.ServicePort) bool {
			return want.Port == port.Port && want.Protocol == port.Protocol && (port.AppProtocol == nil || want.AppProtocol != nil)
		})
	}
	if !slices.ContainsFunc(desired.Ports, isMissing) {
		merged.Ports = desired.Ports
	}
	hasAll, strip = compareSpec(&merged, desired, assigned...)
	if slices.ContainsFunc(current.Ports, isSurplus) {
		strip["ports"] = desired.Ports
	}
	if current.Type != desired.Type { // a removal, as that of source ranges, can be valid only with the new type
		strip["type"] = desired.Type
	}
	if _, strips := strip["sessionAffinityConfig"]; strips { // nor is this with another affinity
		strip["sessionAffinity"] = desired.SessionAffinity
	}
	return hasAll, strip
}

// importSpec is that of the ServiceImport. Its ports are required: without any it is an
// empty list.
func (p *importer) importSpec() mcsv1beta1.ServiceImportSpec {
	spec := *model.CopyFields(&mcsv1beta1.ServiceImportSpec{}, &p.Desired.ServiceProperties)
	spec.Type, spec.Ports, spec.IPs, spec.IPFamilies = p.importType(), append([]mcsv1beta1.ServicePort{}, p.ports...), p.importIPs(), nil
	if p.existing != nil {
		spec.IPFamilies = slices.Clone(p.existing.Spec.IPFamilies)
	}
	return spec
}

// Which IP families a derived Service gets. KEP-1645, "ClusterSet VIP", leaves
// the choice to the implementation. Kubernetes lets the second family of a
// Service be added and removed. The first family cannot change, because it is
// the family of the first cluster IP.

// supportedFamilies returns the families of the import (wanted) that this
// cluster supports, in the import's order. If both are supported and an existing
// Service has them in the other order, that order stays, and so does the first
// clusterset IP. The result is nil if the families of the import or of the
// cluster are unknown: then the API server chooses. It is empty, but not nil, if
// no family is supported.
func supportedFamilies(wanted, supported, existing []corev1.IPFamily) []corev1.IPFamily {
	if len(wanted) == 0 || len(supported) == 0 {
		return nil
	}
	families := model.Without(wanted, func(f corev1.IPFamily) bool { return !slices.Contains(supported, f) })
	if len(families) == 2 && len(existing) > 0 && families[1] == existing[0] {
		slices.Reverse(families)
	}
	return families
}

// familyPolicy returns the ipFamilyPolicy for the supported families, or for
// the wanted ones if the families of the cluster are unknown. PreferDualStack
// has the same effect as RequireDualStack when both families are named, and
// stays valid if the cluster loses one of them.
func familyPolicy(supported, wanted []corev1.IPFamily) corev1.IPFamilyPolicy {
	if supported == nil {
		supported = wanted
	}
	if len(supported) > 1 {
		return corev1.IPFamilyPolicyPreferDualStack
	}
	return corev1.IPFamilyPolicySingleStack
}

// losesFirstFamily reports whether the first of the existing families is not
// among the desired ones. A Service with a cluster IP then has to be replaced.
func losesFirstFamily(existing, desired []corev1.IPFamily) bool {
	return len(existing) > 0 && len(desired) > 0 && !slices.Contains(desired, existing[0])
}

var importKind = metav1.TypeMeta{APIVersion: mcsv1beta1.GroupVersion.String(), Kind: mcsv1beta1.ServiceImportKindName}

// serviceImport plans the ServiceImport. The addresses of the derived Service
// have to be known.
func (p *importer) serviceImport() []Action {
	existing := p.own
	if existing != nil && p.Frozen && slices.Equal(existing.Spec.IPs, p.importIPs()) {
		return p.annotateList(&mcsv1beta1.ServiceImport{TypeMeta: importKind}, existing)
	}
	s := &mcsv1beta1.ServiceImport{TypeMeta: importKind, ObjectMeta: p.meta(p.Key.Name), Spec: p.importSpec()}
	// Comity's labels and annotations overwrite those that a user exports.
	maps.Copy(s.Labels, p.Desired.Labels)
	s.Labels[model.LabelServiceName] = p.Key.Name
	s.Labels[labelManagedBy] = model.ManagedBy
	maps.Copy(s.Annotations, p.Desired.Annotations)
	delete(s.Annotations, model.AnnotationConfirmTakeover) // only users of this cluster confirm
	s.Annotations[model.AnnotationList] = p.List.String()
	if p.existing != nil {
		s.Annotations[model.AnnotationDerivedName] = p.name
	}
	desired := sign(s)
	if existing == nil {
		return []Action{create(desired)}
	}
	hasAll, strip := compareSpec(&existing.Spec, &desired.Spec)
	return asRead(existing, updateOrAdopt(desired, existing, hasAll, strayPatch(existing, desired, strip)))
}

// importType is the type of the derived Service, which clients use. It differs
// from the desired type only where the Service is kept because the export that decides
// was not read. Without a Service, because this cluster supports none of the import's IP
// families or no name is free, the ServiceImport has the desired type and no
// address. DNS then answers that the name has no addresses. Without the
// ServiceImport it would answer that the name does not exist, and resolvers
// would cache that.
func (p *importer) importType() mcsv1beta1.ServiceImportType {
	if p.existing == nil {
		return p.Desired.Type
	}
	return model.ImportType(p.existing)
}

// importIPs are the cluster IPs of the derived Service; none if it is headless.
func (p *importer) importIPs() []string {
	if p.existing == nil || p.importType() == mcsv1beta1.Headless {
		return nil
	}
	return slices.Clone(p.existing.Spec.ClusterIPs)
}
