// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/policies/source"
	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/webhook/admit"
	"github.com/comity-mcs/comity/webhook/facts"
)

// manifests are what a cluster would hold if they were applied. Kinds that no policy
// sees are left out.
type manifests struct {
	client.Reader                   // its List: nothing of what policies see is listed
	objects       map[string]placed // by idOf
	policies      []source.Policy
	clusterset    *Clusterset
}

// idOf has the type in Go and the name of an object.
func idOf(object client.Object, name types.NamespacedName) string {
	return fmt.Sprintf("%T %s", object, name)
}

// placed is an object, and where it is.
type placed struct {
	client.Object
	place string
}

// readManifests reads files, and the files in folders. A field that a kind does not
// have, and an object that is there twice with other content, are errors.
func readManifests(paths ...string) (*manifests, error) {
	policies, documents, err := source.ReadAll(paths...)
	if err != nil {
		return nil, err
	}
	return newManifests(policies, documents)
}

func newManifests(policies []source.Policy, documents []source.Document) (*manifests, error) {
	m := &manifests{objects: map[string]placed{}, policies: policies, clusterset: &Clusterset{Cluster: defaultCluster}}
	for _, document := range documents {
		if err := m.add(document); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// add keeps the object of a document, if it is of a kind that policies see.
func (m *manifests) add(document source.Document) error {
	switch document.GroupVersionKind() {
	case corev1.SchemeGroupVersion.WithKind("Namespace"):
		return m.keep(document, &corev1.Namespace{})
	case corev1.SchemeGroupVersion.WithKind("Service"):
		return m.keep(document, &corev1.Service{})
	case mcsv1beta1.SchemeGroupVersion.WithKind(mcsv1beta1.ServiceExportKindName), mcsv1alpha1.SchemeGroupVersion.WithKind(mcsv1beta1.ServiceExportKindName):
		return m.keep(document, &mcsv1beta1.ServiceExport{}) // either version has the same fields
	}
	switch {
	case document.Kind == kindClusterset:
		return m.addClusterset(document)
	case document.Kind == "" || document.APIVersion == "":
		return fmt.Errorf("%s: apiVersion or kind is not set; expected a Kubernetes object", document.Place)
	}
	return nil
}

func (m *manifests) addClusterset(document source.Document) error {
	given := &Clusterset{}
	if err := document.Decode(given); err != nil {
		return err
	}
	if err := given.complete(); err != nil {
		return fmt.Errorf("%s: %w", document.Place, err)
	}
	if m.clusterset.Kind != "" && !equality.Semantic.DeepEqual(m.clusterset, given) {
		return fmt.Errorf("%s: a second Clusterset; expected one, or the same", document.Place)
	}
	m.clusterset = given
	return nil
}

// keep decodes a document and keeps the object, with what an API server adds to it and a
// policy can see, but for what it chooses, such as addresses: policies find it in a cluster,
// so they must find it here.
func (m *manifests) keep(document source.Document, object client.Object) error {
	if err := document.Decode(object); err != nil {
		return err
	}
	switch o := object.(type) {
	case *corev1.Namespace:
		metav1.SetMetaDataLabel(&o.ObjectMeta, corev1.LabelMetadataName, o.Name)
	case *corev1.Service:
		setDefaults(&o.Spec)
	}
	key := client.ObjectKeyFromObject(object)
	id, name := idOf(object, key), document.Kind+" "+strings.TrimPrefix(key.String(), "/")
	before, repeated := m.objects[id]
	switch {
	case key.Name == "" || key.Namespace == "" && document.Kind != "Namespace":
		return fmt.Errorf("%s: %s: metadata.name or metadata.namespace is not set; expected its name, and the namespace that it is applied in", document.Place, name)
	case repeated && !equality.Semantic.DeepEqual(before.Object, object): // fixtures of several policies repeat a Namespace, say
		return fmt.Errorf("%s: %s is in %s already, with other content; expected each object once, or the same", document.Place, name, before.place)
	case !repeated:
		m.objects[id] = placed{object, document.Place}
	}
	return nil
}

// keys are those of the exports, sorted.
func (m *manifests) keys() (keys []types.NamespacedName) {
	for _, object := range m.objects {
		if export, is := object.Object.(*mcsv1beta1.ServiceExport); is {
			keys = append(keys, client.ObjectKeyFromObject(export))
		}
	}
	slices.SortFunc(keys, model.CompareKeys)
	return keys
}

// get is an object; nil if there is none.
func get[T client.Object](m *manifests, name types.NamespacedName) (found T) {
	found, _ = m.objects[idOf(found, name)].Object.(T)
	return found
}

// facts reads what policies may know from the manifests.
func (m *manifests) facts() facts.Reader {
	return facts.Reader{
		Client: m, Cluster: model.ClusterID(m.clusterset.Cluster), Peers: peers{m.clusterset},
		Published: func(_ context.Context, export *mcsv1beta1.ServiceExport) (decision.Publication, error) {
			return decision.Publication{Published: slices.Contains(m.clusterset.Published, client.ObjectKeyFromObject(export).String())}, nil
		},
	}
}

// request is the request, or the audit, of an export. before has what an UPDATE replaces;
// what it lacks is updated without a change.
//
// It is what the webhooks make of it before policies are evaluated: the label export-to
// becomes an annotation, and annotations that cannot be read are refused. What an UPDATE
// replaces was created in the same way. What is stored is audited as it is. An UPDATE that
// changes nothing is allowed without policies. For an UPDATE, before is not nil.
func (m *manifests) request(key types.NamespacedName, operation decision.Operation, before *manifests) (request decision.Input, unchanged bool, refused error) {
	export := get[*mcsv1beta1.ServiceExport](m, key)
	if operation == decision.Audit {
		return decision.Input{Operation: operation, Object: export}, false, nil
	}
	request = decision.Input{Operation: operation, Object: export.DeepCopy(), UserInfo: cmp.Or(m.clusterset.User, &decision.UserInfo{})}
	was := &metav1.ObjectMeta{}
	if operation == decision.Update {
		request.OldObject = cmp.Or(get[*mcsv1beta1.ServiceExport](before, key), export).DeepCopy()
		was = &request.OldObject.ObjectMeta
		if err := admit.MoveScope(was, &metav1.ObjectMeta{}); err != nil {
			return request, false, err
		}
	}
	now := &request.Object.ObjectMeta
	if err := admit.MoveScope(now, was); err != nil {
		return request, false, err
	}
	if operation == decision.Update && admit.Unchanged(request.Object, request.OldObject) {
		return request, true, nil
	}
	refused, _ = admit.Check(now, was, func() (*corev1.Service, error) { return get[*corev1.Service](m, key), nil })
	return request, false, refused
}

// imports are what the members export, in the order of the Clusterset.
func (m *manifests) imports() (all []decision.ImportInput) {
	for _, member := range m.clusterset.Members {
		for _, export := range member.Exports {
			in := decision.ImportInput{
				APIVersion: decision.InputVersion, Cluster: m.clusterset.Cluster,
				Source: decision.ImportSource{Cluster: member.ID, Labels: member.Labels},
				Export: export, Namespace: get[*corev1.Namespace](m, types.NamespacedName{Name: export.Namespace}),
			}
			in.Imported = slices.Contains(m.clusterset.Imported, importName(in))
			all = append(all, in)
		}
	}
	return all
}

func importName(in decision.ImportInput) string {
	return in.Source.Cluster + "/" + in.Export.Namespace + "/" + in.Export.Name
}

// Get implements client.Reader.
func (m *manifests) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	found, has := m.objects[idOf(into, key)]
	if !has {
		return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", into)}, key.String())
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(found.DeepCopyObject()).Elem())
	return nil
}

// setDefaults sets the defaults of a Service. One of type LoadBalancer has those of type
// NodePort, too, and both have those of type ClusterIP.
func setDefaults(spec *corev1.ServiceSpec) {
	for i := range spec.Ports {
		port := &spec.Ports[i]
		port.Protocol = cmp.Or(port.Protocol, corev1.ProtocolTCP)
		port.TargetPort = cmp.Or(port.TargetPort, intstr.FromInt32(port.Port))
	}
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		spec.SessionAffinity, spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
	} else if spec.SessionAffinityConfig == nil {
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(corev1.DefaultClientIPServiceAffinitySeconds)}}
	}
	spec.Type = cmp.Or(spec.Type, corev1.ServiceTypeClusterIP)
	switch spec.Type {
	case corev1.ServiceTypeLoadBalancer:
		spec.AllocateLoadBalancerNodePorts = cmp.Or(spec.AllocateLoadBalancerNodePorts, new(true))
		fallthrough
	case corev1.ServiceTypeNodePort:
		spec.ExternalTrafficPolicy = cmp.Or(spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
		fallthrough
	case corev1.ServiceTypeClusterIP:
		spec.InternalTrafficPolicy = cmp.Or(spec.InternalTrafficPolicy, new(corev1.ServiceInternalTrafficPolicyCluster))
	}
}
