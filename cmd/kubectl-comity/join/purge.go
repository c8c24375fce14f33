// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/model"
)

// Bounds of waits. A Pod of the agent ends within its grace period of 40 s.
const (
	stopTimeout      = 2 * time.Minute
	namespaceTimeout = 2 * time.Minute
	pollInterval     = 500 * time.Millisecond
)

// stopAgent scales Comity to 0 and waits until no Pod of it runs. Otherwise its
// leader would make what is removed again.
func (l *leaving) stopAgent(ctx context.Context) error {
	deployments, err := agent.Deployments(ctx, l.target, l.leaver.Namespace)
	if err != nil {
		return err
	}
	for _, d := range deployments {
		if err := l.scaleToZero(ctx, d); err != nil {
			return err
		}
	}
	if l.how.DryRun {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return command.Await(ctx, pollInterval, func(ctx context.Context) error {
		pods, err := l.target.Clientset.CoreV1().Pods(l.leaver.Namespace).List(ctx, metav1.ListOptions{
			LabelSelector: agent.NameLabel, FieldSelector: "status.phase!=Succeeded,status.phase!=Failed",
		})
		switch {
		case err != nil:
			return l.target.Errorf("list the agent's Pods: %w", err)
		case len(pods.Items) > 0:
			return l.target.Errorf("%d Pods of the agent still run in namespace %s after %s (label %s); stop them",
				len(pods.Items), l.leaver.Namespace, stopTimeout, agent.NameLabel)
		}
		return nil
	})
}

func (l *leaving) scaleToZero(ctx context.Context, d appsv1.Deployment) error {
	replicas := ptr.Deref(d.Spec.Replicas, 1)
	if replicas == 0 {
		return nil
	}
	if !l.how.DryRun {
		_, err := l.target.Clientset.AppsV1().Deployments(d.Namespace).Patch(ctx, d.Name, types.MergePatchType, []byte(`{"spec":{"replicas":0}}`),
			metav1.PatchOptions{FieldManager: join.FieldOwner}, "scale")
		if err != nil {
			return l.target.Errorf("scale Deployment %s/%s to 0: %w", d.Namespace, d.Name, err)
		}
	}
	l.report.step(join.Step{
		Cluster: l.leaver.ID, Kind: "Deployment", Namespace: d.Namespace, Name: d.Name, Verb: join.Changed,
		Note: fmt.Sprintf("0 replicas; to continue with Comity, kubectl -n %s scale deployment %s --replicas=%d", d.Namespace, d.Name, replicas),
	})
	return nil
}

// awaitNamespaces waits until deleted namespaces are gone, so that a join that
// follows does not meet them. Not to see the end is a warning only.
func (l *leaving) awaitNamespaces(ctx context.Context) {
	targets := map[model.ClusterID]*command.Target{l.leaver.ID: l.target, join.HubID: l.atHub}
	for _, s := range l.remaining {
		targets[s.Agent.ID] = s.Target
	}
	ctx, cancel := context.WithTimeout(ctx, namespaceTimeout)
	defer cancel()
	for _, step := range l.report.steps {
		target := targets[step.Cluster]
		if step.Kind != "Namespace" || step.Verb != join.Deleted || target == nil {
			continue
		}
		if err := target.AwaitGone(ctx, step.Name); err != nil {
			l.env.Warnf("namespace %s of cluster %s: %v", step.Name, step.Cluster, err)
		}
	}
}
