// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// admit fills in what the API server does, and refuses what it refuses.
func (s *Server) admit(o, before client.Object) error {
	problem := nameProblem(o)
	switch o := o.(type) {
	case *corev1.Service:
		old, _ := before.(*corev1.Service)
		if problem == "" {
			problem = serviceProblem(o, old)
		}
		defaultAffinity(o)
		s.address(o)
	case *discoveryv1.EndpointSlice:
		old, _ := before.(*discoveryv1.EndpointSlice)
		if problem == "" && !s.Lax {
			problem = sliceProblem(o, old)
		}
	}
	if problem == "" {
		return nil
	}
	kind := o.GetObjectKind().GroupVersionKind().Kind
	return apierrors.NewInvalid(schema.GroupKind{Kind: kind}, o.GetName(), field.ErrorList{field.Invalid(field.NewPath(""), "", problem)})
}

func nameProblem(o client.Object) string {
	check := validation.IsDNS1123Subdomain
	switch o.(type) {
	case *corev1.Service, *corev1.Namespace:
		check = validation.IsDNS1123Label
	}
	if errs := check(o.GetName()); len(errs) > 0 {
		return errs[0]
	}
	for key, value := range o.GetLabels() {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return fmt.Sprintf("label %s=%s", key, value)
		}
	}
	return ""
}

func serviceProblem(o, before *corev1.Service) string {
	seen := map[string]bool{}
	for _, p := range o.Spec.Ports {
		at := fmt.Sprint(p.Port, p.Protocol)
		switch {
		case p.Name == "" && len(o.Spec.Ports) > 1:
			return "several ports, and one has no name"
		case seen[at] || seen[p.Name]:
			return "a port is there twice"
		}
		seen[at], seen[p.Name] = true, true
	}
	headless := o.Spec.ClusterIP == corev1.ClusterIPNone
	if len(o.Spec.Ports) == 0 && !headless {
		return "no ports"
	}
	if before != nil && o.Spec.ClusterIP != before.Spec.ClusterIP && (before.Spec.ClusterIP != "" || headless) {
		return "clusterIP cannot be changed"
	}
	return ""
}

func defaultAffinity(o *corev1.Service) {
	switch {
	case o.Spec.SessionAffinity != corev1.ServiceAffinityClientIP:
		o.Spec.SessionAffinityConfig = nil
	case o.Spec.SessionAffinityConfig == nil || o.Spec.SessionAffinityConfig.ClientIP == nil:
		seconds := corev1.DefaultClientIPServiceAffinitySeconds
		o.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
}

// address gives a Service its families and cluster IPs.
func (s *Server) address(o *corev1.Service) {
	if o.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	if o.Spec.ClusterIP == "" {
		s.ids++
		o.Spec.ClusterIP = fmt.Sprintf("10.%d.%d.%d", 96+s.ids/62500, s.ids/250%250, s.ids%250+1)
	}
	o.Spec.ClusterIPs = []string{o.Spec.ClusterIP}
	dual := o.Spec.IPFamilyPolicy != nil && *o.Spec.IPFamilyPolicy == corev1.IPFamilyPolicyPreferDualStack
	if len(o.Spec.IPFamilies) == 0 {
		o.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	if !dual {
		o.Spec.IPFamilies = o.Spec.IPFamilies[:1]
	}
	if dual && len(o.Spec.IPFamilies) == 1 {
		o.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	if len(o.Spec.IPFamilies) == 2 && o.Spec.ClusterIP != corev1.ClusterIPNone {
		o.Spec.ClusterIPs = append(o.Spec.ClusterIPs, "fd00::"+fmt.Sprintf("%x", s.ids))
	}
}

func sliceProblem(o, before *discoveryv1.EndpointSlice) string {
	if before != nil && before.AddressType != o.AddressType {
		return "addressType cannot be changed"
	}
	if len(o.Endpoints) > 1000 {
		return fmt.Sprintf("%d endpoints", len(o.Endpoints))
	}
	for _, e := range o.Endpoints {
		for _, address := range e.Addresses {
			ip, err := netip.ParseAddr(address)
			if o.AddressType == discoveryv1.AddressTypeFQDN {
				continue
			}
			if err != nil || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() ||
				ip.Is4() != (o.AddressType == discoveryv1.AddressTypeIPv4) {
				return "address " + address
			}
		}
	}
	return ""
}
