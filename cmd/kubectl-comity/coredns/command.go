// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/join/corefile"
	"github.com/comity-mcs/comity/sync/model"
)

const enableLong = `Let CoreDNS serve clusterset.local.

The command adds the zone to the plugin kubernetes of the Corefile, allows CoreDNS's
account to read ServiceImports (ClusterRole comity-coredns), and restarts CoreDNS.
Nothing is changed in any of the clusters if CoreDNS is older than 1.12.2 in one of
them, or is managed by a cloud provider or another tool; the command names the recipe.

Run disable before kubeadm upgrade, which fails otherwise, and enable after it.`

// New gives the commands coredns enable and coredns disable.
func New(env *command.Env) *cobra.Command {
	return command.Group("coredns", "Let CoreDNS serve clusterset.local, or revert that", "",
		newChange(env, true, "enable", "Let CoreDNS serve clusterset.local", enableLong),
		newChange(env, false, "disable", "Revert the changes of coredns enable",
			"Revert the changes of coredns enable. Names under clusterset.local no longer resolve."))
}

// options are the flags.
type options struct {
	enable  bool
	dryRun  bool
	timeout time.Duration
	// version is CoreDNS's where its image does not say.
	version string
}

func newChange(env *command.Env, enable bool, verb, short, long string) *cobra.Command {
	o := options{enable: enable}
	cmd := env.Command(verb+" [CONTEXT...]", short, long,
		"  kubectl comity coredns "+verb+" a b --dry-run\n  kubectl comity coredns "+verb+" a b", 0, o.run)
	flags := cmd.Flags()
	flags.BoolVar(&o.dryRun, "dry-run", false, "Print what would change, and change nothing")
	flags.DurationVar(&o.timeout, "timeout", 4*time.Minute, "How long to wait until every replica of CoreDNS has restarted")
	if enable {
		flags.StringVar(&o.version, "coredns-version", "", "The version of CoreDNS, if the tag of its image does not contain it")
	}
	return cmd
}

// run plans the change of each cluster, then makes all, then awaits all.
func (o *options) run(ctx context.Context, env *command.Env, args []string) error {
	targets, err := env.OpenAll(ctx, args)
	if err != nil {
		return err
	}
	var plans []*plan
	var refused error
	for _, target := range targets {
		p, err := o.plan(ctx, target)
		refused = errors.Join(refused, err)
		plans = append(plans, p)
	}
	if refused != nil {
		return refused
	}
	for _, p := range plans {
		env.Printf("context %q:\n%s", p.found.Context, cmp.Or(p.diff, "there is nothing to change\n"))
		for _, warning := range p.warnings {
			env.Warnf("context %q: %s", p.found.Context, warning)
		}
	}
	if o.dryRun {
		return nil
	}
	failed := make([]error, len(plans)) // side by side, since most of the time is spent waiting
	command.InParallel(plans, func(i int, p *plan) { failed[i] = o.execute(ctx, env, p) })
	return command.Incomplete(errors.Join(failed...))
}

// plan is what is to be done in one cluster.
type plan struct {
	found found
	// diff is what changes, for people.
	diff     string
	warnings []string
	// objects are to be applied, in this order.
	objects []runtime.ApplyConfiguration
	// restarts is true if CoreDNS is to be restarted, and revokes if the ClusterRole and its
	// binding are to be removed after that.
	restarts, revokes bool
}

// annotationCorefile, on the Pods of CoreDNS, has the hash of the Corefile for which they were
// restarted. A replica that reloads the file by itself takes up to two minutes for that, and
// does not say when it has done so.
const annotationCorefile = "comity.dev/corefile"

