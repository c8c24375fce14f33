// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"fmt"
	"regexp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/comity-mcs/comity/sync/join/corefile"
)

// minimum is the first CoreDNS whose plugin kubernetes has the option multicluster.
var minimum = version.MustParseGeneric("1.12.2")

// newer is the image that the advice for an older CoreDNS names.
const newer = "registry.k8s.io/coredns/coredns:v1.12.4"

// found is what a cluster has of CoreDNS. Absent objects are nil.
type found struct {
	config     *corev1.ConfigMap
	deployment *appsv1.Deployment
	// custom is true if there is a ConfigMap coredns-custom, which a provider's Corefile includes.
	custom bool
	// kubeDNS is true if the cluster is served by kube-dns.
	kubeDNS bool
	// providerID is that of a Node, such as azure:///subscriptions/...
	providerID string
	// nodeLocal is the Corefile of NodeLocal DNSCache; empty if it does not run.
	nodeLocal string
	// nodeLocalRuns is true if it runs.
	nodeLocalRuns bool
	// kubeadm is true if kubeadm made the cluster.
	kubeadm bool
	// importsCRD is true if the API server serves the ServiceImports that CoreDNS reads.
	importsCRD bool
}

const (
	configKey = "Corefile"
	ownBlock  = corefile.Zone + ":53 {\n    errors\n    kubernetes " + corefile.Zone + " {\n        multicluster " + corefile.Zone + "\n    }\n}"
)

// rights is how CoreDNS's account gets its right where this command does not give it.
const rights = "let CoreDNS's account, here kube-system:coredns, read ServiceImports: kubectl create clusterrole " + roleName +
	" --verb=list,watch --resource=serviceimports.multicluster.x-k8s.io && kubectl create clusterrolebinding " + roleName +
	" --clusterrole=" + roleName + " --serviceaccount=kube-system:coredns"

var customImport = regexp.MustCompile(`(?m)^\s*import\s+\S*custom\S*`)

// refusal says why this CoreDNS is not to be changed here, and what to do
// instead; empty if it may be changed.
func (f found) refusal(contextName string) string {
	kubectl := "kubectl --context " + contextName + " -n kube-system"
	switch {
	case f.deployment == nil && f.kubeDNS:
		return "the cluster is served by kube-dns (as on GKE), which cannot serve " + corefile.Zone + "; run a CoreDNS 1.12.2 or newer of your own that serves the zone with\n" +
			indented(ownBlock) + "\nname its address for the domain " + corefile.Zone + " in stubDomains of ConfigMap kube-system/kube-dns; " + rights
	case f.config == nil || f.config.Data[configKey] == "" || f.deployment == nil:
		return "there is no ConfigMap kube-system/coredns with a key Corefile next to a Deployment kube-system/coredns; add to the configuration of the cluster's DNS:\n" +
			indented(ownBlock) + "\nit must be CoreDNS 1.12.2 or newer; " + rights
	case f.custom || customImport.MatchString(f.config.Data[configKey]):
		return f.provider() + " owns the Corefile and reads additions from ConfigMap kube-system/coredns-custom; add the key clusterset.server there with\n" + indented(ownBlock) +
			"\nand restart CoreDNS (" + kubectl + " rollout restart deployment/coredns); it must be CoreDNS 1.12.2 or newer; " + rights
	case appliedBy(f.config.ObjectMeta, "eks"):
		return "Amazon EKS owns the Corefile (add-on coredns) and would take a change back; set \"corefile\" in the add-on's configuration values (aws eks update-addon --addon-name coredns --configuration-values) to a Corefile with\n" +
			indented(ownBlock) + "\n" + rights
	case f.config.Labels["addon.kops.k8s.io/name"] != "":
		return "kOps owns the Corefile and would take a change back; set spec.kubeDNS.externalCoreFile of the cluster to a Corefile with\n" + indented(ownBlock) +
			"\n" + rights
	case f.config.Labels["addonmanager.kubernetes.io/mode"] == "Reconcile":
		return "an add-on manager owns the Corefile (label addonmanager.kubernetes.io/mode: Reconcile) and would take a change back; add to its source:\n" + indented(ownBlock) +
			"\n" + rights
	}
	return ""
}

// provider names who made the cluster, by its Nodes.
func (f found) provider() string {
	scheme, _, _ := strings.Cut(f.providerID, "://")
	switch scheme {
	case "azure":
		return "Azure Kubernetes Service"
	case "k3s":
		return "k3s"
	case "":
		return "the provider of the cluster"
	}
	return "the provider of the cluster (" + scheme + ")"
}

func appliedBy(meta metav1.ObjectMeta, manager string) bool {
	for _, entry := range meta.ManagedFields {
		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply {
			return true
		}
	}
	return false
}

func indented(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }

// container is CoreDNS's in its Deployment.
func (f found) container() corev1.Container {
	containers := f.deployment.Spec.Template.Spec.Containers
	for _, c := range containers {
		if c.Name == "coredns" {
			return c
		}
	}
	if len(containers) == 0 {
		return corev1.Container{}
	}
	return containers[0]
}

// account is the ServiceAccount that CoreDNS runs as.
func (f found) account() string {
	if name := f.deployment.Spec.Template.Spec.ServiceAccountName; name != "" {
		return name
	}
	return "default"
}

var numbers = regexp.MustCompile(`^v?\d+\.\d+\.\d+`)

// checkVersion says why CoreDNS is too old; given is the user's own word, or empty.
func (f found) checkVersion(contextName, given string) error {
	c := f.container()
	if given == "" {
		given = tagOf(c.Image)
	}
	parsed, err := version.ParseGeneric(strings.TrimPrefix(numbers.FindString(given), "v"))
	if err != nil {
		return fmt.Errorf("the version of CoreDNS is not known: its image is %s; expected a tag such as v1.12.4; if it is %s or newer, give it with --coredns-version", c.Image, minimum)
	}
	if parsed.LessThan(minimum) {
		return fmt.Errorf("CoreDNS is %s (image %s) and cannot serve %s; expected %s or newer; set a newer image first, for example: kubectl --context %s -n kube-system set image deployment/coredns %s=%s",
			parsed, c.Image, corefile.Zone, minimum, contextName, c.Name, newer)
	}
	return nil
}

// tagOf is what is behind the name of an image and before its digest.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if at := strings.LastIndexByte(image, ':'); at > strings.LastIndexByte(image, '/') {
		return image[at+1:]
	}
	return ""
}
