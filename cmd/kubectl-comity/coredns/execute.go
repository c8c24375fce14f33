// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

// pollInterval is the pause between two questions to a cluster.
const pollInterval = 2 * time.Second

// execute carries out all plans side by side: most of the time is spent waiting.
func (o options) execute(ctx context.Context, env *command.Env, plans []*plan) error {
	failed := make([]error, len(plans))
	command.InParallel(plans, func(i int, p *plan) { failed[i] = o.executeOne(ctx, env, p) })
	return command.Incomplete(errors.Join(failed...))
}

// executeOne gives the right before the Corefile asks for it, and takes it away
// only after no replica uses it.
func (o options) executeOne(ctx context.Context, env *command.Env, p *plan) error {
	if p.role && o.enable {
		for _, object := range roleObjects(p.found.account()) {
			config := client.ApplyConfigurationFromUnstructured(object)
			if err := p.target.Client.Apply(ctx, config, client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
				return p.target.Errorf("apply %s %s: %w", object.GetKind(), roleName, err)
			}
		}
	}
	if p.before != p.after {
		// The resourceVersion makes the API server refuse a file that changed since the diff was shown.
		p.found.config.Data[configKey] = p.after
		if err := p.target.Client.Update(ctx, p.found.config, client.FieldOwner(fieldOwner)); err != nil {
			return p.target.Errorf("update ConfigMap kube-system/coredns: %w", err)
		}
		if err := p.restart(ctx); err != nil {
			return p.target.Errorf("restart CoreDNS: %w", err)
		}
		o.say(env, p, "waiting until CoreDNS has restarted")
	}
	if err := o.await(ctx, p); err != nil {
		return err
	}
	p.Served = true
	o.say(env, p, "every replica of CoreDNS has the change")
	if p.role && !o.enable {
		for _, object := range roleObjects(p.found.account()) {
			if err := client.IgnoreNotFound(p.target.Client.Delete(ctx, object)); err != nil {
				return p.target.Errorf("delete %s %s: %w", object.GetKind(), roleName, err)
			}
		}
	}
	return nil
}

// say prints progress for people.
func (o options) say(env *command.Env, p *plan, text string) {
	if !o.Structured() {
		env.Printf("context %q: %s\n", p.target.Context, text)
	}
}

// restart makes every replica of CoreDNS read the Corefile. One that reloads it by itself
// takes up to two minutes for that, and does not say when it has done so.
func (p *plan) restart(ctx context.Context) error {
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`, time.Now().UTC().Format(time.RFC3339))
	return p.target.Client.Patch(ctx, p.found.deployment, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldOwner))
}

// await waits until every replica has restarted. A CoreDNS that cannot serve the zone does not become ready.
func (o options) await(ctx context.Context, p *plan) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	err := command.Await(ctx, pollInterval, func(ctx context.Context) error {
		var deployment appsv1.Deployment
		if err := p.target.Client.Get(ctx, client.ObjectKeyFromObject(p.found.deployment), &deployment); err != nil {
			return err
		}
		return rolledOut(&deployment)
	})
	if err != nil {
		return p.target.Errorf("CoreDNS does not serve the change after %s: %w; see kubectl --context %s -n kube-system logs deployment/coredns; repeat the command, or revert it",
			o.timeout, err, p.target.Context)
	}
	return nil
}

func rolledOut(d *appsv1.Deployment) error {
	want := ptr.Deref(d.Spec.Replicas, 1)
	s := d.Status
	if s.ObservedGeneration < d.Generation || s.UpdatedReplicas != want || s.Replicas != want || s.AvailableReplicas != want {
		return fmt.Errorf("%d of %d replicas of Deployment kube-system/%s are up to date and available", min(s.UpdatedReplicas, s.AvailableReplicas), want, d.Name)
	}
	return nil
}