// plan reads one cluster and checks whether it can be changed. It writes nothing.
func (o options) plan(ctx context.Context, target *command.Target) (*plan, error) {
	f, err := inspect(ctx, target)
	if err != nil {
		return nil, err
	}
	if owner, recipe := f.owner(); owner != "" {
		return nil, target.Errorf("nothing is changed: %s; follow the recipe for that: %s", owner, recipe)
	}
	p, change := &plan{found: f}, corefile.Disable
	if o.enable {
		if problem := f.outdated(o.version); problem.Reason != "" {
			return nil, target.Errorf("nothing is changed: %s; first: %s", problem.Message, problem.Fix)
		}
		if unserved, err := join.Unserved(target.Client, mcsv1alpha1.GroupVersion.String(), "ServiceImport"); err != nil || len(unserved) > 0 {
			return nil, target.Errorf("nothing is changed: %w", cmp.Or(err, errors.New("the API server does not serve ServiceImports in version v1alpha1; install Comity first")))
		}
		p.warnings, change = f.warnings(), corefile.Enable
		lacks, err := f.lacksRight(ctx)
		if err != nil {
			return nil, err
		}
		if lacks { // before the Corefile asks for it
			p.objects = roles(f.account())
			p.diff = "+ClusterRole and ClusterRoleBinding " + roleName + ", by which CoreDNS reads ServiceImports\n"
		}
	} else if p.revokes, err = f.hasRole(ctx); err != nil {
		return nil, err
	} else if p.revokes {
		p.diff = "-ClusterRole and ClusterRoleBinding " + roleName + "\n"
	}
	before, restarted := f.config.Data[configKey], f.deployment.Spec.Template.Annotations[annotationCorefile]
	after, err := change(before)
	if err != nil {
		return nil, target.Errorf("ConfigMap kube-system/coredns, key Corefile: %w", err)
	}
	if before != after {
		// The resourceVersion makes the API server refuse a file that changed since the diff was shown.
		p.objects = append(p.objects, corev1ac.ConfigMap(f.config.Name, namespace).WithResourceVersion(f.config.ResourceVersion).WithData(map[string]string{configKey: after}))
		p.diff += unified("ConfigMap kube-system/coredns, key Corefile", before, after)
	}
	// A change that was interrupted before the restart is finished.
	hash := model.Hash(after, 8)
	if p.restarts = before != after || restarted != hash && model.AppliedBy(f.config, fieldOwner, ""); p.restarts {
		template := corev1ac.PodTemplateSpec().WithAnnotations(map[string]string{annotationCorefile: hash})
		p.objects = append(p.objects, appsv1ac.Deployment(f.deployment.Name, namespace).WithSpec(appsv1ac.DeploymentSpec().WithTemplate(template)))
		p.diff += "Deployment kube-system/coredns restarts\n"
	}
	return p, nil
}

// warnings are what the administrator must know after enabling.
func (f found) warnings() (all []string) {
	if f.kubeadm {
		all = append(all, "kubeadm upgrade stops at the option multicluster; run kubectl comity coredns disable before it, and enable after it")
	}
	if release := f.config.Annotations["meta.helm.sh/release-name"]; release != "" {
		all = append(all, "the Corefile belongs to the Helm release "+release+", whose next upgrade takes the change back; make it in the values of that release too")
	}
	if problem := f.bypass(); f.bypassed {
		all = append(all, problem.Object+": "+problem.Message+"; "+problem.Fix)
	}
	return all
}

// unified is the difference of two texts as diff -u prints it, under name.
func unified(name, before, after string) string {
	text, _ := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{ // a builder of strings gives no error
		A: slices.Collect(strings.Lines(before)), B: slices.Collect(strings.Lines(after)), FromFile: name, ToFile: name, Context: 3,
	})
	return text
}

// execute gives the right before the Corefile asks for it, and takes it away
// only after no replica uses it.
func (o *options) execute(ctx context.Context, env *command.Env, p *plan) error {
	for _, object := range p.objects {
		if err := p.found.Client.Apply(ctx, object, client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
			return p.found.Errorf("apply the change: %w", err)
		}
	}
	if p.restarts {
		env.Printf("context %q: waiting until CoreDNS has restarted\n", p.found.Context)
	}
	if err := o.await(ctx, p); err != nil {
		return err
	}
	env.Printf("context %q: every replica of CoreDNS has the change\n", p.found.Context)
	if !p.revokes {
		return nil
	}
	for _, object := range stored() {
		if err := client.IgnoreNotFound(p.found.Client.Delete(ctx, object)); err != nil {
			return p.found.Errorf("delete %T %s: %w", object, roleName, err)
		}
	}
	return nil
}

// await waits until every replica has restarted. A CoreDNS that cannot serve the zone does not become ready.
func (o options) await(ctx context.Context, p *plan) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	err := command.Await(ctx, func(ctx context.Context) error {
		var deployment appsv1.Deployment
		if err := p.found.Client.Get(ctx, client.ObjectKeyFromObject(p.found.deployment), &deployment); err != nil {
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
		return p.found.Errorf("CoreDNS does not serve the change after %s: %w; see kubectl --context %s -n kube-system logs deployment/coredns; repeat the command, or revert it",
			o.timeout, err, p.found.Context)
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

// roles let an account of kube-system read ServiceImports.
func roles(account string) []runtime.ApplyConfiguration {
	labels := map[string]string{"app.kubernetes.io/managed-by": fieldOwner}
	return []runtime.ApplyConfiguration{
		rbacv1ac.ClusterRole(roleName).WithLabels(labels).WithRules(
			rbacv1ac.PolicyRule().WithAPIGroups(mcsv1alpha1.GroupName).WithResources("serviceimports").WithVerbs("list", "watch")),
		rbacv1ac.ClusterRoleBinding(roleName).WithLabels(labels).
			WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(roleName)).
			WithSubjects(rbacv1ac.Subject().WithKind(rbacv1.ServiceAccountKind).WithNamespace(namespace).WithName(account)),
	}
}

// stored are the objects of roles to be read or deleted.
func stored() []client.Object {
	named := metav1.ObjectMeta{Name: roleName}
	return []client.Object{&rbacv1.ClusterRole{ObjectMeta: named}, &rbacv1.ClusterRoleBinding{ObjectMeta: named}}
}
