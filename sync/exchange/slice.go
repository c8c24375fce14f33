// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/sync/model"
)

// labelHeadless excludes a slice from the watch of kube-proxy, which needs no copies
// in the exchange. No other label does.
const labelHeadless = "service.kubernetes.io/headless"

// CopySlice returns the copy to publish of source, a slice of the exported Service
// key, with the ports that the export shares. It has no node names, object references
// and hints, which are meaningless in other clusters, and no labels that other
// controllers read. It is false for a slice of host names, which KEP-1645 does not
// export, and for one without a port that is shared.
func CopySlice(key types.NamespacedName, source *discoveryv1.EndpointSlice, shared model.PortSelection) (*discoveryv1.EndpointSlice, bool) {
	source, ok := ShareSlice(source, shared)
	if !ok {
		return nil, false
	}
	labels := map[string]string{
		labelHeadless:              "",
		discoveryv1.LabelManagedBy: model.ManagedBy,
		model.LabelExportNamespace: key.Namespace,
		model.LabelExportName:      key.Name,
	}
	maps.Copy(labels, model.Unreserved(source.Labels))
	return &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        model.RecordSliceName(source.Namespace, source.Name),
			Labels:      labels,
			Annotations: map[string]string{model.AnnotationSourceSlice: source.Name},
		},
		AddressType: source.AddressType,
		Endpoints:   Portable(source.Endpoints),
		Ports:       source.Ports,
	}, true
}

// hasIPs reports whether the addresses of a slice are IP addresses.
func hasIPs(slice *discoveryv1.EndpointSlice) bool {
	return slice.AddressType == discoveryv1.AddressTypeIPv4 || slice.AddressType == discoveryv1.AddressTypeIPv6
}

// ShareSlice is source as this cluster itself imports it, with the ports that the export
// shares. It is false where CopySlice is, also if a selection leaves no port: to a reader,
// the addresses of a slice without ports are part of the export all the same. The slice is
// not changed.
func ShareSlice(source *discoveryv1.EndpointSlice, shared model.PortSelection) (*discoveryv1.EndpointSlice, bool) {
	if shared.All() {
		return source, hasIPs(source)
	}
	out := *source
	out.Ports = model.Without(source.Ports, func(p discoveryv1.EndpointPort) bool { return !shared.Contains(ptr.Deref(p.Name, "")) })
	return &out, hasIPs(source) && len(out.Ports) > 0
}

// Portable are endpoints with what means something in other clusters: hostnames, zones and
// conditions, but no nodes, references to Pods and hints.
func Portable(in []discoveryv1.Endpoint) []discoveryv1.Endpoint {
	out := make([]discoveryv1.Endpoint, len(in))
	for i, e := range in {
		out[i] = discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, Hostname: e.Hostname, Zone: e.Zone}
	}
	return out
}

// SliceKey returns the export that a published slice belongs to, and the name of the
// slice that was copied. It is false if one of them is missing or is not a valid
// name: such a slice belongs to no export.
func SliceKey(slice *discoveryv1.EndpointSlice) (key types.NamespacedName, source string, ok bool) {
	key, _ = model.LabeledExport(slice.Labels)
	source = slice.Annotations[model.AnnotationSourceSlice]
	if !isLabel(key.Namespace) || !isLabel(key.Name) || len(validation.IsDNS1123Subdomain(source)) > 0 {
		return types.NamespacedName{}, "", false
	}
	return key, source, true
}

const (
	// maxEndpoints is how many endpoints one copy has: as many as Kubernetes writes into
	// one slice by default, so that a change of one endpoint writes a small object.
	maxEndpoints = 100
	// maxAddresses is a limit of the EndpointSlice API.
	maxAddresses = 100
)

const (
	// maxSliceBytes is the maximal size of a slice of which anything is imported, in the
	// form in which etcd stores it. A copy of 100 endpoints with one address each, with the
	// longest names of hosts and zones, and 100 ports, has less. etcd accepts objects of
	// 1.5 MB, but the API server takes long for them.
	maxSliceBytes = 64 << 10
	// maxSliceAddresses is the maximal number of its addresses. Kubernetes writes one for
	// each endpoint, and kube-proxy uses only the first.
	maxSliceAddresses = 2 * maxEndpoints
)

