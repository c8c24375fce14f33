// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Candidates are the addresses by which the holder of a route may reach its
// peer, the best first: the one given; else the one that the holder has stored,
// then that of the kubeconfig, unless that is on loopback, which is the
// administrator's machine; then it is what the cluster states of itself. None
// of them has been tried. The error says what to pass instead.
func (p *Prepared) Candidates(ctx context.Context, r Route) ([]Address, error) {
	peer, holder := p.find(r.key().peer), p.find(r.Holder)
	if peer.Server != "" {
		return peer.givenAddresses(ctx)
	}
	var all []Address
	if len(peer.CAData) == 0 {
		stored, err := holder.storedAddress(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("cluster %s: %w", holder.ID, err)
		}
		all = append(all, stored...)
	}
	host, err := apiServerURL(peer.RESTConfig)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", peer.ID, err)
	}
	var more []Address
	if onLoopback(host) {
		more, err = peer.statedAddresses(ctx)
	} else {
		more, err = peer.kubeconfigAddress(host)
	}
	if err != nil && len(all) == 0 {
		return nil, fmt.Errorf("cluster %s: %w", peer.ID, err)
	}
	for _, a := range more {
		if !slices.ContainsFunc(all, func(b Address) bool { return a.Server == b.Server && string(a.CAData) == string(b.CAData) }) {
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("cluster %s: the kubeconfig names %s, which only this machine reaches, and the cluster states no address of its API server; "+
			"pass one that the other clusters reach as --server %s=https://HOST:PORT", peer.ID, host, peer.ID)
	}
	return all, nil
}

func apiServerURL(config *rest.Config) (string, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return "", fmt.Errorf("server %q: %w", config.Host, err)
	}
	return strings.TrimRight(base.String(), "/"), nil
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

// givenAddresses are those of Server, with every authority that may have signed
// its certificate.
func (m *member) givenAddresses(ctx context.Context) ([]Address, error) {
	if err := validateServer(m.Server); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", m.ID, err)
	}
	server := strings.TrimRight(m.Server, "/")
	if len(m.CAData) > 0 {
		return []Address{{server, m.CAData, "given by --server and --ca"}}, nil
	}
	own, err := kubeconfigCA(m.RESTConfig)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", m.ID, err)
	}
	cluster, err := m.clusterCA(ctx)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", m.ID, err)
	}
	var all []Address
	if len(own) > 0 {
		all = append(all, Address{server, own, "given by --server, CA of the kubeconfig"})
	}
	if len(cluster) > 0 && string(cluster) != string(own) {
		all = append(all, Address{server, cluster, "given by --server, CA of the cluster"})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("cluster %s: no certificate authority for %s is known; pass the PEM bundle that verifies it with --ca %s=FILE", m.ID, server, m.ID)
	}
	return all, nil
}

// storedAddress is the one by which holder reaches its peer now. It is used for
// this holder alone: no other member believes what is stored here.
func (m *member) storedAddress(ctx context.Context, r Route) ([]Address, error) {
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: m.Namespace, Name: secretOf(r)}
	if err := m.client.Get(ctx, key, &secret); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	config, err := clientcmd.Load(secret.Data[KubeconfigKey])
	if err != nil {
		return nil, nil //nolint:nilerr // a Secret that cannot be read is written again
	}
	for _, cluster := range config.Clusters {
		if len(config.Clusters) == 1 && validateServer(cluster.Server) == nil && len(cluster.CertificateAuthorityData) > 0 {
			return []Address{{cluster.Server, cluster.CertificateAuthorityData, "stored by an earlier join"}}, nil
		}
	}
	return nil, nil
}

func (m *member) kubeconfigAddress(server string) ([]Address, error) {
	if err := validateServer(server); err != nil {
		return nil, err
	}
	if len(m.CAData) > 0 {
		return []Address{{server, m.CAData, "from the kubeconfig, CA given by --ca"}}, nil
	}
	ca, err := kubeconfigCA(m.RESTConfig)
	if err != nil {
		return nil, err
	}
	if len(ca) == 0 {
		return nil, fmt.Errorf("the kubeconfig names no certificate authority for %s, so this machine's own store verifies it; the agents of other clusters do not have that store; "+
			"pass the PEM bundle that verifies it with --ca %s=FILE", server, m.ID)
	}
	return []Address{{server, ca, "from the kubeconfig"}}, nil
}

// kubeconfigCA is the authority in a kubeconfig; empty if the system's is used.
func kubeconfigCA(config *rest.Config) ([]byte, error) {
	if len(config.CAData) > 0 || config.CAFile == "" {
		return config.CAData, nil
	}
	data, err := os.ReadFile(config.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read its certificate authority: %w", err)
	}
	return data, nil
}

// clusterCA is the authority that Pods of the cluster verify its API server with.
func (m *member) clusterCA(ctx context.Context) ([]byte, error) {
	var stored corev1.ConfigMap
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kube-root-ca.crt"}
	if err := m.client.Get(ctx, key, &stored); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ConfigMap %s for the certificate authority: %w", key, err)
	}
	return []byte(stored.Data["ca.crt"]), nil
}

// statedAddresses are those that the cluster states: the endpoint that kubeadm
// gave to all its nodes, then the endpoints of the Service kubernetes.
func (m *member) statedAddresses(ctx context.Context) ([]Address, error) {
	ca := m.CAData
	if len(ca) == 0 {
		var err error
		if ca, err = m.clusterCA(ctx); err != nil {
			return nil, err
		}
	}
	if len(ca) == 0 {
		var err error
		if ca, err = kubeconfigCA(m.RESTConfig); err != nil {
			return nil, err
		}
	}
	config, err := m.kubeadmConfig(ctx)
	if err != nil {
		return nil, err
	}
	var all []Address
	if endpoint := config.ControlPlaneEndpoint; endpoint != "" {
		if _, _, err := net.SplitHostPort(endpoint); err != nil {
			endpoint = net.JoinHostPort(strings.Trim(endpoint, "[]"), "6443")
		}
		all = append(all, Address{"https://" + endpoint, ca, "kubeadm's control plane endpoint, since the kubeconfig's is on loopback"})
	}
	var slicesOf discoveryv1.EndpointSliceList
	if err := m.client.List(ctx, &slicesOf, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{discoveryv1.LabelServiceName: "kubernetes"}); err != nil {
		return nil, fmt.Errorf("list the EndpointSlices of Service default/kubernetes: %w", err)
	}
	for i := range slicesOf.Items {
		for _, hostPort := range hostPorts(&slicesOf.Items[i]) {
			all = append(all, Address{"https://" + hostPort, ca, "endpoint of Service default/kubernetes, since the kubeconfig's is on loopback"})
		}
	}
	return slices.DeleteFunc(all, func(a Address) bool { return onLoopback(a.Server) || len(a.CAData) == 0 }), nil
}

func hostPorts(s *discoveryv1.EndpointSlice) (all []string) {
	for _, port := range s.Ports {
		if port.Port == nil {
			continue
		}
		for _, endpoint := range s.Endpoints {
			for _, address := range endpoint.Addresses {
				all = append(all, net.JoinHostPort(address, strconv.Itoa(int(*port.Port))))
			}
		}
	}
	slices.Sort(all)
	return all
}
