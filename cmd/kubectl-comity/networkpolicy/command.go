// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package networkpolicy is `kubectl comity networkpolicy`: the NetworkPolicy by which
// exported Pods admit the clusters that import them, by the addresses of their Pods.
//
// No selector of a NetworkPolicy matches a Pod of another cluster. Check finds the
// exports that NetworkPolicies keep from importing clusters. The package reads Services,
// Pods, ServiceExports, Peers and NetworkPolicies, and writes nothing.
package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/model"
)

const long = `Print the NetworkPolicy by which the Pods of an exported Service admit the clusters
that import it, by the addresses of their Pods. A namespaceSelector or podSelector
never matches a Pod of another cluster.

It is for the first of the given contexts that exports the Service. It admits the
clusters in the scope of the export, by the Pod ranges that join read and wrote into
their Peers. Where a network plugin gives Pods other addresses, pass --pod-cidrs. Where a
cluster masquerades traffic to others, pass the addresses of its Nodes.

The command writes to no cluster.`

// New gives the command networkpolicy.
func New(env *command.Env) *cobra.Command {
	var podCIDRs map[string]string
	cmd := env.Command("networkpolicy NAMESPACE/NAME [CONTEXT...]", "Print a NetworkPolicy that admits the clusters that import a Service",
		long, "  kubectl comity networkpolicy shop/web a\n  kubectl comity networkpolicy shop/web a --pod-cidrs b=10.2.0.0/16 | kubectl --context a apply -f -",
		1, func(ctx context.Context, env *command.Env, args []string) error {
			key, err := command.ParseKey(args[0])
			if err != nil {
				return err
			}
			sites, err := agent.Sites(ctx, env, args[1:])
			if err != nil {
				return err
			}
			for _, site := range sites {
				if site.Target == nil {
					env.Warnf("%v", site.Err)
					continue
				}
				export := &mcsv1beta1.ServiceExport{}
				if err := site.Target.Get(ctx, key.Namespace, key.Name, export); err == nil {
					return show(ctx, env, site.Target, export, podCIDRs)
				} else if !apierrors.IsNotFound(err) {
					return err
				}
			}
			return fmt.Errorf("none of the clusters that were read has a ServiceExport %s; name the context of one that exports the Service", key)
		})
	cmd.Flags().StringToStringVar(&podCIDRs, "pod-cidrs", nil, "ID=RANGE,...: the ranges from which a cluster connects, instead of those that are read (repeatable)")
	return cmd
}

// show prints the policy for one cluster that exports the Service. Ranges that are given are taken
// instead of those of Peers.
func show(ctx context.Context, env *command.Env, target *command.Target, export *mcsv1beta1.ServiceExport, given map[string]string) error {
	key := client.ObjectKeyFromObject(export)
	s, err := read(ctx, target, key.Namespace)
	var peers v1alpha1.PeerList
	if err := errors.Join(err, target.Client.List(ctx, &peers)); err != nil {
		return target.Errorf("%w", err)
	}
	namespace, service := s.namespaces[key.Namespace], s.services[key]
	if len(service.Spec.Selector) == 0 {
		return target.Errorf("Service %s has no selector, or does not exist, so no NetworkPolicy can be made for its Pods; select those behind its EndpointSlices by hand", key)
	}
	from, err := importers(export, &namespace, peers.Items)
	if err != nil {
		return target.Errorf("%w", err)
	}
	if len(from) == 0 {
		return target.Errorf("no other cluster is in the scope of ServiceExport %s, so there is nothing to admit", key)
	}
	for _, id := range slices.Sorted(maps.Keys(given)) {
		at := slices.IndexFunc(from, func(i importer) bool { return string(i.id) == id })
		if at < 0 {
			return target.Errorf("--pod-cidrs %s=%s: cluster %s is not in the scope of ServiceExport %s; expected one that is: %s", id, given[id], id, key,
				model.Join(model.Map(from, func(i importer) model.ClusterID { return i.id }), ", "))
		}
		if from[at].pods, err = model.ParsePrefixes(strings.Split(given[id], ",")); err != nil {
			return fmt.Errorf("--pod-cidrs %s=%s: %w", id, given[id], err)
		}
	}
	comments := fmt.Sprintf("# For context %s. It admits to the Pods of exported Service %s:\n", target.Context, key)
	for _, i := range from {
		if len(i.pods) == 0 {
			return target.Errorf("no Pod range of cluster %s is known; pass the addresses from which its Pods connect as --pod-cidrs %s=10.20.0.0/16", i.id, i.id)
		}
		comments += fmt.Sprintf("#   cluster %s: %s\n", i.id, i)
	}
	content, _ := yaml.Marshal(build(service, from)) // strings and numbers
	if len(selecting(s.policies[key.Namespace], service.Spec.Selector)) == 0 {
		env.Warnf("context %q: no NetworkPolicy selects the Pods of Service %s, so they admit every client; with this one, they admit only these clusters", target.Context, key)
	}
	_, err = fmt.Fprintf(command.Whole(env.Out), "%s# If Pods connect from other addresses, such as those of Nodes, pass them: --pod-cidrs %s=RANGE,...\n%s", comments, from[0].id, content)
	return err
}

