// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

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
	if source.AddressType != discoveryv1.AddressTypeIPv4 && source.AddressType != discoveryv1.AddressTypeIPv6 {
		return nil, false
	}
	ports, ok := sharedPorts(source, shared)
	if !ok {
		return nil, false
	}
	labels := map[string]string{
		labelHeadless:              "",
		discoveryv1.LabelManagedBy: model.ManagedBy,
		model.LabelExportNamespace: key.Namespace,
		model.LabelExportName:      key.Name,
	}
	for label, value := range source.Labels {
		if !model.ReservedLabel(label) {
			labels[label] = value
		}
	}
	return &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        model.RecordSliceName(source.Namespace, source.Name),
			Labels:      labels,
			Annotations: map[string]string{model.AnnotationSourceSlice: source.Name},
		},
		AddressType: source.AddressType,
		Endpoints:   copyEndpoints(source.Endpoints),
		Ports:       ports,
	}, true
}

// sharedPorts are the ports of a slice that are shared. It is false if a selection
// leaves none: to a reader, the addresses of a slice without ports are part of the
// export all the same.
func sharedPorts(source *discoveryv1.EndpointSlice, shared model.PortSelection) ([]discoveryv1.EndpointPort, bool) {
	if shared.All() {
		return source.Ports, true
	}
	ports := slices.DeleteFunc(slices.Clone(source.Ports), func(p discoveryv1.EndpointPort) bool {
		return p.Name == nil && !shared.Contains("") || p.Name != nil && !shared.Contains(*p.Name)
	})
	return ports, len(ports) > 0
}

// ShareSlice is source as this cluster itself imports it, with the ports that the export
// shares. It is false where CopySlice is. The slice is not changed.
func ShareSlice(source *discoveryv1.EndpointSlice, shared model.PortSelection) (*discoveryv1.EndpointSlice, bool) {
	ports, ok := sharedPorts(source, shared)
	if !ok || source.AddressType == discoveryv1.AddressTypeFQDN {
		return nil, false
	}
	if shared.All() {
		return source, true
	}
	out := *source
	out.Ports = ports
	return &out, true
}

func copyEndpoints(in []discoveryv1.Endpoint) []discoveryv1.Endpoint {
	out := make([]discoveryv1.Endpoint, len(in))
	for i := range in {
		out[i] = discoveryv1.Endpoint{
			Addresses:  in[i].Addresses,
			Conditions: in[i].Conditions,
			Hostname:   in[i].Hostname,
			Zone:       in[i].Zone,
		}
	}
	return out
}

// SliceKey returns the export that a published slice belongs to, and the name of the
// slice that was copied. It is false if one of them is missing or is not a valid
// name: such a slice belongs to no export.
func SliceKey(slice *discoveryv1.EndpointSlice) (key types.NamespacedName, source string, ok bool) {
	key = types.NamespacedName{
		Namespace: slice.Labels[model.LabelExportNamespace],
		Name:      slice.Labels[model.LabelExportName],
	}
	source = slice.Annotations[model.AnnotationSourceSlice]
	if len(validation.IsDNS1123Label(key.Namespace)) > 0 || len(validation.IsDNS1123Label(key.Name)) > 0 ||
		len(validation.IsDNS1123Subdomain(source)) > 0 {
		return types.NamespacedName{}, "", false
	}
	return key, source, true
}

// Limits of the EndpointSlice API.
const (
	maxEndpoints = 1000
	maxAddresses = 100
)

const (
	// maxSliceBytes is the maximal size of what is imported of one slice, in the form
	// in which etcd stores it. A slice of 1,000 endpoints with one address each has at
	// most 300 kB. etcd accepts objects of 1.5 MB, but the API server takes long for them.
	maxSliceBytes = 384 << 10
	// maxSliceAddresses is how many addresses are imported of one slice. Kubernetes
	// writes one for each endpoint, and kube-proxy uses only the first.
	maxSliceAddresses = 2 * maxEndpoints
	// maxSliceMetadata is what is read of a slice besides: names, and annotations, of
	// which those of others are left out if they are larger.
	maxSliceMetadata = 16 << 10
)

