// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/miekg/dns"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/agent"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join/corefile"
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
	}
	if err := o.await(ctx, env, p); err != nil {
		return err
	}
	if p.role && !o.enable {
		for _, object := range roleObjects(p.found.account()) {
			if err := client.IgnoreNotFound(p.target.Client.Delete(ctx, object)); err != nil {
				return p.target.Errorf("delete %s %s: %w", object.GetKind(), roleName, err)
			}
		}
	}
	return nil
}

// await restarts CoreDNS where needed, and waits until every replica serves the
// zone, or no longer does.
func (o options) await(ctx context.Context, env *command.Env, p *plan) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	how := "has read the Corefile again (up to two minutes; --restart is faster)"
	if p.before != p.after && (o.restart || !corefile.Reloads(p.before)) {
		how = "has restarted"
		patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`, time.Now().UTC().Format(time.RFC3339))
		if err := p.target.Client.Patch(ctx, p.found.deployment.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldOwner)); err != nil {
			return p.target.Errorf("restart CoreDNS: %w", err)
		}
	}
	if !o.Structured() && p.before != p.after {
		env.Printf("context %q: waiting until CoreDNS %s\n", p.target.Context, how)
	}
	if err := command.Await(ctx, pollInterval, func(ctx context.Context) error { return o.check(ctx, p) }); err != nil {
		return p.target.Errorf("CoreDNS does not serve the change after %s: %w; see kubectl --context %s -n kube-system logs deployment/%s; repeat the command, "+
			"or undo it with kubectl comity coredns %s",
			o.timeout, err, p.target.Context, p.found.deployment.Name, map[bool]string{true: "disable", false: "enable"}[o.enable])
	}
	p.Served = true
	if !o.Structured() {
		env.Printf("context %q: every replica of CoreDNS %s %s\n", p.target.Context, map[bool]string{true: "serves", false: "has ceased to serve"}[o.enable], corefile.Zone)
	}
	return nil
}

// check asks every replica once.
func (o options) check(ctx context.Context, p *plan) error {
	var deployment appsv1.Deployment
	if err := p.target.Client.Get(ctx, client.ObjectKeyFromObject(p.found.deployment), &deployment); err != nil {
		return err
	}
	if err := rolledOut(&deployment); err != nil {
		return err
	}
	selector := metav1.FormatLabelSelector(deployment.Spec.Selector)
	pods, err := p.target.Clientset.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil {
			continue
		}
		serves, err := servesZone(ctx, p.target, pod.Name, corefile.Port(p.after))
		if err != nil {
			return fmt.Errorf("ask Pod %s: %w", pod.Name, err)
		}
		if serves != o.enable {
			return fmt.Errorf("the answer of Pod %s is still that of the former Corefile", pod.Name)
		}
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

// askTimeout bounds one question to one replica. A server that forwards the zone
// to nobody takes some seconds to say so.
const askTimeout = 10 * time.Second

// servesZone asks one replica whether it answers for the zone by itself. The
// question goes through the API server, so that it needs no way into the cluster.
func servesZone(ctx context.Context, target *command.Target, pod string, port int) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	address, err := agent.Forward(ctx, target, namespace, pod, port)
	if err != nil {
		return false, err
	}
	question := new(dns.Msg)
	question.SetQuestion(corefile.Zone+".", dns.TypeSOA)
	client := dns.Client{Net: "tcp", Timeout: askTimeout}
	answer, _, err := client.ExchangeContext(ctx, question, address)
	if err != nil {
		return false, err
	}
	return answer.Rcode == dns.RcodeSuccess && answer.Authoritative && len(answer.Answer) > 0, nil
}
