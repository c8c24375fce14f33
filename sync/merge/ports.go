// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package merge

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/model"
)

// endpoint is the protocol and number of a port, which have to be unique in a
// Service.
type endpoint struct {
	protocol corev1.Protocol
	number   int32
}

func endpointOf(p mcsv1beta1.ServicePort) endpoint {
	return endpoint{protocol: p.Protocol, number: p.Port}
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

// firstOfEach are the items of list of which no earlier one has the same key.
func firstOfEach[T any, K comparable](list []T, key func(T) K) []T {
	seen := map[K]bool{}
	return slices.DeleteFunc(slices.Clone(list), func(item T) bool {
		repeated := seen[key(item)]
		seen[key(item)] = true
		return repeated
	})
}

// strictPorts are the declared ports that are also resolved, with the same name,
// protocol and number. Only on these may the constituent receive traffic. A
// different appProtocol is allowed: it is a hint.
func strictPorts(declared, resolved []mcsv1beta1.ServicePort) []mcsv1beta1.ServicePort {
	var strict []mcsv1beta1.ServicePort
	for _, p := range declared {
		if slices.ContainsFunc(resolved, func(r mcsv1beta1.ServicePort) bool {
			return r.Name == p.Name && endpointOf(r) == endpointOf(p)
		}) {
			strict = append(strict, p)
		}
	}
	return strict
}

// portsDisagree returns one disagreement for each port name whose definition is not
// the same in all exports, in the order in which the names first occur.
func portsDisagree(alone []*model.Import, resolved *model.Import) []disagreement {
	var all []mcsv1beta1.ServicePort
	for _, i := range alone {
		all = append(all, i.Ports...)
	}
	var found []disagreement
	for _, p := range firstOfEach(all, nameOf) {
		d := compare(portTitle(p.Name), alone, func(i *model.Import) string { return showPort(i.Ports, p.Name) })
		if len(d.values) > 1 {
			d.used, d.note = portInUse(p, alone, resolved.Ports)
			found = append(found, d)
		}
	}
	return found
}

// portInUse returns the value in use of the name that first defines, and why it is
// used; or, if another name has its number, which name.
func portInUse(first mcsv1beta1.ServicePort, alone []*model.Import, resolved []mcsv1beta1.ServicePort) (used, note string) {
	for _, r := range resolved {
		switch {
		case r.Name == first.Name:
			used = showPort([]mcsv1beta1.ServicePort{r}, r.Name)
			if showPort(alone[0].Ports, r.Name) == used {
				return used, usedNote(alone)
			}
			return used, "used"
		case endpointOf(r) == endpointOf(first):
			note = fmt.Sprintf("not used: %d/%s is %s", r.Port, r.Protocol, portTitle(r.Name))
		}
	}
	return showPort([]mcsv1beta1.ServicePort{first}, first.Name), note
}

// absent is the text for an export that has no port of a name. It differs from that
// of every port, because those begin with a number.
const absent = "absent"

// showPort is the text of the port called name, with all of its properties.
func showPort(ports []mcsv1beta1.ServicePort, name string) string {
	for _, p := range ports {
		if p.Name != name {
			continue
		}
		text := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
		if p.AppProtocol != nil {
			text += fmt.Sprintf(" with appProtocol %q", *p.AppProtocol)
		}
		return text
	}
	return absent
}

func portTitle(name string) string {
	if name == "" {
		return "the unnamed port"
	}
	return fmt.Sprintf("port %q", name)
}
