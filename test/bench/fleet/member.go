// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	exchangev1alpha1 "github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/install"
)

// Member is one cluster and its agent.
type Member struct {
	*controlplane.Cluster
	// Typed may do everything, without a limit on the client's side.
	Typed kubernetes.Interface
	// AsAgent has the agent's own credentials: what it asks for costs the API
	// server as much as what the agent does.
	AsAgent kubernetes.Interface
	// AgentConfig has these credentials, without a limit on the client's side.
	AgentConfig *rest.Config
	// exports writes ServiceExports, which Typed does not know.
	exports client.Client
	// Exchange reads and writes records, without a limit on the client's side.
	Exchange client.Client
	agent    *install.Agent
	dir      string
}

func newMember(c *controlplane.Cluster, dir string) (*Member, error) {
	config := c.RESTConfig()
	config.QPS = -1
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	exports, err := client.New(config, client.Options{})
	if err != nil {
		return nil, err
	}
	return &Member{Cluster: c, Typed: typed, exports: exports, Exchange: exports, dir: dir}, errors.Join(mcsv1beta1.Install(exports.Scheme()), exchangev1alpha1.AddToScheme(exports.Scheme()))
}

func (m *Member) install(ctx context.Context, binary, kubectl string, free []int, flags []string) error {
	target := install.Target{Cluster: m.Cluster, Set: ClusterSet, Kubectl: kubectl, Dir: m.dir, Ports: free}
	agent, err := install.Prepare(ctx, target, binary, flags...)
	if err != nil {
		return err
	}
	config, err := clusters.LoadKubeconfig(filepath.Join(m.dir, "kubeconfig"))
	if err != nil {
		return err
	}
	config.QPS = -1
	m.AgentConfig = config
	if m.AsAgent, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	m.agent = agent
	return m.StartAgent(ctx)
}

// StartAgent starts the agent and waits until it is ready.
func (m *Member) StartAgent(ctx context.Context) error {
	if err := m.agent.Start(); err != nil {
		return err
	}
	return m.agent.WaitReady(ctx, readyTimeout)
}

// StopAgent ends the agent as a kubelet does.
func (m *Member) StopAgent() error { return m.agent.Stop() }

// StopAgentFor is StopAgent, and has it start with these flags next.
func (m *Member) StopAgentFor(flags ...string) error { return m.agent.StopFor(flags...) }

// CreateNamespace makes a namespace.
func (m *Member) CreateNamespace(ctx context.Context, name string) error {
	_, err := m.Typed.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// Export makes a Service and its ServiceExport.
func (m *Member) Export(ctx context.Context, namespace, name string) error {
	_, err := m.Typed.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return m.exports.Create(ctx, &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

// Slice is the n-th slice of a Service as the EndpointSlice controller writes
// it. Its endpoints have addresses from first on.
func Slice(namespace, service string, n, first, endpoints int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%05d", service, n), Labels: map[string]string{
			discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{Address(first + i)},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			NodeName:   ptr.To(fmt.Sprintf("node-%d", i%8)), Zone: ptr.To(fmt.Sprintf("zone-%d", i%3)),
			TargetRef: &corev1.ObjectReference{
				Kind: "Pod", Namespace: namespace, Name: fmt.Sprintf("%s-5d8f9c7b6d-%05d", service, first+i), UID: "0c9ad1f0-63c5-4b0a-9f0e-5b7a0c3d9e11",
			},
		})
	}
	return s
}

// Address is the n-th address of the benchmark's range.
func Address(n int) string {
	start := Addresses.Addr().As4()
	n++ // not the first, which is the network's
	return fmt.Sprintf("%d.%d.%d.%d", start[0], int(start[1])+n>>16, n>>8&255, n&255)
}

// CreateSlice makes a slice.
func (m *Member) CreateSlice(ctx context.Context, s *discoveryv1.EndpointSlice) error {
	_, err := m.Typed.DiscoveryV1().EndpointSlices(s.Namespace).Create(ctx, s, metav1.CreateOptions{})
	return err
}

// AgentWrites lists what the agent wrote since a moment, without heartbeats,
// leader election and events.
func (m *Member) AgentWrites(since time.Time) ([]controlplane.Write, error) {
	all, err := m.Writes(since)
	if err != nil {
		return nil, err
	}
	var out []controlplane.Write
	for _, w := range all {
		aside := w.Resource == "coordination.k8s.io/leases" || strings.HasSuffix(w.Resource, "events")
		if strings.HasPrefix(w.User, "system:serviceaccount:"+install.Namespace+":") && !aside {
			out = append(out, w)
		}
	}
	return out, nil
}
