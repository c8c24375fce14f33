// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
	"github.com/comity-mcs/comity/sync/join"
	"github.com/comity-mcs/comity/sync/join/corefile"
	"github.com/comity-mcs/comity/sync/model"
)

const namespace = metav1.NamespaceSystem

// found is what a cluster has of CoreDNS. Absent objects are nil.
type found struct {
	*command.Target
	config     *corev1.ConfigMap
	deployment *appsv1.Deployment
	// custom is ConfigMap coredns-custom, which a provider's Corefile includes, and stubs is
	// ConfigMap kube-dns, which names the servers of other zones.
	custom, stubs *corev1.ConfigMap
	// kubeDNS is true if the cluster is served by kube-dns.
	kubeDNS bool
	// bypassed is true if NodeLocal DNSCache runs and does not know the zone.
	bypassed bool
	// kubeadm is true if kubeadm made the cluster.
	kubeadm bool
}

// inspect reads what the cluster has of CoreDNS.
func inspect(ctx context.Context, target *command.Target) (found, error) {
	var failed error
	exists := func(name string, object client.Object) bool {
		err := target.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
		failed = errors.Join(failed, client.IgnoreNotFound(err))
		return err == nil
	}
	configMap := func(name string) *corev1.ConfigMap {
		if config := (&corev1.ConfigMap{}); exists(name, config) {
			return config
		}
		return nil
	}
	f := found{Target: target, config: configMap("coredns"), custom: configMap("coredns-custom"), stubs: configMap("kube-dns")}
	if d := (&appsv1.Deployment{}); exists("coredns", d) {
		f.deployment = d
	}
	f.kubeDNS = exists("kube-dns", &appsv1.Deployment{})
	f.kubeadm = exists("kubeadm-config", &corev1.ConfigMap{})
	local := configMap("node-local-dns")
	f.bypassed = exists("node-local-dns", &appsv1.DaemonSet{}) && !hasZone(local)
	if failed != nil {
		return f, target.Errorf("read the configuration of CoreDNS: %w", failed)
	}
	return f, nil
}

// lacksRight asks the API server whether CoreDNS's account may not list and watch
// ServiceImports, whoever grants it.
func (f found) lacksRight(ctx context.Context) (bool, error) {
	var needed join.Rights
	needed.Need("", mcsv1alpha1.GroupName, "serviceimports", "list watch")
	missing, err := f.Missing(ctx, namespace, f.account(), needed)
	return len(missing) > 0, err
}

// hasRole is true if this command made the ClusterRole or the binding.
func (f found) hasRole(ctx context.Context) (bool, error) {
	for _, object := range stored() {
		if err := f.Get(ctx, "", roleName, object); err == nil || !apierrors.IsNotFound(err) {
			return err == nil, err
		}
	}
	return false, nil
}

// minimum is the first CoreDNS whose plugin kubernetes has the option multicluster.
var minimum = version.MustParseGeneric("1.12.2")

// newer is the image that the advice for an older CoreDNS names.
const newer = "registry.k8s.io/coredns/coredns:v1.12.4"

const configKey = "Corefile"

var customImport = regexp.MustCompile(`(?m)^\s*import\s+\S*custom\S*`)

// owner says why this CoreDNS is not to be changed here, and where it is written how its owner
// lets it serve the zone; both are empty if it may be changed.
func (f found) owner() (why, recipe string) {
	switch {
	case f.deployment == nil && f.kubeDNS:
		why, recipe = "kube-dns (as on GKE) cannot serve the zone", "google-gke"
	case f.config == nil || f.config.Data[configKey] == "" || f.deployment == nil:
		why, recipe = "there is no ConfigMap kube-system/coredns with a key Corefile and a Deployment of that name", "two-things-in-every-recipe"
	case f.custom != nil || customImport.MatchString(f.config.Data[configKey]):
		why, recipe = "the provider of the cluster (Azure, k3s or another one) owns the Corefile, and takes additions from ConfigMap kube-system/coredns-custom",
			"azure-aks-k3s-and-other-clusters-with-coredns-custom"
	case model.AppliedBy(f.config, "eks", ""):
		why, recipe = "Amazon EKS owns the Corefile, by its add-on coredns", "amazon-eks"
	case f.config.Labels["addon.kops.k8s.io/name"] != "":
		why, recipe = "kOps owns the Corefile", "kops-and-add-on-managers"
	case f.config.Labels["addonmanager.kubernetes.io/mode"] == "Reconcile":
		why, recipe = "an add-on manager owns the Corefile (label addonmanager.kubernetes.io/mode: Reconcile)", "kops-and-add-on-managers"
	default:
		return "", ""
	}
	return why, finding.Docs("coredns.md#" + recipe)
}

// bypass is the problem if the cluster's DNS is bypassed.
func (f found) bypass() finding.Finding {
	return finding.Finding{
		Severity: finding.Error, Object: "ConfigMap kube-system/node-local-dns", Reason: "ZoneNotForwarded", Docs: finding.Docs("coredns.md#nodelocal-dnscache"),
		Message: "NodeLocal DNSCache runs and has no server block for " + corefile.Zone + ", so it sends queries for the zone elsewhere",
		Fix: "add to the Corefile in it a copy of the server block of the cluster's own domain, for " + corefile.Zone +
			":53 and without its line health; then " + f.kubectl("rollout restart daemonset/node-local-dns"),
	}
}