// tooLarge is the type of a slice that BoundSlice reduced. Kubernetes has no such type.
const tooLarge discoveryv1.AddressType = "comity.dev/too-large"

// BoundSlice returns a peer's slice if it is within maxSliceBytes and maxSliceAddresses,
// and else only what identifies it, so that CleanSlice names it: no honest slice is as
// large. So what a peer publishes costs no more than that in a cache, and whenever it
// is read.
func BoundSlice(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	addresses := 0
	for i := range slice.Endpoints {
		addresses += len(slice.Endpoints[i].Addresses)
	}
	if slice.Size() <= maxSliceBytes && addresses <= maxSliceAddresses {
		return slice
	}
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: slice.Namespace, Name: slice.Name, ResourceVersion: slice.ResourceVersion, CreationTimestamp: slice.CreationTimestamp,
			Labels: map[string]string{
				model.LabelExportNamespace: slice.Labels[model.LabelExportNamespace],
				model.LabelExportName:      slice.Labels[model.LabelExportName],
			},
			Annotations: map[string]string{model.AnnotationSourceSlice: slice.Annotations[model.AnnotationSourceSlice]},
		},
		AddressType: tooLarge,
	}
}

// CleanSlice returns the parts of a peer's slice that may be imported, and a report
// on the rest. The API server would refuse the whole slice for one invalid address.
// A slice that is valid is returned itself; nil means that nothing of it can be
// imported. The slice is not changed.
func CleanSlice(slice *discoveryv1.EndpointSlice, filter Filter) (*discoveryv1.EndpointSlice, Report) {
	c := cleaner{filter: &filter, slice: slice}
	_, source, ok := SliceKey(slice)
	switch {
	case slice.AddressType == tooLarge:
		c.drop(model.ReasonLimitExceeded, source, "endpoints")
	case !hasIPs(slice):
		c.drop(model.ReasonInvalidEndpoints, string(slice.AddressType), "addressType")
	case len(slice.Endpoints) > maxEndpoints:
		c.drop(model.ReasonInvalidEndpoints, fmt.Sprintf("%d endpoints", len(slice.Endpoints)), "endpoints")
	case !ok:
		c.drop(model.ReasonInvalidEndpoints, slice.Annotations[model.AnnotationSourceSlice], "metadata")
	}
	if c.report != nil {
		return nil, c.report
	}
	clean := *slice
	clean.Labels, clean.Endpoints, clean.Ports = c.labels(), c.endpoints(), c.ports()
	if c.report == nil {
		return slice, nil
	}
	return &clean, c.report
}

// cleaner cleans one slice.
type cleaner struct {
	filter *Filter
	slice  *discoveryv1.EndpointSlice
	report Report
	zone   string // the last valid one: most endpoints share a few zones
}

// drop reports a part that is left out.
func (c *cleaner) drop(reason, value, format string, args ...any) {
	if c.report == nil {
		c.report = Report{}
	}
	d := c.report[reason]
	if d.Count++; d.Count == 1 {
		d.First = fmt.Sprintf("%s (%s, %s)", model.Quote(value), model.OneLine(c.slice.Name, 64), fmt.Sprintf(format, args...))
	}
	c.report[reason] = d
}

// labels keeps the labels that the API server accepts, if there are not too many; else those
// that name the export, which were checked before.
func (c *cleaner) labels() map[string]string {
	out := maps.Clone(c.slice.Labels)
	isOfExport := func(key string) bool { return key == model.LabelExportNamespace || key == model.LabelExportName }
	isInvalid := func(key, value string) bool { return len(validation.IsQualifiedName(key)) > 0 || !isLabelValue(value) }
	maps.DeleteFunc(out, func(key, value string) bool {
		return !isOfExport(key) && (len(c.slice.Labels) > maxMapEntries || isInvalid(key, value))
	})
	if dropped := sets.List(sets.KeySet(c.slice.Labels).Difference(sets.KeySet(out))); len(dropped) > 0 {
		c.drop(model.ReasonInvalidEndpoints, dropped[0], "metadata.labels")
	}
	return out
}

