// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
	"github.com/comity-mcs/comity/test/envtest/suite"
)

func TestPlan(t *testing.T) {
	suite.Run(t, "plan", suite.Waits{})
}

var (
	api client.Client
	ctx = context.Background()
)

var _ = BeforeSuite(func() {
	server := suite.APIServer()
	server.ControlPlane.GetAPIServer().Configure().Set("service-cluster-ip-range", "10.0.0.0/16,fd00:10::/112")
	api = suite.Client(suite.Start(server)[0])
})

// cluster is what one import needs, in a namespace of its own.
type cluster struct {
	plan.ImportInput
	// through is what the applier writes through.
	through client.Client
	writes  []string
}

var namespaces int

// importing is an import of web, exported by b with port 80, into a cluster
// called a that has both IP families.
func importing() *cluster {
	GinkgoHelper()
	namespaces++
	name := fmt.Sprintf("shop-%d", namespaces)
	Expect(api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	c := &cluster{through: api}
	ports := []mcsv1beta1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}}
	c.Key, c.Self = types.NamespacedName{Namespace: name, Name: "web"}, "a"
	c.LocalCluster.Families = []corev1.IPFamily{"IPv4", "IPv6"}
	c.Desired = &model.Import{
		Key: c.Key,
		ServiceProperties: model.ServiceProperties{
			Type: mcsv1beta1.ClusterSetIP, Ports: ports, IPFamilies: []corev1.IPFamily{"IPv4"}, SessionAffinity: "None",
		},
		Constituents: []model.Constituent{{SourceExport: model.SourceExport{Cluster: "b"}, Ports: ports, Declared: ports}},
	}
	c.Sources = map[model.ClusterID][]*discoveryv1.EndpointSlice{"b": {source("web-1", "10.2.0.1")}}
	return c
}

// source is a slice as a peer publishes it.
func source(name string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "shop." + name, Annotations: map[string]string{model.AnnotationSourceSlice: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr("http"), Protocol: ptr(corev1.ProtocolTCP), Port: ptr(int32(8080))}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: ptr(true)}})
	}
	return s
}

func ptr[T any](v T) *T { return &v }

// read fills in what exists.
func (c *cluster) read() {
	GinkgoHelper()
	c.Current = plan.Current{}
	inNamespace := client.InNamespace(c.Key.Namespace)
	var services corev1.ServiceList
	Expect(api.List(ctx, &services, inNamespace)).To(Succeed())
	for i := range services.Items {
		c.Current.Services = append(c.Current.Services, &services.Items[i])
	}
	var list discoveryv1.EndpointSliceList
	Expect(api.List(ctx, &list, inNamespace)).To(Succeed())
	for i := range list.Items {
		c.Current.Slices = append(c.Current.Slices, &list.Items[i])
	}
	imp := &mcsv1beta1.ServiceImport{}
	err := api.Get(ctx, c.Key, imp)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	if err == nil {
		c.Current.Import = imp
	}
}

// bring plans and applies until nothing is outstanding, and gives the last plan.
func (c *cluster) bring() plan.ImportPlan {
	GinkgoHelper()
	c.writes = nil
	for range 8 {
		c.read()
		p := plan.Import(c.ImportInput)
		if len(p.Actions) == 0 {
			return p
		}
		for _, a := range p.Actions {
			c.writes = append(c.writes, string(a.Verb)+" "+a.Object.GetObjectKind().GroupVersionKind().Kind)
		}
		_, err := apply.New(c.through, nil).Apply(ctx, p.Actions)
		Expect(err).NotTo(HaveOccurred(), "writes: %v", c.writes)
	}
	Fail(fmt.Sprintf("eight plans were not enough; writes: %v", c.writes))
	return plan.ImportPlan{}
}

func (c *cluster) service() *corev1.Service {
	GinkgoHelper()
	s := &corev1.Service{}
	Expect(api.Get(ctx, types.NamespacedName{Namespace: c.Key.Namespace, Name: model.DerivedName("web")}, s)).To(Succeed())
	return s
}

func (c *cluster) serviceImport() *mcsv1beta1.ServiceImport {
	GinkgoHelper()
	s := &mcsv1beta1.ServiceImport{}
	Expect(api.Get(ctx, c.Key, s)).To(Succeed())
	return s
}

func (c *cluster) slice(from string) *discoveryv1.EndpointSlice {
	GinkgoHelper()
	s := &discoveryv1.EndpointSlice{}
	Expect(api.Get(ctx, types.NamespacedName{Namespace: c.Key.Namespace, Name: model.DerivedName("web") + "-" + from}, s)).To(Succeed())
	return s
}
