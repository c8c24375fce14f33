// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pmezard/go-difflib/difflib"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join/corefile"
)

// plan is what is to be done in one cluster. Its JSON is what -o prints.
type plan struct {
	Context string `json:"context"`
	// Changed is true if something was changed, or would be with --dry-run.
	Changed bool   `json:"changed"`
	DryRun  bool   `json:"dryRun,omitempty"`
	Diff    string `json:"diff,omitempty"`
	// Served is true once every replica of CoreDNS serves the change.
	Served   bool     `json:"served"`
	Warnings []string `json:"warnings,omitempty"`

	target *command.Target
	found  found
	// before and after are the Corefile; the same if it stays.
	before, after string
	// role is true if the ClusterRole and its binding are to be made, or removed.
	role bool
}

// plan reads one cluster and checks whether it can be changed. It writes nothing.
func (o options) plan(ctx context.Context, target *command.Target) (*plan, error) {
	f, err := inspect(ctx, target)
	if err != nil {
		return nil, err
	}
	if reason := f.refusal(); reason != "" {
		return nil, target.Errorf("nothing is changed: %s", reason)
	}
	p := &plan{Context: target.Context, DryRun: o.dryRun, target: target, found: f, before: f.config.Data[configKey]}
	change := corefile.Disable
	if o.enable {
		if err := f.checkVersion(o.version); err != nil {
			return nil, target.Errorf("nothing is changed: %w", err)
		}
		change = corefile.Enable
		p.warn()
	}
	if p.after, err = change(p.before); err != nil {
		return nil, target.Errorf("ConfigMap kube-system/coredns, key Corefile: %w", err)
	}
	differs := hasRole
	if o.enable {
		differs = lacksRight
	}
	p.role, err = differs(ctx, target, f.account())
	p.Changed, p.Diff = p.role || p.before != p.after, p.diff(o.enable)
	return p, err
}

// warn collects what the administrator must know after enabling.
func (p *plan) warn() {
	warn := func(text string) { p.Warnings = append(p.Warnings, text) }
	if p.found.kubeadm {
		warn("kubeadm upgrade stops at the option multicluster; run kubectl comity coredns disable before it, and enable after it")
	}
	if release := p.found.config.Annotations["meta.helm.sh/release-name"]; release != "" {
		warn("the Corefile belongs to the Helm release " + release + ", whose next upgrade takes the change back; make it in the values of that release too")
	}
	if why, fix := p.found.nodeLocalProblem(); why != "" {
		warn(why + "; " + fix)
	}
}

// nodeLocalProblem says what NodeLocal DNSCache lacks, and what to do; empty if it does not run or lacks nothing.
func (f found) nodeLocalProblem() (why, fix string) {
	if !f.nodeLocalRuns {
		return "", ""
	}
	if block := corefile.NodeLocal(f.nodeLocal); block != "" {
		return "NodeLocal DNSCache runs and sends queries for " + corefile.Zone + " elsewhere",
			"add this server block to the Corefile in ConfigMap kube-system/node-local-dns, and restart it (kubectl --context " +
				f.context + " -n kube-system rollout restart daemonset/node-local-dns):\n" + indented(block)
	}
	if !strings.Contains(f.nodeLocal, corefile.Zone) {
		return "NodeLocal DNSCache runs without a server block for the cluster's own domain", "make sure that it forwards " + corefile.Zone + " to CoreDNS"
	}
	return "", ""
}

// diff is the whole change as text.
func (p *plan) diff(enable bool) string {
	text := unified("ConfigMap kube-system/coredns, key Corefile", p.before, p.after)
	if !p.role {
		return text
	}
	before, after := "", roleText(p.found.account())
	if !enable {
		before, after = after, before
	}
	return text + unified("ClusterRole and ClusterRoleBinding "+roleName, before, after)
}

// unified is the difference of two texts as diff -u prints it, under name.
func unified(name, before, after string) string {
	text, _ := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{ // a builder of strings gives no error
		A: slices.Collect(strings.Lines(before)), B: slices.Collect(strings.Lines(after)), FromFile: name, ToFile: name, Context: 3,
	})
	return text
}

// print shows the plan before it is carried out.
func (p *plan) print(env *command.Env) {
	if !p.Changed {
		env.Printf("context %q: there is nothing to change\n", p.Context)
	} else {
		env.Printf("context %q:\n%s", p.Context, p.Diff)
	}
	for _, warning := range p.Warnings {
		env.Warnf("context %q: %s", p.Context, warning)
	}
}

// execute gives the right before the Corefile asks for it, and takes it away
// only after no replica uses it.
func (o *options) execute(ctx context.Context, env *command.Env, p *plan) error {
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
		env.Printf("context %q: %s\n", p.Context, text)
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
	err := command.Await(ctx, func(ctx context.Context) error {
		var deployment appsv1.Deployment
		if err := p.target.Client.Get(ctx, client.ObjectKeyFromObject(p.found.deployment), &deployment); err != nil {
			return err
		}
		want, s := ptr.Deref(deployment.Spec.Replicas, 1), deployment.Status
		if s.ObservedGeneration < deployment.Generation || s.UpdatedReplicas != want || s.Replicas != want || s.AvailableReplicas != want {
			return fmt.Errorf("%d of %d replicas of Deployment kube-system/%s are up to date and available",
				min(s.UpdatedReplicas, s.AvailableReplicas), want, deployment.Name)
		}
		return nil
	})
	if err != nil {
		return p.target.Errorf("CoreDNS does not serve the change after %s: %w; see kubectl --context %s -n kube-system logs deployment/coredns; repeat the command, or revert it",
			o.timeout, err, p.Context)
	}
	return nil
}

// roleName is that of the ClusterRole and of its binding. CoreDNS's own role,
// system:coredns, is rewritten by kubeadm upgrade and by add-on managers: a
// rule in it would be lost while the Corefile still has the zone, and a CoreDNS
// that may not read ServiceImports does not become ready.
const roleName = "comity-coredns"

// fieldOwner owns what this command applies.
const fieldOwner = "kubectl-comity"

// roleText lets an account of kube-system read ServiceImports.
func roleText(account string) string {
	return fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: %[1]s
  labels:
    app.kubernetes.io/managed-by: %[2]s
rules:
- apiGroups: [multicluster.x-k8s.io]
  resources: [serviceimports]
  verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: %[1]s
  labels:
    app.kubernetes.io/managed-by: %[2]s
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: %[1]s
subjects:
- kind: ServiceAccount
  namespace: kube-system
  name: %[3]s
`, roleName, fieldOwner, account)
}

func roleObjects(account string) (objects []*unstructured.Unstructured) {
	for text := range strings.SplitSeq(roleText(account), "---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
			panic(err) // not reached: the text is fixed
		}
		objects = append(objects, object)
	}
	return objects
}
