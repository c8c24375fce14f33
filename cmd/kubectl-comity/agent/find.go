// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/model"
)

// NameLabel selects Comity's Deployment and Pods, however they were installed, as Labels do.
const NameLabel = "app.kubernetes.io/name=comity"

// Labels are those of Comity's Deployment and Pods.
var Labels = client.MatchingLabels{"app.kubernetes.io/name": "comity"}

// What Find's errors are, for errors.Is.
var (
	// ErrNotInstalled: the cluster has no agent. Find returns what one that was there
	// stated, if its Lease is left.
	ErrNotInstalled = errors.New("no Comity agent is installed")
	// ErrSeveral: the cluster has more than one agent.
	ErrSeveral = errors.New("more than one Comity agent is installed")
	// ErrNotRunning: Comity is installed, and no replica leads. Find returns what
	// the last leader stated as well.
	ErrNotRunning = errors.New("no replica of the agent leads")
)

// Agent is the agent of one cluster.
type Agent struct {
	model.AgentInfo
	// Namespace is Comity's own in that cluster.
	Namespace string
	// Pod is the leader's; nil with ErrNotRunning.
	Pod *corev1.Pod
	// Renewed is when the leader last renewed its Lease.
	Renewed time.Time
}

// Container is the agent's in its Pod, or else the first one.
func (a Agent) Container() corev1.Container {
	containers := a.Pod.Spec.Containers
	return containers[max(0, slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == "comity" }))]
}

// Find gives the agent of the cluster that target leads to. It is there as soon
// as the leader has renewed its Lease once after its start.
func Find(ctx context.Context, target *command.Target) (Agent, error) {
	var leases coordinationv1.LeaseList
	if err := target.Client.List(ctx, &leases, client.MatchingFields{metav1.ObjectNameField: model.LeaderLease}); err != nil {
		return Agent{}, target.Errorf("find the agent: %w", err)
	}
	var installed, left []Agent
	var problem error
	for _, lease := range leases.Items {
		pod, err := leader(ctx, target, lease)
		if err != nil {
			return Agent{}, err
		}
		there := pod != nil
		if !there { // the Lease outlives an uninstalled release
			deployments, err := Deployments(ctx, target, lease.Namespace)
			if err != nil {
				return Agent{}, err
			}
			there = len(deployments) > 0
		}
		if described, err := describe(target, lease, pod); there {
			installed, problem = append(installed, described), err
		} else {
			left = append(left, described)
		}
	}
	switch {
	case len(installed) == 1:
		return installed[0], problem
	case len(installed) == 0:
		return append(left, Agent{})[0], target.Errorf("%w: no namespace has a Lease %s of a running agent; see docs/install.md", ErrNotInstalled, model.LeaderLease)
	}
	var namespaces []string
	for _, a := range installed {
		namespaces = append(namespaces, a.Namespace)
	}
	slices.Sort(namespaces)
	return Agent{}, target.Errorf("%w: one in each of the namespaces %s; uninstall all but one (helm list --all-namespaces)",
		ErrSeveral, strings.Join(namespaces, ", "))
}

// leader is the Pod that holds lease, or nil if there is none.
func leader(ctx context.Context, target *command.Target, lease coordinationv1.Lease) (*corev1.Pod, error) {
	name, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	if name == "" {
		return nil, nil
	}
	pod := &corev1.Pod{}
	if err := target.Get(ctx, lease.Namespace, name, pod); err != nil || pod.Status.Phase != corev1.PodRunning {
		return nil, client.IgnoreNotFound(err)
	}
	return pod, nil
}

// Deployments are those of the agent in a namespace.
func Deployments(ctx context.Context, target *command.Target, namespace string) ([]appsv1.Deployment, error) {
	var found appsv1.DeploymentList
	if err := target.Client.List(ctx, &found, client.InNamespace(namespace), Labels); err != nil {
		return nil, target.Errorf("find the agent's Deployment: %w", err)
	}
	return found.Items, nil
}

// describe reads what the leader states. pod is nil if none leads.
func describe(target *command.Target, lease coordinationv1.Lease, pod *corev1.Pod) (Agent, error) {
	info, err := model.ParseAgentInfo(lease.Annotations)
	found := Agent{AgentInfo: info, Namespace: lease.Namespace, Pod: pod, Renewed: ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time}
	if pod == nil {
		return found, target.Errorf("%w: Lease %s/%s was renewed at %s, and its holder %q does not run; see kubectl --context %s -n %s get pods -l %s",
			ErrNotRunning, lease.Namespace, lease.Name, found.Renewed.UTC().Format(time.RFC3339), ptr.Deref(lease.Spec.HolderIdentity, ""),
			target.Context, lease.Namespace, NameLabel)
	}
	if err != nil {
		return found, target.Errorf("Lease %s/%s does not describe the agent: %w; run a version of Comity that this plugin (%s) knows",
			lease.Namespace, lease.Name, err, command.Version)
	}
	return found, nil
}
