// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
	// providerID is that of a Node, such as azure:///subscriptions/...
	providerID string
	// nodeLocal is the Corefile of NodeLocal DNSCache, nodeLocalRuns is true if it runs.
	nodeLocal     string
	nodeLocalRuns bool
	// kubeadm is true if kubeadm made the cluster.
	kubeadm bool
	// importsServed is true if the API server serves the ServiceImports that CoreDNS reads.
	importsServed bool
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
	if local := configMap("node-local-dns"); local != nil {
		f.nodeLocal = local.Data[configKey]
	}
	f.nodeLocalRuns = exists("node-local-dns", &appsv1.DaemonSet{})
	unserved, err := join.Unserved(target.Client, mcsv1alpha1.GroupVersion.String(), "ServiceImport")
	f.importsServed = len(unserved) == 0
	var nodes corev1.NodeList
	failed = errors.Join(failed, err, target.Client.List(ctx, &nodes, client.Limit(1)))
	if len(nodes.Items) > 0 {
		f.providerID = nodes.Items[0].Spec.ProviderID
	}
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

const (
	configKey = "Corefile"
	ownBlock  = corefile.Zone + ":53 {\n    errors\n    kubernetes " + corefile.Zone + " {\n        multicluster " + corefile.Zone + "\n    }\n}"
)

// rights is what is needed where this command changes nothing.
const rights = "It must be CoreDNS 1.12.2 or newer, and its account, here kube-system:coredns, must read ServiceImports: kubectl create clusterrole " + roleName +
	" --verb=list,watch --resource=serviceimports.multicluster.x-k8s.io && kubectl create clusterrolebinding " + roleName +
	" --clusterrole=" + roleName + " --serviceaccount=kube-system:coredns"

var customImport = regexp.MustCompile(`(?m)^\s*import\s+\S*custom\S*`)

// refusal says why this CoreDNS is not to be changed here: to whom it belongs, and where
// that takes a server block; empty if it may be changed.
func (f found) refusal() (why string) {
	switch {
	case f.deployment == nil && f.kubeDNS:
		why = "kube-dns (as on GKE) cannot serve the zone; run a CoreDNS of your own, name its address for " +
			corefile.Zone + " in stubDomains of ConfigMap kube-system/kube-dns, and let it serve the zone with"
	case f.config == nil || f.config.Data[configKey] == "" || f.deployment == nil:
		why = "there is no ConfigMap kube-system/coredns with a key Corefile and a Deployment of that name; add to the configuration of the cluster's DNS"
	case f.custom != nil || customImport.MatchString(f.config.Data[configKey]):
		why = f.provider() + " owns the Corefile; add the key clusterset.server to ConfigMap kube-system/coredns-custom, restart CoreDNS (" +
			f.restart("deployment/coredns") + "), and let it serve the zone with"
	case model.AppliedBy(f.config, "eks", ""):
		why = "Amazon EKS owns the Corefile; give the add-on coredns (aws eks update-addon --configuration-values) a \"corefile\" with"
	case f.config.Labels["addon.kops.k8s.io/name"] != "":
		why = "kOps owns the Corefile; set spec.kubeDNS.externalCoreFile of the cluster to a Corefile with"
	case f.config.Labels["addonmanager.kubernetes.io/mode"] == "Reconcile":
		why = "an add-on manager owns the Corefile (label addonmanager.kubernetes.io/mode: Reconcile); add to its source"
	default:
		return ""
	}
	return why + "\n" + indented(ownBlock) + "\n" + rights
}

// provider names who made the cluster, by its Nodes.
func (f found) provider() string {
	scheme, _, _ := strings.Cut(f.providerID, "://")
	return cmp.Or(map[string]string{"azure": "Azure Kubernetes Service", "k3s": "k3s"}[scheme], "the provider of the cluster")
}

// restart is the command that restarts a workload of kube-system.
func (f found) restart(workload string) string {
	return "kubectl --context " + f.Context + " -n kube-system rollout restart " + workload
}

func indented(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }

// account is the ServiceAccount that CoreDNS runs as.
func (f found) account() string {
	return cmp.Or(f.deployment.Spec.Template.Spec.ServiceAccountName, "default")
}

// tag matches the version behind the name of an image, or a version alone.
var tag = regexp.MustCompile(`(?:^|:)v?(\d+\.\d+\.\d+)[^/:]*(?:@.*)?$`)

