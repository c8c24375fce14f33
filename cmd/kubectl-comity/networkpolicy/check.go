// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/sync/exchange/v1alpha1"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

// Check finds the exports of a cluster whose Pods admit no address of a cluster that imports
// them: one finding for each export. contexts are those of the command that fixes it, this
// cluster's first.
func Check(ctx context.Context, target *command.Target, exports []*mcsv1beta1.ServiceExport, peers []v1alpha1.Peer, known Known, contexts string) (all []finding.Finding, err error) {
	namespaces := map[string]*namespaced{}
	for _, export := range exports {
		n := namespaces[export.Namespace]
		if n == nil {
			if n, err = read(ctx, target, export.Namespace); err != nil {
				return all, target.Errorf("read what NetworkPolicies of namespace %s select: %w", export.Namespace, err)
			}
			namespaces[export.Namespace] = n
		}
		from, _ := importers(export, &n.namespace, peers, known) // status shows a scope that cannot be read
		key := client.ObjectKeyFromObject(export).String()
		if policies, why := n.closed(export.Name, from); policies != "" {
			all = append(all, finding.Finding{
				Object: "NetworkPolicy " + policies, Reason: "NotAdmitted",
				Message: fmt.Sprintf("Pods of exported Service %s, %s; podSelector and namespaceSelector match no Pod of another cluster", key, why),
				Fix:     fmt.Sprintf("kubectl comity networkpolicy %s %s | kubectl --context %s apply -f -", key, contexts, target.Context),
			})
		}
	}
	return all, nil
}

// namespaced is what decides who connects to the Pods of a namespace.
type namespaced struct {
	namespace corev1.Namespace
	policies  networkingv1.NetworkPolicyList
	services  map[string]labels.Selector
	pods      []*corev1.Pod
}

// read reads no Pods where there is no policy.
func read(ctx context.Context, target *command.Target, name string) (*namespaced, error) {
	n := &namespaced{services: map[string]labels.Selector{}}
	if err := target.Client.List(ctx, &n.policies, client.InNamespace(name)); err != nil || len(n.policies.Items) == 0 {
		return n, err
	}
	var services corev1.ServiceList
	if err := target.Client.List(ctx, &services, client.InNamespace(name)); err != nil {
		return n, err
	}
	for _, service := range services.Items {
		if len(service.Spec.Selector) > 0 {
			n.services[service.Name] = labels.SelectorFromSet(service.Spec.Selector)
		}
	}
	if err := target.Client.Get(ctx, client.ObjectKey{Name: name}, &n.namespace); err != nil {
		return n, err
	}
	return n, join.Each(ctx, target.Client, &corev1.PodList{}, func(pod *corev1.Pod) error {
		n.pods = append(n.pods, pod)
		return nil
	}, client.InNamespace(name))
}

// closed names the policies that keep a cluster away from a Pod of the Service; empty if none do.
func (n *namespaced) closed(service string, from []importer) (policies, why string) {
	for _, pod := range n.pods {
		selector := n.services[service]
		if selector == nil || !selector.Matches(labels.Set(pod.Labels)) || pod.Spec.HostNetwork { // which is no subject of a policy
			continue
		}
		chosen := selecting(n.policies.Items, pod.Labels)
		for _, i := range from {
			if len(chosen) == 0 || len(i.Pods) == 0 || admits(chosen, i.Pods) {
				continue
			}
			var names []string
			for _, policy := range chosen {
				names = append(names, policy.Namespace+"/"+policy.Name)
			}
			return strings.Join(names, ", "), fmt.Sprintf("such as %s, admit no address of cluster %s (%s, %s)",
				pod.Name, i.id, strings.Join(model.PrefixTexts(i.Pods), ", "), i.Source)
		}
	}
	return "", ""
}
