// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/apply"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/plan"
)

// Labels by which the policies select.
var (
	managedBy      = map[string]string{"app.kubernetes.io/managed-by": model.ManagedBy}
	sliceManagedBy = map[string]string{discoveryv1.LabelManagedBy: model.ManagedBy}
)

func service(ns, name string, labels map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}}},
	}
}

// slice feeds a Service; none if that is empty.
func slice(ns, name, feeds string, labels map[string]string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.9.0.1"}}},
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(8080))}},
	}
	for key, value := range labels {
		s.Labels[key] = value
	}
	if feeds != "" {
		s.Labels[discoveryv1.LabelServiceName] = feeds
	}
	return s
}

func serviceImport(ns, name string, labels map[string]string) *mcsv1beta1.ServiceImport {
	return &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels},
		Spec:       mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Port: 80}}},
	}
}

// account is a ServiceAccount that kubectl comity join made.
func account(name string, annotations map[string]string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: own, Name: name, Annotations: annotations, Labels: map[string]string{"app.kubernetes.io/managed-by": "comity-join"},
	}}
}

// request asks for a token of an account in Comity's namespace.
func request(ctx context.Context, c client.Client, name string, expiry time.Duration, audiences ...string) error {
	asked := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(expiry / time.Second)), Audiences: audiences,
	}}
	return c.SubResource("token").Create(ctx, account(name, nil), asked)
}

// world is a namespace with one import of web, which b exports.
type world struct {
	ns    string
	input plan.ImportInput
	// derived, slice and imported are what the agent made of it.
	derived  *corev1.Service
	slice    *discoveryv1.EndpointSlice
	imported *mcsv1beta1.ServiceImport
}

var worlds int

// importing makes a namespace and has the agent import there.
func importing(ctx context.Context) *world {
	GinkgoHelper()
	worlds++
	w := &world{ns: fmt.Sprintf("shop-%d", worlds)}
	Expect(admin.Create(ctx, namespace(w.ns))).To(Succeed())
	ports := []mcsv1beta1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}}
	w.input.Key, w.input.Self = types.NamespacedName{Namespace: w.ns, Name: "web"}, "a"
	w.input.LocalCluster.Families = []corev1.IPFamily{corev1.IPv4Protocol}
	w.input.Desired = &model.Import{
		Key: w.input.Key,
		ServiceProperties: model.ServiceProperties{
			Type: mcsv1beta1.ClusterSetIP, Ports: ports, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, SessionAffinity: "None",
		},
		Constituents: []model.Constituent{{SourceExport: model.SourceExport{Cluster: "b"}, Ports: ports, Declared: ports}},
	}
	source := slice(w.ns, w.ns+".web-1", "", nil)
	source.Annotations = map[string]string{model.AnnotationSourceSlice: "web-1"}
	w.input.Sources = map[model.ClusterID][]*discoveryv1.EndpointSlice{"b": {source}}
	w.input.List = model.List{Formed: time.Unix(1_800_000_000, 0).UTC(), Entries: []model.Entry{{SourceExport: model.SourceExport{Cluster: "b", UID: "u"}}}}
	w.bring(ctx)
	return w
}

// bring plans and applies as the agent until nothing is outstanding, and reads
// what there is then.
func (w *world) bring(ctx context.Context) {
	GinkgoHelper()
	for range 8 {
		w.read(ctx)
		p := plan.Import(w.input)
		if len(p.Actions) == 0 {
			return
		}
		_, err := apply.New(agent, nil).Apply(ctx, p.Actions)
		Expect(err).NotTo(HaveOccurred())
	}
	Fail("the plans do not end")
}

func (w *world) read(ctx context.Context) {
	GinkgoHelper()
	w.input.Current = plan.Current{}
	w.derived, w.slice, w.imported = nil, nil, nil
	var services corev1.ServiceList
	Expect(admin.List(ctx, &services, client.InNamespace(w.ns))).To(Succeed())
	for i := range services.Items {
		w.derived = &services.Items[i]
		w.input.Current.Services = append(w.input.Current.Services, w.derived)
	}
	var slices discoveryv1.EndpointSliceList
	Expect(admin.List(ctx, &slices, client.InNamespace(w.ns))).To(Succeed())
	for i := range slices.Items {
		w.slice = &slices.Items[i]
		w.input.Current.Slices = append(w.input.Current.Slices, w.slice)
	}
	var imports mcsv1beta1.ServiceImportList
	Expect(admin.List(ctx, &imports, client.InNamespace(w.ns))).To(Succeed())
	for i := range imports.Items {
		w.imported = &imports.Items[i]
		w.input.Current.Import = w.imported
	}
}