// endpoints keeps every endpoint that has a valid address, and whose hostname and zone are valid.
func (c *cleaner) endpoints() []discoveryv1.Endpoint {
	out := make([]discoveryv1.Endpoint, 0, len(c.slice.Endpoints))
	for i, endpoint := range c.slice.Endpoints {
		if endpoint.Addresses = c.addresses(i, endpoint.Addresses); len(endpoint.Addresses) == 0 {
			continue
		}
		hostname, zone := ptr.Deref(endpoint.Hostname, "host"), ptr.Deref(endpoint.Zone, c.zone)
		if !isLabel(hostname) || zone != c.zone && !isLabelValue(zone) {
			c.drop(model.ReasonInvalidEndpoints, hostname+" in "+zone, "endpoints[%d], hostname and zone", i)
			continue
		}
		c.zone = zone
		out = append(out, endpoint)
	}
	return out
}

// addresses keeps the valid addresses of an endpoint.
func (c *cleaner) addresses(endpoint int, in []string) []string {
	if len(in) == 0 || len(in) > maxAddresses {
		c.drop(model.ReasonInvalidEndpoints, fmt.Sprintf("%d addresses", len(in)), "endpoints[%d].addresses", endpoint)
		return nil
	}
	isDropped := func(address string) bool { return c.filter.CheckAddress(c.slice.AddressType, address) != "" }
	if !slices.ContainsFunc(in, isDropped) {
		return in // nearly always, and without garbage
	}
	for i, address := range in {
		if reason := c.filter.CheckAddress(c.slice.AddressType, address); reason != "" {
			c.drop(reason, address, "endpoints[%d].addresses[%d]", endpoint, i)
		}
	}
	return model.Without(in, isDropped)
}

// ports keeps the ports that the EndpointSlice API allows.
func (c *cleaner) ports() []discoveryv1.EndpointPort {
	if len(c.slice.Ports) > maxPorts {
		c.drop(model.ReasonInvalidEndpoints, fmt.Sprintf("%d ports", len(c.slice.Ports)), "ports")
		return nil
	}
	out := make([]discoveryv1.EndpointPort, 0, len(c.slice.Ports))
	names := map[string]bool{}
	for i, port := range c.slice.Ports {
		name := ptr.Deref(port.Name, "")
		valid := !names[name] && (name == "" || isLabel(name)) && (port.Port == nil || isPort(*port.Port)) && isProtocol(ptr.Deref(port.Protocol, "")) &&
			(port.AppProtocol == nil || len(validation.IsQualifiedName(*port.AppProtocol)) == 0)
		if !valid {
			c.drop(model.ReasonInvalidEndpoints, name, "ports[%d]", i)
			continue
		}
		names[name] = true
		out = append(out, port)
	}
	return out
}

// Cut returns the copies to publish in place of one that has more endpoints than a copy may
// have: each counts as that of a slice of its own. Which one an endpoint is in depends on its
// addresses, and on how many endpoints there are about; so a change of one endpoint changes one copy.
func Cut(key types.NamespacedName, copied *discoveryv1.EndpointSlice) (out []*discoveryv1.EndpointSlice) {
	if len(copied.Endpoints) <= maxEndpoints {
		return []*discoveryv1.EndpointSlice{copied}
	}
	n := 2
	for 3*n*maxEndpoints < 4*len(copied.Endpoints) { // a quarter of the room is for those that come
		n *= 2
	}
	parts := map[int][]discoveryv1.Endpoint{}
	for _, endpoint := range copied.Endpoints {
		at := int(crc32.ChecksumIEEE([]byte(strings.Join(endpoint.Addresses, ",")))) % n
		for len(parts[at]) == maxEndpoints {
			at += n
		}
		parts[at] = append(parts[at], endpoint)
	}
	source := copied.Annotations[model.AnnotationSourceSlice]
	for _, at := range slices.Sorted(maps.Keys(parts)) {
		one := *copied
		one.Name, one.Endpoints = model.RecordSliceName(key.Namespace, partName(source, at)), parts[at]
		one.Annotations = map[string]string{model.AnnotationSourceSlice: partName(source, at)}
		out = append(out, &one)
	}
	return out
}

const partInfix = ".comity-"

// CutFrom is the name of the slice that a published slice, or a part of it, was copied from.
func CutFrom(name string) string {
	source, _, _ := strings.Cut(name, partInfix)
	return source
}

// partName is the name of the slice that part n of a copy counts as that of.
func partName(source string, n int) string {
	suffix := partInfix + strconv.Itoa(n)
	const longest = 253 // of a DNS subdomain
	return strings.TrimRight(source[:min(len(source), longest-len(suffix))], "-.") + suffix
}
