// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/json"
	"net"
	"net/netip"
	"slices"
	"strconv"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/sync/model"
)

// closed are the NetworkPolicies that select the Pods of the exporter, and the command that
// admits the Pods of the importer to these endpoints if none of them admits an address of
// that cluster; empty if one does, or if none selects the Pods. Ports are not compared.
func (h hop) closed(endpoints []string) (names []string, fix string) {
	if h.from.service == nil || len(h.from.service.Spec.Selector) == 0 {
		return nil, ""
	}
	ranges := []netip.Prefix{}
	if peer := h.from.peer(h.to.ID); peer != nil {
		ranges, _ = model.ParsePrefixes(peer.Spec.AcceptedCIDRs) // the API server admits nothing else
	}
	isOpen := len(ranges) == 0
	for _, p := range h.from.networks {
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		isIngress := len(p.Spec.PolicyTypes) == 0 || slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
		if err == nil && isIngress && selector.Matches(labels.Set(h.from.service.Spec.Selector)) {
			names = append(names, p.Name)
			isOpen = isOpen || slices.ContainsFunc(p.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool { return admits(rule, ranges) })
		}
	}
	if len(names) == 0 || isOpen {
		return names, ""
	}
	rule := networkingv1.NetworkPolicyIngressRule{}
	for _, r := range ranges {
		rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: r.String()}})
	}
	var ports []int
	for _, e := range endpoints {
		_, text, _ := net.SplitHostPort(e)
		port, _ := strconv.Atoi(text)
		ports = append(ports, port)
	}
	slices.Sort(ports)
	for _, port := range slices.Compact(ports) {
		rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{Port: ptr.To(intstr.FromInt(port))})
	}
	text, _ := json.Marshal(networkingv1.NetworkPolicy{ // holds nothing that JSON cannot express
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: h.key.Namespace, Name: h.key.Name + "-from-" + string(h.to.ID)},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: h.from.service.Spec.Selector}, Ingress: []networkingv1.NetworkPolicyIngressRule{rule},
		},
	})
	return names, "echo '" + string(text) + "' | kubectl --context " + h.from.Context + " apply -f -"
}

// admits reports whether a rule admits an address of ranges. Selectors match Pods of the
// own cluster only.
func admits(rule networkingv1.NetworkPolicyIngressRule, ranges []netip.Prefix) bool {
	return len(rule.From) == 0 || slices.ContainsFunc(rule.From, func(from networkingv1.NetworkPolicyPeer) bool {
		if from.IPBlock == nil {
			return false
		}
		block, err := netip.ParsePrefix(from.IPBlock.CIDR)
		return err == nil && slices.ContainsFunc(ranges, block.Overlaps)
	})
}
