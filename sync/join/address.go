// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// Address is where an API server is reached, and the PEM bundle that verifies it.
type Address struct {
	Server string
	CAData []byte
	// Source says where the address is from, for a reader.
	Source string
}

// Candidates are the addresses by which the holder of a route may reach its
// peer, the best first: the one given; else the one that the holder has stored,
// then that of the kubeconfig, unless that is on loopback, which is the
// administrator's machine; then it is what the cluster states of itself. None
// of them has been tried. The error says what to pass instead.
func (p *Prepared) Candidates(ctx context.Context, r Route) ([]Address, error) {
	peer, holder := p.find(r.Peer), p.find(r.Holder)
	var all []Address
	if peer.Server == "" && len(peer.CAData) == 0 {
		secret, err := holder.secret(ctx, p.secretOf(r))
		if err != nil {
			return nil, holder.named(err)
		}
		// For this holder alone: no other member believes what is stored there. What cannot be used is written again.
		if config, fault := kubeconfig.Sanitize(secret.Data[KubeconfigKey]); fault == nil && len(config.CAData) > 0 {
			all = append(all, Address{config.Host, config.CAData, "stored by an earlier join"})
		}
	}
	more, err := peer.ownAddresses(ctx)
	if err != nil && len(all) == 0 {
		return nil, peer.named(err)
	}
	for _, a := range more {
		if !slices.ContainsFunc(all, func(b Address) bool { return a.Server == b.Server && string(a.CAData) == string(b.CAData) }) {
			all = append(all, a)
		}
	}
	return all, nil
}

// ownAddresses are those of m's API server as it is given, or as the kubeconfig or m itself
// states it, each with every authority that may have signed its certificate.
func (m *member) ownAddresses(ctx context.Context) (all []Address, err error) {
	base, _, err := rest.DefaultServerUrlFor(m.RESTConfig)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w", m.RESTConfig.Host, err)
	}
	host := strings.TrimRight(base.String(), "/")
	access := rest.CopyConfig(m.RESTConfig)
	if err := rest.LoadTLSFiles(access); err != nil {
		return nil, fmt.Errorf("read the files that the kubeconfig names: %w", err)
	}
	var root corev1.ConfigMap // what Pods of the cluster verify its API server with
	if err := m.get(ctx, metav1.NamespaceSystem, "kube-root-ca.crt", &root); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	given, cluster := Address{CAData: access.CAData, Source: "CA of the kubeconfig"}, Address{CAData: []byte(root.Data["ca.crt"]), Source: "CA of the cluster"}
	servers, authorities := []Address{{Server: host, Source: "from the kubeconfig"}}, []Address{given}
	switch {
	case m.Server != "":
		servers, authorities = []Address{{Server: m.Server, Source: "given by --server"}}, []Address{given, cluster}
	case onLoopback(host):
		if servers, err = m.statedServers(ctx); err != nil {
			return nil, err
		}
		authorities = []Address{cluster, given}
	}
	if len(m.CAData) > 0 {
		authorities = []Address{{CAData: m.CAData, Source: "CA given by --ca"}}
	}
	for _, server := range servers {
		if !kubeconfig.IsServer(server.Server) { // the other side's agent could not use it
			return nil, fmt.Errorf("server %q cannot be used by the other cluster; expected https://host:port", server.Server)
		}
		for _, by := range authorities {
			if len(by.CAData) > 0 {
				all = append(all, Address{strings.TrimRight(server.Server, "/"), by.CAData, server.Source + ", " + by.Source})
			}
		}
	}
	switch {
	case len(servers) == 0:
		err = fmt.Errorf("the kubeconfig names %s, which only this machine reaches; pass an address that the other clusters reach as --server %s=https://HOST:PORT", host, m.ID)
	case len(all) == 0:
		err = fmt.Errorf("no certificate authority for %s is known; pass the PEM bundle that verifies it with --ca %s=FILE", servers[0].Server, m.ID)
	}
	return all, err
}

// statedServers are those that the cluster states: the endpoint that kubeadm
// gave to all its nodes, then the endpoints of the Service kubernetes.
func (m *member) statedServers(ctx context.Context) ([]Address, error) {
	config, err := m.kubeadmConfig(ctx)
	if err != nil {
		return nil, err
	}
	var all []Address
	if endpoint := config.ControlPlaneEndpoint; endpoint != "" {
		if _, _, err := net.SplitHostPort(endpoint); err != nil {
			endpoint = net.JoinHostPort(strings.Trim(endpoint, "[]"), "6443")
		}
		all = append(all, Address{Server: "https://" + endpoint, Source: "kubeadm's control plane endpoint, since the kubeconfig's is on loopback"})
	}
	var found discoveryv1.EndpointSliceList
	if err := m.list(ctx, &found, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{discoveryv1.LabelServiceName: "kubernetes"}); err != nil {
		return nil, err
	}
	var endpoints []string
	for _, slice := range found.Items {
		for _, endpoint := range slice.Endpoints {
			for _, port := range slice.Ports {
				endpoints = append(endpoints, net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(ptr.Deref(port.Port, 443)))))
			}
		}
	}
	slices.Sort(endpoints)
	for _, endpoint := range endpoints {
		all = append(all, Address{Server: "https://" + endpoint, Source: "endpoint of Service default/kubernetes, since the kubeconfig's is on loopback"})
	}
	return slices.DeleteFunc(all, func(a Address) bool { return onLoopback(a.Server) }), nil
}

// onLoopback reports whether a URL leads to the machine that reads it.
func onLoopback(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	if u.Hostname() == "localhost" || strings.HasSuffix(u.Hostname(), ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err == nil && (ip.IsLoopback() || ip.IsUnspecified())
}