// Check finds the exports of a cluster whose Pods admit no address of a cluster that imports
// them: one finding for each export.
func Check(ctx context.Context, target *command.Target, exports []mcsv1beta1.ServiceExport, peers []v1alpha1.Peer) (all []finding.Finding, err error) {
	s, err := read(ctx, target, metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}
	for i := range exports {
		export := &exports[i]
		namespace, policies := s.namespaces[export.Namespace], s.policies[export.Namespace]
		service := s.services[client.ObjectKeyFromObject(export)]
		if len(service.Spec.Selector) == 0 || len(policies) == 0 {
			continue
		}
		from, _ := importers(export, &namespace, peers) // status shows a scope that cannot be read
		found, err := closed(ctx, target, service, policies, from)
		if err != nil {
			return all, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// state is what decides who connects to the Pods of Services.
type state struct {
	namespaces map[string]corev1.Namespace
	services   map[client.ObjectKey]corev1.Service
	// policies are those of a namespace.
	policies map[string][]networkingv1.NetworkPolicy
}

// read reads the state of one namespace, or of all.
func read(ctx context.Context, target *command.Target, namespace string) (s state, err error) {
	var namespaces corev1.NamespaceList
	var services corev1.ServiceList
	var policies networkingv1.NetworkPolicyList
	within := client.InNamespace(namespace)
	err = errors.Join(target.Client.List(ctx, &namespaces), target.Client.List(ctx, &services, within), target.Client.List(ctx, &policies, within))
	if err != nil {
		return s, fmt.Errorf("read what NetworkPolicies select: %w", err)
	}
	s = state{map[string]corev1.Namespace{}, map[client.ObjectKey]corev1.Service{}, map[string][]networkingv1.NetworkPolicy{}}
	for _, one := range namespaces.Items {
		s.namespaces[one.Name] = one
	}
	for _, one := range services.Items {
		s.services[client.ObjectKeyFromObject(&one)] = one
	}
	for _, one := range policies.Items {
		s.policies[one.Namespace] = append(s.policies[one.Namespace], one)
	}
	return s, nil
}

// closed finds a Pod of the Service from which policies keep a cluster away; nothing if there is none.
func closed(ctx context.Context, target *command.Target, service corev1.Service, policies []networkingv1.NetworkPolicy, from []importer) ([]finding.Finding, error) {
	var pods corev1.PodList
	key := client.ObjectKeyFromObject(&service)
	if err := target.Client.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabels(service.Spec.Selector)); err != nil {
		return nil, fmt.Errorf("read the Pods of Service %s: %w", key, err)
	}
	for _, pod := range pods.Items {
		chosen := selecting(policies, pod.Labels)
		if len(chosen) == 0 || pod.Spec.HostNetwork { // which is no subject of a policy
			continue
		}
		for _, i := range from {
			if len(i.pods) == 0 || admits(chosen, i.pods) {
				continue
			}
			names := model.Map(chosen, func(p networkingv1.NetworkPolicy) string { return p.Namespace + "/" + p.Name })
			return []finding.Finding{{
				Object: "NetworkPolicy " + strings.Join(names, ", "), Reason: "NotAdmitted",
				Message: fmt.Sprintf("Pods of exported Service %s, such as %s, admit no address of cluster %s (%s, spec.acceptedCIDRs of Peer %s); podSelector and namespaceSelector match no Pod of another cluster",
					key, pod.Name, i.id, i, i.id),
				Fix: fmt.Sprintf("kubectl comity networkpolicy %s %s | kubectl --context %s apply -f -", key, target.Context, target.Context),
			}}, nil
		}
	}
	return nil, nil
}

// importer is a cluster in the scope of an export, with the ranges of its Pods.
type importer struct {
	id   model.ClusterID
	pods []netip.Prefix
}

func (i importer) String() string { return strings.Join(model.Map(i.pods, netip.Prefix.String), ", ") }

// Scope has the peers that may import an export.
func Scope(export *mcsv1beta1.ServiceExport, namespace *corev1.Namespace, peers []v1alpha1.Peer) (model.Scope, error) {
	members := model.Map(peers, func(peer v1alpha1.Peer) model.Member {
		return model.Member{ID: model.ClusterID(peer.Name), Labels: peer.Labels}
	})
	return model.EffectiveScope(client.ObjectKeyFromObject(export), export, namespace, members)
}

// importers are the peers in the scope of an export, with the ranges that their Peers accept,
// since a join wrote them.
func importers(export *mcsv1beta1.ServiceExport, namespace *corev1.Namespace, peers []v1alpha1.Peer) (all []importer, err error) {
	scope, err := Scope(export, namespace, peers)
	for _, peer := range peers {
		if id := model.ClusterID(peer.Name); scope.Contains(id) && !peer.Spec.Removed {
			pods, _ := model.ParsePrefixes(peer.Spec.AcceptedCIDRs) // the definition of Peers admits nothing else
			all = append(all, importer{id, pods})
		}
	}
	return all, err
}

// build is the policy that admits importers to the Pods of a Service at its target ports.
func build(service corev1.Service, from []importer) *networkingv1.NetworkPolicy {
	rule := networkingv1.NetworkPolicyIngressRule{}
	for _, i := range from {
		for _, text := range model.Map(i.pods, netip.Prefix.String) {
			rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: text}})
		}
	}
	for _, port := range service.Spec.Ports {
		rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{Protocol: new(port.Protocol), Port: new(port.TargetPort)}) // an API server set both
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
	admitted := func(peer networkingv1.NetworkPolicyPeer) bool {
		return peer.IPBlock != nil && slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return inBlock(*peer.IPBlock, r) })
	}
	for _, policy := range policies {
		for _, rule := range policy.Spec.Ingress {
			if len(rule.From) == 0 || slices.ContainsFunc(rule.From, admitted) {
				return true
			}
		}
	}
	return false
}

// inBlock is true if a part of a range is in a block, and no exception has all of it.
func inBlock(block networkingv1.IPBlock, r netip.Prefix) bool {
	cidr, err := netip.ParsePrefix(block.CIDR)
	return err == nil && cidr.Overlaps(r) && !slices.ContainsFunc(block.Except, func(text string) bool {
		except, err := netip.ParsePrefix(text)
		return err == nil && except.Overlaps(r) && except.Bits() <= r.Bits()
	})
}