// checkVersion says why CoreDNS is too old, or has nothing to serve; given is the user's own word, or empty.
func (f found) checkVersion(given string) error {
	why, fix := f.outdated(given)
	switch {
	case fix != "":
		return fmt.Errorf("%s; set a newer image first: %s", why, fix)
	case why != "":
		return errors.New(why)
	case !f.importsServed:
		return errors.New("the API server does not serve ServiceImports in version v1alpha1; install Comity first")
	}
	return nil
}

// outdated says why this version of CoreDNS cannot serve the zone, and the command that sets
// a newer one; without a command, the version is not known.
func (f found) outdated(given string) (why, fix string) {
	containers := f.deployment.Spec.Template.Spec.Containers
	c := containers[max(0, slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == "coredns" }))]
	match := tag.FindStringSubmatch(cmp.Or(given, c.Image))
	if match == nil {
		return fmt.Sprintf("the image of CoreDNS, %s, does not say its version; if that is %s or newer, give it with --coredns-version", c.Image, minimum), ""
	}
	if parsed := version.MustParseGeneric(match[1]); parsed.LessThan(minimum) {
		return fmt.Sprintf("CoreDNS is %s (image %s) and cannot serve %s; expected %s or newer", parsed, c.Image, corefile.Zone, minimum),
			fmt.Sprintf("kubectl --context %s -n kube-system set image deployment/coredns %s=%s", f.Context, c.Name, newer)
	}
	return "", ""
}

// Check says what keeps the cluster's DNS from serving the zone: nothing is found where it
// does. Before anything is installed, only what enable could not change is a problem.
func Check(ctx context.Context, target *command.Target, installed bool) (all []finding.Finding, err error) {
	f, err := inspect(ctx, target)
	if err != nil {
		return nil, err
	}
	served, zone := f.zone()
	add := func(severity finding.Severity, object, reason, message, fix, section string) {
		all = append(all, finding.Finding{Severity: severity, Object: object, Reason: reason, Message: message, Fix: fix,
			Docs: finding.Docs("coredns.md#" + section)})
	}
	const deployment, enable = "Deployment kube-system/coredns", "kubectl comity coredns enable "
	if f.deployment != nil {
		switch why, fix := f.outdated(""); {
		case fix != "":
			add(finding.Error, deployment, "VersionTooOld", why, fix, "which-version")
		case why != "" && !served:
			add(finding.Warning, deployment, "VersionUnknown", why, enable+target.Context+" --coredns-version VERSION", "which-version")
		}
	}
	severity := finding.Error
	if !installed {
		severity, zone.Severity = finding.Warning, finding.Warning
	}
	if !served && (installed || f.refusal() != "") {
		all = append(all, zone)
	}
	if installed && f.deployment != nil {
		lacks, err := f.lacksRight(ctx)
		if err != nil {
			return all, err
		}
		if lacks {
			add(finding.Error, "ServiceAccount kube-system/"+f.account(), "Forbidden",
				"CoreDNS may not list and watch ServiceImports, so it does not answer for "+corefile.Zone,
				enable+target.Context, "two-things-in-every-recipe")
		}
	}
	if why, fix := f.nodeLocalProblem(); why != "" {
		add(severity, "ConfigMap kube-system/node-local-dns", "ZoneNotForwarded", why, fix, "nodelocal-dnscache")
	}
	return all, nil
}

// zone says whether the configuration has the zone, and what to do if it has not.
func (f found) zone() (served bool, problem finding.Finding) {
	problem = finding.Finding{Severity: finding.Error, Object: "ConfigMap kube-system/coredns", Reason: "ZoneMissing", Docs: finding.Docs("coredns.md#two-things-in-every-recipe")}
	if why := f.refusal(); why != "" {
		has := func(config *corev1.ConfigMap) bool {
			return config != nil && strings.Contains(strings.Join(slices.Collect(maps.Values(config.Data)), "\n"), corefile.Zone)
		}
		problem.Message, problem.Fix = "no configuration of the cluster's DNS that is known has the zone "+corefile.Zone, why
		problem.Docs = finding.Docs("coredns.md")
		if f.config == nil && f.stubs == nil {
			problem.Object, problem.Severity = "", finding.Warning
		}
		return has(f.config) || has(f.custom) || f.deployment == nil && has(f.stubs), problem
	}
	text := f.config.Data[configKey]
	changed, err := corefile.Enable(text)
	if err != nil {
		problem.Message, problem.Fix = "key Corefile: "+err.Error(), "kubectl --context "+f.Context+" -n kube-system edit configmap coredns"
		return false, problem
	}
	problem.Message, problem.Fix = "the Corefile does not have the zone "+corefile.Zone+", so its names do not resolve in this cluster", "kubectl comity coredns enable "+f.Context
	return changed == text, problem
}
