// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/envtest/clusterset"
)

// formerManager is the field manager by which Sveltos applies.
const formerManager = "application/apply-patch"

// pipelined is what the documented Sveltos pipeline makes of one export.
type pipelined struct {
	in       *clusterset.Member
	service  *corev1.Service
	imported *mcsv1beta1.ServiceImport
	slice    *discoveryv1.EndpointSlice
}

// byPipeline makes in m what the pipeline renders there for a Service of
// another cluster with one endpoint, as its three templates do.
func byPipeline(ctx context.Context, m, source *clusterset.Member, ns, name, address string) pipelined {
	GinkgoHelper()
	marks := fmt.Sprintf(`{projectsveltos.io/hash: "sha256:0", projectsveltos.io/owner-kind: ClusterProfile, projectsveltos.io/owner-name: %s}`, name)
	derived := model.DerivedName(name)
	applyAs(ctx, m, `
apiVersion: v1
kind: Service
metadata:
  name: `+derived+`
  namespace: `+ns+`
  labels:
    multicluster.kubernetes.io/service-name: `+name+`
    multicluster.kubernetes.io/service-imported: "true"
    app.kubernetes.io/managed-by: sveltos
    projectsveltos.io/reference-name: mcs-service-deriver
  annotations: `+marks+`
spec:
  type: ClusterIP
  selector: {app: `+name+`}
  ports: [{name: http, port: 80, targetPort: 80, protocol: TCP}]
`)
	p := pipelined{in: m, service: &corev1.Service{}, imported: &mcsv1beta1.ServiceImport{}, slice: &discoveryv1.EndpointSlice{}}
	p.service.Namespace, p.service.Name = ns, derived
	p.imported.Namespace, p.imported.Name = ns, name
	p.slice.Namespace, p.slice.Name = ns, derived+"-"+source.ID()
	p.service = clusterset.Get(ctx, m, p.service)
	applyAs(ctx, m, `
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ServiceImport
metadata:
  name: `+name+`
  namespace: `+ns+`
  labels: {projectsveltos.io/reference-name: mcs-serviceimport-generator}
  annotations:
    multicluster.kubernetes.io/derived-service: `+derived+`
    projectsveltos.io/hash: "sha256:0"
spec:
  type: ClusterSetIP
  ips: [`+p.service.Spec.ClusterIP+`]
  ports: [{name: http, port: 80, protocol: TCP}]
`)
	applyAs(ctx, m, `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: `+p.slice.Name+`
  namespace: `+ns+`
  labels:
    kubernetes.io/service-name: `+derived+`
    multicluster.kubernetes.io/service-name: `+name+`
    service-export-name: `+name+`
    service-export-namespace: `+ns+`
    endpointslice.kubernetes.io/managed-by: sveltos
    projectsveltos.io/reference-name: mcs-endpoint-mirror
  annotations: `+marks+`
addressType: IPv4
endpoints: [{addresses: [`+address+`], conditions: {ready: true, serving: true, terminating: false}}]
ports: [{name: http, port: 8080, protocol: TCP}]
`)
	return p.read(ctx)
}

// read gives the same objects as they are now.
func (p pipelined) read(ctx context.Context) pipelined {
	GinkgoHelper()
	at := func(o client.Object) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}
	}
	return pipelined{
		in: p.in, service: clusterset.Get(ctx, p.in, &corev1.Service{ObjectMeta: at(p.service)}),
		imported: clusterset.Get(ctx, p.in, &mcsv1beta1.ServiceImport{ObjectMeta: at(p.imported)}),
		slice:    clusterset.Get(ctx, p.in, &discoveryv1.EndpointSlice{ObjectMeta: at(p.slice)}),
	}
}

func (p pipelined) objects() []client.Object { return []client.Object{p.service, p.imported, p.slice} }

func (p pipelined) uids() (out []types.UID) {
	for _, o := range p.objects() {
		out = append(out, o.GetUID())
	}
	return out
}

// versions tell whether anything but a status was written.
func (p pipelined) versions() (out []string) {
	for _, o := range p.objects() {
		out = append(out, fmt.Sprint(o.GetUID(), o.GetGeneration(), o.GetLabels(), o.GetAnnotations()))
	}
	return out
}

// leftovers are fields and marks of the former manager.
func (p pipelined) leftovers() []string {
	out := []string{}
	for _, o := range p.objects() {
		for _, entry := range o.GetManagedFields() {
			if entry.Manager != model.FieldOwner {
				out = append(out, fmt.Sprintf("%T: fields of %s", o, entry.Manager))
			}
		}
		for key, value := range maps.All(o.GetLabels()) {
			if strings.Contains(key+value, "sveltos") || strings.HasPrefix(key, "service-export-") {
				out = append(out, fmt.Sprintf("%T: label %s", o, key))
			}
		}
		for key := range o.GetAnnotations() {
			if strings.Contains(key, "sveltos") || key == model.AnnotationAdopting {
				out = append(out, fmt.Sprintf("%T: annotation %s", o, key))
			}
		}
	}
	slices.Sort(out)
	return out
}

// endpointsOf are the ready IPv4 addresses to which kube-proxy would lead, whoever wrote them.
func endpointsOf(ctx context.Context, m *clusterset.Member, service *corev1.Service) []string {
	GinkgoHelper()
	var list discoveryv1.EndpointSliceList
	Expect(m.Client.List(ctx, &list, client.InNamespace(service.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service.Name})).To(Succeed())
	out := []string{}
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			if s.AddressType == discoveryv1.AddressTypeIPv4 && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				out = append(out, e.Addresses[0])
			}
		}
	}
	return out
}

// applyAs applies YAML as Sveltos does: on the server, and by force.
func applyAs(ctx context.Context, m *clusterset.Member, text string) {
	GinkgoHelper()
	var o unstructured.Unstructured
	Expect(yaml.Unmarshal([]byte(text), &o.Object)).To(Succeed())
	Expect(m.Client.Patch(ctx, &o, client.RawPatch(types.ApplyPatchType, []byte(text)), client.FieldOwner(formerManager), client.ForceOwnership)).To(Succeed())
}