// hasZone is true if a ConfigMap, which may be nil, names the zone.
func hasZone(config *corev1.ConfigMap) bool {
	return config != nil && strings.Contains(fmt.Sprint(config.Data), corefile.Zone)
}

// enable is the command that configures CoreDNS.
func (f found) enable() string { return "kubectl comity coredns enable " + f.Context }

// kubectl is a command for kube-system.
func (f found) kubectl(arguments string) string {
	return "kubectl --context " + f.Context + " -n kube-system " + arguments
}

// account is the ServiceAccount that CoreDNS runs as.
func (f found) account() string {
	return cmp.Or(f.deployment.Spec.Template.Spec.ServiceAccountName, "default")
}

// tag matches the version behind the name of an image, or a version alone.
var tag = regexp.MustCompile(`(?:^|:)v?(\d+\.\d+\.\d+)[^/:]*(?:@.*)?$`)

// outdated is the problem that CoreDNS, of the version given, if any, or else that of its image,
// cannot serve the zone; empty if it can.
func (f found) outdated(given string) finding.Finding {
	containers := f.deployment.Spec.Template.Spec.Containers
	c := containers[max(0, slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == "coredns" }))]
	problem := finding.Finding{Object: "Deployment kube-system/coredns", Docs: finding.Docs("coredns.md#which-version")}
	match := tag.FindStringSubmatch(cmp.Or(given, c.Image))
	if match == nil {
		problem.Severity, problem.Reason = finding.Warning, "VersionUnknown"
		problem.Message = fmt.Sprintf("the image of CoreDNS, %s, does not say its version; expected %s or newer", c.Image, minimum)
		problem.Fix = f.enable() + " --coredns-version VERSION"
		return problem
	}
	parsed := version.MustParseGeneric(match[1])
	if !parsed.LessThan(minimum) {
		return finding.Finding{}
	}
	problem.Severity, problem.Reason = finding.Error, "VersionTooOld"
	problem.Message = fmt.Sprintf("CoreDNS is %s (image %s) and cannot serve %s; expected %s or newer", parsed, c.Image, corefile.Zone, minimum)
	problem.Fix = f.kubectl(fmt.Sprintf("set image deployment/coredns %s=%s", c.Name, newer))
	return problem
}

// Check says what keeps the cluster's DNS from serving the zone: nothing is found where it
// does. Before anything is installed, only what enable could not change is a problem.
func Check(ctx context.Context, target *command.Target, installed bool) (all []finding.Finding, err error) {
	f, err := inspect(ctx, target)
	if err != nil {
		return nil, err
	}
	served, zone := f.zone()
	if f.deployment != nil {
		if problem := f.outdated(""); problem.Severity == finding.Error || problem.Severity == finding.Warning && !served {
			all = append(all, problem)
		}
	}
	bypass := f.bypass()
	if !installed {
		zone.Severity, bypass.Severity = finding.Warning, finding.Warning
	}
	if owner, _ := f.owner(); !served && (installed || owner != "") {
		all = append(all, zone)
	}
	if installed && f.deployment != nil {
		lacks, err := f.lacksRight(ctx)
		if err != nil {
			return all, err
		}
		if lacks {
			all = append(all, finding.Finding{Severity: finding.Error, Object: "ServiceAccount kube-system/" + f.account(), Reason: "Forbidden",
				Message: "CoreDNS may not list and watch ServiceImports, so it does not answer for " + corefile.Zone,
				Fix:     f.enable(), Docs: finding.Docs("coredns.md#two-things-in-every-recipe")})
		}
	}
	if f.bypassed {
		all = append(all, bypass)
	}
	return all, nil
}

// zone says whether the configuration has the zone, and what to do if it has not.
func (f found) zone() (served bool, problem finding.Finding) {
	problem = finding.Finding{Severity: finding.Error, Object: "ConfigMap kube-system/coredns", Reason: "ZoneMissing", Docs: finding.Docs("coredns.md#two-things-in-every-recipe")}
	if why, recipe := f.owner(); why != "" {
		problem.Message, problem.Fix, problem.Docs = "no configuration of the cluster's DNS that is known has the zone "+corefile.Zone, why+"; follow the recipe for that", recipe
		if f.config == nil && f.stubs == nil {
			problem.Object, problem.Severity = "", finding.Warning
		}
		return hasZone(f.config) || hasZone(f.custom) || f.deployment == nil && hasZone(f.stubs), problem
	}
	text := f.config.Data[configKey]
	changed, err := corefile.Enable(text)
	if err != nil {
		problem.Message, problem.Fix = "key Corefile: "+err.Error(), f.kubectl("edit configmap coredns")
		return false, problem
	}
	problem.Message, problem.Fix = "the Corefile does not have the zone "+corefile.Zone+", so its names do not resolve in this cluster", f.enable()
	return changed == text, problem
}
