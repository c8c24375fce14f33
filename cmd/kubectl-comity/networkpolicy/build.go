// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

// Known are the ranges of clusters that were read, or given.
type Known map[model.ClusterID]join.Ranges

// importer is a cluster in the scope of an export, with the ranges of its Pods.
type importer struct {
	id model.ClusterID
	join.Ranges
}

// importers are the peers in the scope of an export. The ranges of one that is not known are
// those that its Peer accepts, since a join wrote them.
func importers(export *mcsv1beta1.ServiceExport, namespace *corev1.Namespace, peers []v1alpha1.Peer, known Known) (all []importer, err error) {
	peers = slices.DeleteFunc(slices.Clone(peers), func(p v1alpha1.Peer) bool { return p.Spec.Removed })
	var members []model.Member
	for _, peer := range peers {
		members = append(members, model.Member{ID: model.ClusterID(peer.Name), Labels: peer.Labels})
	}
	scope, err := model.EffectiveScope(client.ObjectKeyFromObject(export), export, namespace, members)
	for _, peer := range peers {
		i := importer{model.ClusterID(peer.Name), known[model.ClusterID(peer.Name)]}
		if len(i.Pods) == 0 {
			i.Source = "spec.acceptedCIDRs of Peer " + peer.Name
			i.Pods, _ = model.ParsePrefixes(peer.Spec.AcceptedCIDRs) // the definition of Peers admits nothing else
		}
		if scope.Contains(i.id) {
			all = append(all, i)
		}
	}
	return all, err
}

// build is the policy that admits importers to the Pods of a Service at its target ports.
func build(service *corev1.Service, from []importer) *networkingv1.NetworkPolicy {
	rule := networkingv1.NetworkPolicyIngressRule{}
	for _, i := range from {
		for _, text := range model.PrefixTexts(i.Pods) {
			rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: text}})
		}
	}
	for _, port := range service.Spec.Ports {
		target, protocol := port.TargetPort, cmp.Or(port.Protocol, corev1.ProtocolTCP)
		if target == (intstr.IntOrString{}) {
			target = intstr.FromInt32(port.Port)
		}
		same := func(p networkingv1.NetworkPolicyPort) bool { return *p.Protocol == protocol && *p.Port == target }
		if !slices.ContainsFunc(rule.Ports, same) {
			rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{Protocol: ptr.To(protocol), Port: ptr.To(target)})
		}
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name + "-from-clusterset"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: service.Spec.Selector},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{rule},
		},
	}
}

// selecting are those policies that limit who connects to Pods with these labels.
func selecting(policies []networkingv1.NetworkPolicy, pod labels.Set) (all []networkingv1.NetworkPolicy) {
	for _, policy := range policies {
		selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		isIngress := len(policy.Spec.PolicyTypes) == 0 || slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
		if err == nil && isIngress && selector.Matches(pod) {
			all = append(all, policy)
		}
	}
	return all
}

// admits is true if one of the policies admits some address of ranges, at whatever port.
// Selectors match Pods of the own cluster only.
func admits(policies []networkingv1.NetworkPolicy, ranges []netip.Prefix) bool {
	inBlock := func(cidr string, r netip.Prefix, whole bool) bool {
		block, err := netip.ParsePrefix(cidr)
		return err == nil && block.Overlaps(r) && (!whole || block.Bits() <= r.Bits())
	}
	for _, policy := range policies {
		for _, rule := range policy.Spec.Ingress {
			if len(rule.From) == 0 || slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool {
				return peer.IPBlock != nil && slices.ContainsFunc(ranges, func(r netip.Prefix) bool {
					isExcepted := slices.ContainsFunc(peer.IPBlock.Except, func(except string) bool { return inBlock(except, r, true) })
					return inBlock(peer.IPBlock.CIDR, r, false) && !isExcepted
				})
			}) {
				return true
			}
		}
	}
	return false
}
