// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// endpointOf is the protocol and number of a port, which have to be unique in a
// Service.
func endpointOf(p mcsv1beta1.ServicePort) mcsv1beta1.ServicePort {
	return mcsv1beta1.ServicePort{Protocol: p.Protocol, Port: p.Port}
}

// UnionOfPorts merges the ports that exports declare, the oldest export first, by name and
// then by protocol and number (KEP-1645, "Service Port").
//
// The steps are separate: first the oldest definition of each name is chosen, then
// the oldest name of each protocol and number. In one step, a name could get a
// younger definition because its oldest one lost to a port of another name.
func UnionOfPorts(declared []mcsv1beta1.ServicePort) []mcsv1beta1.ServicePort {
	return firstOfEach(firstOfEach(declared, nameOf), endpointOf)
}

func nameOf(p mcsv1beta1.ServicePort) string { return p.Name }

// firstOfEach are the ports of which no earlier one has the same key.
func firstOfEach[K comparable](ports []mcsv1beta1.ServicePort, key func(mcsv1beta1.ServicePort) K) []mcsv1beta1.ServicePort {
	seen := map[K]bool{}
	return model.Without(ports, func(p mcsv1beta1.ServicePort) bool {
		repeated := seen[key(p)]
		seen[key(p)] = true
		return repeated
	})
}

// StrictPorts are the declared ports that are also resolved, with the same name,
// protocol and number. Only on these may the constituent receive traffic. A
// different appProtocol is allowed: it is a hint.
func StrictPorts(declared, resolved []mcsv1beta1.ServicePort) []mcsv1beta1.ServicePort {
	var strict []mcsv1beta1.ServicePort
	for _, p := range declared {
		if slices.ContainsFunc(resolved, func(r mcsv1beta1.ServicePort) bool { return r.Name == p.Name && endpointOf(r) == endpointOf(p) }) {
			strict = append(strict, p)
		}
	}
	return strict
}

// portsDisagree has a sentence for each port name whose definition is not the same in all
// exports, in the order in which the names first occur; it is empty if there is none.
func portsDisagree(alone []*model.Import, resolved *model.Import) string {
	var all []mcsv1beta1.ServicePort
	for _, i := range alone {
		all = append(all, i.Ports...)
	}
	var found []string
	for _, p := range firstOfEach(all, nameOf) {
		used, note := portInUse(p, alone, resolved.Ports)
		if text := disagreement(portTitle(p.Name), alone, func(i *model.Import) string { return showPort(i.Ports, p.Name) }, used, note); text != "" {
			found = append(found, text)
		}
	}
	if more := len(found) - maxDisagreements; more > 0 {
		found = append(found[:maxDisagreements], fmt.Sprintf("Further differences: %d.", more))
	}
	return strings.Join(found, " ")
}

// portInUse returns the value in use of the name that first defines, and why it is
// used; or, if another name has its number, which name.
func portInUse(first mcsv1beta1.ServicePort, alone []*model.Import, resolved []mcsv1beta1.ServicePort) (used, note string) {
	if slices.ContainsFunc(resolved, func(r mcsv1beta1.ServicePort) bool { return r.Name == first.Name }) {
		used = showPort(resolved, first.Name)
		if showPort(alone[0].Ports, first.Name) == used {
			return used, usedNote(alone)
		}
		return used, "used"
	}
	taken, _ := model.Find(resolved, func(r mcsv1beta1.ServicePort) bool { return endpointOf(r) == endpointOf(first) })
	return showPort([]mcsv1beta1.ServicePort{first}, first.Name), fmt.Sprintf("not used: %d/%s is %s", taken.Port, taken.Protocol, portTitle(taken.Name))
}

// showPort is the text of the port called name, with all of its properties; "absent" if there
// is none.
func showPort(ports []mcsv1beta1.ServicePort, name string) string {
	p, found := model.Find(ports, func(p mcsv1beta1.ServicePort) bool { return p.Name == name })
	if !found {
		return "absent" // differs from the text of every port, because those begin with a number
	}
	text := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	if p.AppProtocol != nil {
		text += fmt.Sprintf(" with appProtocol %q", *p.AppProtocol)
	}
	return text
}