// BoundSlice returns a peer's slice with its first endpoints, as many as
// maxSliceBytes and maxSliceAddresses allow, and with how many it left out in
// model.AnnotationEndpointsLeftOut. A slice that is within both limits is returned
// itself. So what a peer publishes costs no more than that in a cache, and whenever
// it is read.
func BoundSlice(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	if slice.AddressType != discoveryv1.AddressTypeIPv4 && slice.AddressType != discoveryv1.AddressTypeIPv6 {
		return slice // nothing of it is imported, or it was bounded and is compact
	}
	fit := fitting(slice)
	left := len(slice.Endpoints) - fit
	if left == 0 && slice.Size() <= maxSliceBytes+maxSliceMetadata {
		return slice
	}
	out := *slice
	out.Endpoints = slices.Clone(slice.Endpoints[:fit]) // the others can be collected
	out.Annotations = map[string]string{model.AnnotationSourceSlice: slice.Annotations[model.AnnotationSourceSlice]}
	if left += leftOut(slice); left > 0 {
		out.Annotations[model.AnnotationEndpointsLeftOut] = strconv.Itoa(left)
	}
	return &out
}

// fitting is how many of the endpoints are within the limits. Annotations, which are
// not imported, do not count.
func fitting(slice *discoveryv1.EndpointSlice) int {
	others := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Labels: slice.Labels}, Ports: slice.Ports}
	size, addresses := others.Size(), 0
	for i := range slice.Endpoints {
		const frame = 8 // at most, around one element of a list
		size += slice.Endpoints[i].Size() + frame
		addresses += len(slice.Endpoints[i].Addresses)
		if size > maxSliceBytes || addresses > maxSliceAddresses {
			return i
		}
	}
	return len(slice.Endpoints)
}

// leftOut is how many endpoints BoundSlice left out of a slice; 0 if a peer wrote
// something else into the annotation.
func leftOut(slice *discoveryv1.EndpointSlice) int {
	n, err := strconv.ParseUint(slice.Annotations[model.AnnotationEndpointsLeftOut], 10, 16)
	if err != nil {
		return 0
	}
	return int(n)
}

// CleanSlice returns the parts of a peer's slice that may be imported, and a report
// on the rest, what BoundSlice left out of it included. The API server would refuse
// the whole slice for one invalid address.
// A slice that is valid is returned itself; nil means that nothing of it can be
// imported. The slice is not changed.
func CleanSlice(slice *discoveryv1.EndpointSlice, filter Filter) (*discoveryv1.EndpointSlice, Report) {
	c := cleaner{filter: &filter, slice: slice}
	if slice.AddressType != discoveryv1.AddressTypeIPv4 && slice.AddressType != discoveryv1.AddressTypeIPv6 {
		c.report.add(slice, reasonInvalid, string(slice.AddressType), "addressType")
		return nil, c.report
	}
	if len(slice.Endpoints) > maxEndpoints {
		c.report.add(slice, reasonInvalid, fmt.Sprintf("%d endpoints", len(slice.Endpoints)), "endpoints")
		return nil, c.report
	}
	if _, _, ok := SliceKey(slice); !ok {
		c.report.add(slice, reasonInvalid, slice.Annotations[model.AnnotationSourceSlice], "metadata")
		return nil, c.report
	}
	if left := leftOut(slice); left > 0 {
		c.report.add(slice, reasonTooLarge, fmt.Sprintf("%d of %d endpoints", left, left+len(slice.Endpoints)), "endpoints")
	}
	labels, endpoints, ports := c.labels(), c.endpoints(), c.ports()
	if c.report.Total == 0 {
		return slice, c.report
	}
	clean := *slice
	clean.Labels, clean.Endpoints, clean.Ports = labels, endpoints, ports
	clean.Annotations = maps.Clone(slice.Annotations)
	delete(clean.Annotations, model.AnnotationEndpointsLeftOut)
	return &clean, c.report
}

// cleaner cleans one slice. Its methods return lists and maps that are valid
// without copying them.
type cleaner struct {
	filter *Filter
	slice  *discoveryv1.EndpointSlice
	report Report
	zone   string // the last valid one: most endpoints share a few zones
}

func (c *cleaner) bad(reason, value, format string, args ...any) {
	c.report.add(c.slice, reason, value, format, args...)
}

