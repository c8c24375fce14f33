// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/comity-mcs/comity/sync/model"
)

// Limits of the EndpointSlice API.
const (
	maxEndpoints = 1000
	maxAddresses = 100
)

// maxDropped bounds what is told about one slice; the rest is only counted.
const maxDropped = 10

// Dropped is one part of a peer's slice that is not imported.
type Dropped struct {
	// Field is its path in the slice, such as endpoints[3].addresses[0].
	Field string
	// Value is what stood there, quoted and shortened.
	Value string
	// Reason is one word: an AddressProblem, or Invalid for any other part.
	Reason string
}

// Report is what CleanSlice left out: the first parts by name, and their number.
type Report struct {
	Dropped []Dropped
	Total   int
}

func (r *Report) add(reason, value, format string, args ...any) {
	r.Total++
	if len(r.Dropped) < maxDropped {
		r.Dropped = append(r.Dropped, Dropped{Field: fmt.Sprintf(format, args...), Value: quoteShort(value), Reason: reason})
	}
}

// reasonInvalid stands for a part that the EndpointSlice API does not allow.
const reasonInvalid = "Invalid"

// CleanSlice is what may be imported of a slice that a peer published. The API
// server refuses a whole slice for one bad address, so the bad parts are
// dropped and named and the good ones kept. A slice without a fault is returned
// as it is; nil means that nothing of it can be imported.
func CleanSlice(slice *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, Report) {
	var report Report
	if slice.AddressType != discoveryv1.AddressTypeIPv4 && slice.AddressType != discoveryv1.AddressTypeIPv6 {
		report.add(reasonInvalid, string(slice.AddressType), "addressType")
		return nil, report
	}
	if len(slice.Endpoints) > maxEndpoints {
		report.add(reasonInvalid, fmt.Sprintf("%d endpoints", len(slice.Endpoints)), "endpoints")
		return nil, report
	}
	if _, _, ok := SliceKey(slice); !ok {
		report.add(reasonInvalid, slice.Annotations[model.AnnotationSourceSlice], "metadata")
		return nil, report
	}
	endpoints := cleanEndpoints(slice.AddressType, slice.Endpoints, &report)
	ports := cleanPorts(slice.Ports, &report)
	if report.Total == 0 {
		return slice, report
	}
	clean := *slice
	clean.Endpoints, clean.Ports = endpoints, ports
	return &clean, report
}

// cleanEndpoints keeps every endpoint that has a usable address left.
func cleanEndpoints(family discoveryv1.AddressType, in []discoveryv1.Endpoint, report *Report) []discoveryv1.Endpoint {
	out := make([]discoveryv1.Endpoint, 0, len(in))
	for i := range in {
		endpoint := in[i]
		endpoint.Addresses = cleanAddresses(family, i, endpoint.Addresses, report)
		if len(endpoint.Addresses) == 0 {
			continue
		}
		if name := endpoint.Hostname; name != nil && len(validation.IsDNS1123Label(*name)) > 0 {
			report.add(reasonInvalid, *name, "endpoints[%d].hostname", i)
			endpoint.Hostname = nil
		}
		if zone := endpoint.Zone; zone != nil && len(validation.IsValidLabelValue(*zone)) > 0 {
			report.add(reasonInvalid, *zone, "endpoints[%d].zone", i)
			endpoint.Zone = nil
		}
		out = append(out, endpoint)
	}
	return out
}

func cleanAddresses(family discoveryv1.AddressType, endpoint int, in []string, report *Report) []string {
	if len(in) == 0 || len(in) > maxAddresses {
		report.add(reasonInvalid, fmt.Sprintf("%d addresses", len(in)), "endpoints[%d].addresses", endpoint)
		return nil
	}
	var bad []int
	for i, address := range in {
		if p := CheckAddress(family, address); p != AddressFine {
			report.add(string(p), address, "endpoints[%d].addresses[%d]", endpoint, i)
			bad = append(bad, i)
		}
	}
	if len(bad) == 0 {
		return in
	}
	out := make([]string, 0, len(in)-len(bad))
	for i, address := range in {
		if !slices.Contains(bad, i) {
			out = append(out, address)
		}
	}
	return out
}

// cleanPorts keeps the ports that the EndpointSlice API allows.
func cleanPorts(in []discoveryv1.EndpointPort, report *Report) []discoveryv1.EndpointPort {
	if len(in) > maxPorts {
		report.add(reasonInvalid, fmt.Sprintf("%d ports", len(in)), "ports")
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
			report.add(reasonInvalid, name, "ports[%d]", i)
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