func portTitle(name string) string {
	if name == "" {
		return "the unnamed port"
	}
	return fmt.Sprintf("port %q", name)
}

// ResolveInOrder returns the import that results from the exports of one Service, and the
// conflicts among them. Each export counts as older than those behind it; they are those of
// OldestFirst, in any order. The import is nil if there is no export. The messages of all
// conflicts together have at most MaxMessages bytes.
func ResolveInOrder(ordered []model.Export) (*model.Import, []model.Conflict) {
	if len(ordered) == 0 {
		return nil, nil
	}
	resolved := Resolve(ordered)
	return resolved, conflicts(ordered, resolved)
}

// Resolve is the import of ResolveInOrder without the conflicts, of one export at least.
func Resolve(ordered []model.Export) *model.Import {
	var declared []mcsv1beta1.ServicePort
	for _, e := range ordered {
		declared = append(declared, e.Ports...)
	}
	oldest := ordered[0]
	// KEP-1645 does not define tiers, selector and targets, so it has no conflict reason for them;
	// that of tiers is in KEP-5939. The value of the oldest export is used, too.
	resolved := &model.Import{Key: oldest.Key, ServiceProperties: oldest.ServiceProperties, Targets: oldest.Targets}
	resolved.Ports = UnionOfPorts(declared)
	// KEP-1645 leaves the choice of IP families to implementations. Those that all exports have
	// in common would reach every cluster. But then a younger export could remove an address that
	// clients use, and a conflict must not interrupt traffic. So the oldest export that has any
	// decides here, too, and IPFamilyConflict names the clusters that do not get traffic of one.
	withFamilies, _ := model.Find(ordered, func(e model.Export) bool { return len(e.IPFamilies) > 0 })
	resolved.IPFamilies = withFamilies.IPFamilies
	ClearUnserved(&resolved.ServiceProperties)
	for _, e := range ordered {
		resolved.Constituents = append(resolved.Constituents, model.Constituent{
			SourceExport: e.SourceExport, Ports: StrictPorts(e.Ports, resolved.Ports), Declared: e.Ports,
		})
	}
	return resolved
}

// ClearUnserved removes from the properties of a headless import those that configure
// kube-proxy, which does not serve headless Services.
func ClearUnserved(p *model.ServiceProperties) {
	if p.Type == mcsv1beta1.Headless {
		p.SessionAffinity, p.SessionAffinityConfig, p.InternalTrafficPolicy, p.TrafficDistribution = "", nil, nil, nil
	}
}

// OldestFirst sorts the exports by precedence, and sets defaults. Of each cluster there is one
// (exchange.Newest), also while the audience of its export changes.
func OldestFirst(exports []model.Export) []model.Export {
	ordered := model.Map(exports, WithDefaults)
	slices.SortFunc(ordered, func(a, b model.Export) int { return a.CompareAge(b.SourceExport) })
	return ordered
}

// WithDefaults sets the defaults of the API, so that an export that omits a value
// agrees with one that sets it to the default.
func WithDefaults(e model.Export) model.Export {
	e.Ports = slices.Clone(e.Ports)
	for i := range e.Ports {
		e.Ports[i].Protocol = cmp.Or(e.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	if e.Type == mcsv1beta1.Headless {
		return e
	}
	e.SessionAffinity = cmp.Or(e.SessionAffinity, corev1.ServiceAffinityNone)
	if e.SessionAffinity == corev1.ServiceAffinityNone {
		e.SessionAffinityConfig = nil // means nothing without an affinity
	} else if timeout(e.SessionAffinityConfig) == nil {
		e.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(corev1.DefaultClientIPServiceAffinitySeconds)}}
	}
	if e.InternalTrafficPolicy == nil {
		e.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
	}
	return e
}

// timeout is the affinity timeout in seconds; nil if none is set.
func timeout(config *corev1.SessionAffinityConfig) *int32 {
	if config == nil || config.ClientIP == nil {
		return nil
	}
	return config.ClientIP.TimeoutSeconds
}
