// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/policies/decision"
	"github.com/comity-mcs/comity/webhook/admit"
	"github.com/comity-mcs/comity/webhook/facts"
)

// setDefaults sets what an API server adds to a manifest and a policy can see, but for
// what it chooses, such as addresses: policies find it in a cluster, so they must find it
// here.
func setDefaults(object client.Object) {
	switch o := object.(type) {
	case *corev1.Namespace:
		metav1.SetMetaDataLabel(&o.ObjectMeta, corev1.LabelMetadataName, o.Name)
	case *corev1.Service:
		setServiceDefaults(&o.Spec)
	}
}

func setServiceDefaults(spec *corev1.ServiceSpec) {
	if spec.Type == "" {
		spec.Type = corev1.ServiceTypeClusterIP
	}
	setAffinityDefaults(spec)
	for i := range spec.Ports {
		port := &spec.Ports[i]
		if port.Protocol == "" {
			port.Protocol = corev1.ProtocolTCP
		}
		if port.TargetPort == (intstr.IntOrString{}) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	external := spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer
	if spec.InternalTrafficPolicy == nil && (external || spec.Type == corev1.ServiceTypeClusterIP) {
		spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.ExternalTrafficPolicy == "" && external {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	if spec.AllocateLoadBalancerNodePorts == nil && spec.Type == corev1.ServiceTypeLoadBalancer {
		spec.AllocateLoadBalancerNodePorts = ptr.To(true)
	}
}

func setAffinityDefaults(spec *corev1.ServiceSpec) {
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		spec.SessionAffinity, spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
		return
	}
	if c := spec.SessionAffinityConfig; c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)}}
	}
}

// admit does to a request what the webhooks do before policies are evaluated: the label
// export-to becomes an annotation, and annotations that cannot be read are refused. What
// an UPDATE replaces was created in the same way. What is stored is audited as it is. An
// UPDATE that changes nothing is allowed without policies.
func (m *manifests) admit(request facts.Request) (admitted facts.Request, unchanged bool, refused error) {
	if request.Operation == decision.Audit {
		return request, false, nil
	}
	request.Export = request.Export.DeepCopy()
	now, key := &request.Export.ObjectMeta, client.ObjectKeyFromObject(request.Export)
	var was *metav1.ObjectMeta
	if request.OldExport != nil {
		request.OldExport = request.OldExport.DeepCopy()
		was = &request.OldExport.ObjectMeta
		if err := admit.MoveScope(was, nil); err != nil {
			return request, false, err
		}
	}
	if err := admit.MoveScope(now, was); err != nil {
		return request, false, err
	}
	if request.OldExport != nil && admit.Unchanged(request.Export, request.OldExport) {
		return request, true, nil
	}
	refused, _ = admit.Check(now, was, func() (*corev1.Service, error) { return get[*corev1.Service](m, key), nil })
	return request, false, refused
}
