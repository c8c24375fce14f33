// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// old is an API server of Kubernetes 1.32: it serves no ServiceCIDR.
func old(objects ...client.Object) client.Client {
	return fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, is := list.(*networkingv1.ServiceCIDRList); is {
				return &apimeta.NoKindMatchError{}
			}
			return c.List(ctx, list, opts...)
		},
	}).Build()
}

func kubeadm(text string) *corev1.ConfigMap {
	config := &corev1.ConfigMap{Data: map[string]string{"ClusterConfiguration": text}}
	config.Namespace, config.Name = "kube-system", "kubeadm-config"
	return config
}

func TestTheServiceRangeOfAnOldCluster(t *testing.T) {
	const refused = "pass the API server's --service-cluster-ip-range as --service-cidrs b=10.96.0.0/12"
	for _, c := range []struct {
		name    string
		objects []client.Object
		given   string
		want    string
		fails   string
	}{
		{"kubeadm made it", []client.Object{kubeadm("networking: {dnsDomain: cluster.local, serviceSubnet: '10.96.0.0/12,fd00::/112'}")}, "", "10.96.0.0/12,fd00::/112", ""},
		{"kubeadm wrote no range", []client.Object{kubeadm("networking: {}")}, "", "", refused},
		{"another tool made it", nil, "", "", refused},
		{"the administrator gave it", nil, "10.5.0.0/16", "10.5.0.0/16", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &member{Cluster: Cluster{ID: "b", PodCIDRs: prefixes("10.1.0.0/16")}, client: old(c.objects...)}
			if c.given != "" {
				m.ServiceCIDRs = prefixes(c.given)
			}
			err := m.learn(t.Context())
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Fatalf("got %v, want an error that says %q", err, c.fails)
				}
				return
			}
			if err != nil || strings.Join(formatCIDRs(m.ranges.Services), ",") != c.want {
				t.Errorf("got %v, %v; want %s", m.ranges.Services, err, c.want)
			}
		})
	}
}

func TestTheAddressThatAClusterStates(t *testing.T) {
	ca := &corev1.ConfigMap{Data: map[string]string{"ca.crt": "cluster-ca"}}
	ca.Namespace, ca.Name = "kube-system", "kube-root-ca.crt"
	slice := &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](6443)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"172.18.0.2"}}, {Addresses: []string{"172.18.0.3"}}},
	}
	slice.Namespace, slice.Name, slice.Labels = "default", "kubernetes", map[string]string{discoveryv1.LabelServiceName: "kubernetes"}
	m := &member{Cluster: Cluster{ID: "b", RESTConfig: &rest.Config{Host: "https://127.0.0.1:6443"}}, client: old(ca, slice, kubeadm("controlPlaneEndpoint: join-2-control-plane:6443"))}
	got, err := m.ownAddresses(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var servers []string
	for _, a := range got {
		servers = append(servers, a.Server)
		if string(a.CAData) != "cluster-ca" || a.Source == "" {
			t.Errorf("%s has the authority %q and the source %q", a.Server, a.CAData, a.Source)
		}
	}
	want := []string{"https://join-2-control-plane:6443", "https://172.18.0.2:6443", "https://172.18.0.3:6443"}
	if diff := cmp.Diff(want, servers); diff != "" {
		t.Error(diff)
	}
}

func TestAnAddressOnTheAdministratorsOwnMachine(t *testing.T) {
	for server, want := range map[string]bool{
		"https://127.0.0.1:6443": true, "https://127.3.2.1": true, "https://[::1]:6443": true, "https://localhost:1": true, "https://kind.localhost": true,
		"https://0.0.0.0:6443": true, "https://10.0.0.1:6443": false, "https://api.example": false, "https://[fd00::1]": false,
	} {
		if got := onLoopback(server); got != want {
			t.Errorf("onLoopback(%q) = %t", server, got)
		}
	}
}

func TestServerAndAuthorityOfACluster(t *testing.T) {
	ca := []byte("-----BEGIN CERTIFICATE-----")
	config := func(host string) *rest.Config {
		return &rest.Config{Host: host, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	}
	cases := []struct {
		name       string
		cluster    Cluster
		wantServer string
		wantErr    string
	}{
		{"the server of the kubeconfig by default", Cluster{RESTConfig: config("https://10.0.0.1:6443")}, "https://10.0.0.1:6443", ""},
		{"a host without a scheme is https", Cluster{RESTConfig: config("10.0.0.1:6443")}, "https://10.0.0.1:6443", ""},
		{"a server of its own for the other side", Cluster{RESTConfig: config("https://127.0.0.1:1"), Server: "https://api.a.example/"}, "https://api.a.example", ""},
		{"an authority that is given", Cluster{RESTConfig: &rest.Config{Host: "https://h"}, CAData: ca}, "https://h", ""},
		{"plain http", Cluster{RESTConfig: config("http://10.0.0.1")}, "", "expected https://host:port"},
		{"a password in the URL", Cluster{RESTConfig: config("x"), Server: "https://u:p@h"}, "", "expected https://host:port"},
		{"no host", Cluster{RESTConfig: config("x"), Server: "https://"}, "", "expected https://host:port"},
		{"the authority is the system's", Cluster{RESTConfig: &rest.Config{Host: "https://h"}}, "", "no certificate authority for https://h is known"},
		{"an address of this machine alone", Cluster{RESTConfig: config("https://localhost:6443")}, "", "which only this machine reaches"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := (&member{Cluster: c.cluster, client: old()}).ownAddresses(t.Context())
			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Fatalf("got %v, want an error that says %q", err, c.wantErr)
				}
				return
			}
			if err != nil || len(got) != 1 || got[0].Server != c.wantServer || string(got[0].CAData) != string(ca) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}