// labels keeps the labels that the API server accepts. The labels that name the
// export were checked before.
func (c *cleaner) labels() map[string]string {
	in := c.slice.Labels
	if checkMap("", in, validation.IsQualifiedName, validation.IsValidLabelValue) == nil {
		return in
	}
	out := map[string]string{
		model.LabelExportNamespace: in[model.LabelExportNamespace],
		model.LabelExportName:      in[model.LabelExportName],
	}
	if len(in) > maxMapEntries {
		c.bad(reasonInvalid, fmt.Sprintf("%d labels", len(in)), "metadata.labels")
		return out
	}
	for _, key := range slices.Sorted(maps.Keys(in)) {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(in[key])) > 0 {
			c.bad(reasonInvalid, key, "metadata.labels")
			continue
		}
		out[key] = in[key]
	}
	return out
}

// endpoints keeps every endpoint that has a valid address.
func (c *cleaner) endpoints() []discoveryv1.Endpoint {
	out, copied := c.slice.Endpoints, false
	for i := range c.slice.Endpoints {
		endpoint, found := c.endpoint(i), c.report.Total > 0
		if found && !copied { // the first invalid part
			out, copied = append([]discoveryv1.Endpoint{}, c.slice.Endpoints[:i]...), true
		}
		if copied && len(endpoint.Addresses) > 0 {
			out = append(out, endpoint)
		}
	}
	return out
}

func (c *cleaner) endpoint(i int) discoveryv1.Endpoint {
	endpoint := c.slice.Endpoints[i]
	endpoint.Addresses = c.addresses(i, endpoint.Addresses)
	if len(endpoint.Addresses) == 0 {
		return endpoint
	}
	if name := endpoint.Hostname; name != nil && len(validation.IsDNS1123Label(*name)) > 0 {
		c.bad(reasonInvalid, *name, "endpoints[%d].hostname", i)
		endpoint.Hostname = nil
	}
	if zone := endpoint.Zone; zone != nil && *zone != c.zone {
		if len(validation.IsValidLabelValue(*zone)) > 0 {
			c.bad(reasonInvalid, *zone, "endpoints[%d].zone", i)
			endpoint.Zone = nil
		} else {
			c.zone = *zone
		}
	}
	return endpoint
}

func (c *cleaner) addresses(endpoint int, in []string) []string {
	if len(in) == 0 || len(in) > maxAddresses {
		c.bad(reasonInvalid, fmt.Sprintf("%d addresses", len(in)), "endpoints[%d].addresses", endpoint)
		return nil
	}
	out, copied := in, false
	for i, address := range in {
		p := c.filter.CheckAddress(c.slice.AddressType, address)
		switch {
		case p == AddressFine && copied:
			out = append(out, address)
		case p != AddressFine:
			c.bad(string(p), address, "endpoints[%d].addresses[%d]", endpoint, i)
			if !copied { // the first invalid address
				out, copied = append([]string{}, in[:i]...), true
			}
		}
	}
	return out
}

// ports keeps the ports that the EndpointSlice API allows.
func (c *cleaner) ports() []discoveryv1.EndpointPort {
	in := c.slice.Ports
	if len(in) > maxPorts {
		c.bad(reasonInvalid, fmt.Sprintf("%d ports", len(in)), "ports")
		return nil
	}
	out := make([]discoveryv1.EndpointPort, 0, len(in))
	names := make(map[string]bool, len(in))
	for i := range in {
		port := in[i]
		name := ""
		if port.Name != nil {
			name = *port.Name
		}
		if names[name] || !portFine(&port, name) {
			c.bad(reasonInvalid, name, "ports[%d]", i)
			continue
		}
		names[name] = true
		out = append(out, port)
	}
	return out
}

func portFine(port *discoveryv1.EndpointPort, name string) bool {
	if name != "" && len(validation.IsDNS1123Label(name)) > 0 {
		return false
	}
	if port.Port != nil && (*port.Port < 1 || *port.Port > 65535) {
		return false
	}
	if p := port.Protocol; p != nil && *p != "" && *p != corev1.ProtocolTCP && *p != corev1.ProtocolUDP && *p != corev1.ProtocolSCTP {
		return false
	}
	return port.AppProtocol == nil || len(validation.IsQualifiedName(*port.AppProtocol)) == 0
}
