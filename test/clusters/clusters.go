// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package clusters is what the two kinds of real test cluster have in common:
// control planes as plain processes (controlplane) and kind (kind).
//
// It gives the interface that demo, end-to-end and fault tests are written
// against, the network plan, and helpers that apply manifests and make
// kubeconfigs for service accounts. It starts and stops nothing by itself.
package clusters

import (
	"fmt"
	"net/netip"

	"k8s.io/client-go/rest"
)

// Cluster is one running cluster.
type Cluster interface {
	// ID is the cluster id in the clusterset, an RFC 1123 label.
	ID() string
	// Kubeconfig is the path of a kubeconfig for an administrator on this machine.
	// Everything is inlined: it names no other file.
	Kubeconfig() string
	// RESTConfig is the same as a value; the caller may change it.
	RESTConfig() *rest.Config
	// PeerServer is the URL at which Comity in another cluster of the set reaches the API server,
	// with the certificate authority of RESTConfig.
	PeerServer() string
	// Network says which addresses Pods and Services get; disjoint among the clusters of a set.
	Network() Network
	// DNSAddress is host:port, UDP and TCP, of the cluster's CoreDNS as seen from this machine; empty without CoreDNS.
	DNSAddress() string
	// Close ends the cluster and removes what it kept on disk.
	Close() error
}

// Network is the address plan of one cluster, IPv4 first.
type Network struct {
	PodCIDRs     []netip.Prefix
	ServiceCIDRs []netip.Prefix
}

// MaxClusters bounds the clusters of one set by their address plan.
const MaxClusters = 50

// Family says which IP families Pods and Services have. It is a flag's value.
type Family string

// The families.
const (
	IPv4      Family = "ipv4"
	IPv6      Family = "ipv6"
	DualStack Family = "dual"
)

// String, Set and Type implement pflag.Value.
func (f *Family) String() string { return string(*f) }

// Set takes the name of a family.
func (f *Family) Set(text string) error {
	switch given := Family(text); given {
	case IPv4, IPv6, DualStack:
		*f = given
		return nil
	}
	return fmt.Errorf("%q is no family of addresses: expected %s, %s or %s", text, IPv4, IPv6, DualStack)
}

// Type is what the help calls the value.
func (f *Family) Type() string { return "family" }

// NetworkOf is the plan of the n-th cluster, counted from 1: for IPv4, Pods in 10.(100+n).0.0/16 and
// Services in 10.(200+n).0.0/16; for IPv6, fd00:100:n::/48 and fd00:200:n::/108.
func NetworkOf(n int, family Family) (Network, error) {
	if n < 1 || n > MaxClusters {
		return Network{}, fmt.Errorf("cluster number %d has no network: it must be from 1 to %d", n, MaxClusters)
	}
	var network Network
	if family != IPv6 {
		network.PodCIDRs = append(network.PodCIDRs, netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", 100+n)))
		network.ServiceCIDRs = append(network.ServiceCIDRs, netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", 200+n)))
	}
	if family != IPv4 {
		network.PodCIDRs = append(network.PodCIDRs, netip.MustParsePrefix(fmt.Sprintf("fd00:100:%x::/48", n)))
		network.ServiceCIDRs = append(network.ServiceCIDRs, netip.MustParsePrefix(fmt.Sprintf("fd00:200:%x::/108", n)))
	}
	return network, nil
}

// AnyAddress is what a member accepts from peers whose endpoints a test invents.
func AnyAddress() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
}

// IDs names count clusters a, b, c, ..., z, c27, c28, ...
func IDs(count int) []string {
	ids := make([]string, count)
	for i := range ids {
		ids[i] = fmt.Sprintf("c%d", i+1)
		if i < 26 {
			ids[i] = string(rune('a' + i))
		}
	}
	return ids
}
