// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package manifests_test reads the Kustomize tree as an API server would, without one.
//
// It takes the YAML files under config/ and checks what no schema says: rights
// stay least, webhooks fail closed, paths and ports agree with the code, and
// every file is part of a kustomization. It needs neither cluster nor kustomize
// and never changes a file.
package manifests_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/webhook"
)

// read decodes one file under config/ strictly: an unknown field is an error.
func read[T any](t *testing.T, path string) *T {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", path))
	if err != nil {
		t.Fatal(err)
	}
	into := new(T)
	if err := yaml.UnmarshalStrict(raw, into); err != nil {
		t.Fatalf("config/%s: %v", path, err)
	}
	return into
}

func rules(t *testing.T) map[string][]rbacv1.PolicyRule {
	t.Helper()
	return map[string][]rbacv1.PolicyRule{
		"ClusterRole": read[rbacv1.ClusterRole](t, "rbac/clusterrole.yaml").Rules,
		"Role":        read[rbacv1.Role](t, "rbac/role.yaml").Rules,
	}
}

// Jobs write what the agent may not: a definition decides what is stored, and a policy what is exported.
func TestJobsMayWriteNothingButWhatTheyInstall(t *testing.T) {
	want := map[string][]string{
		"crds":     {"customresourcedefinitions"},
		"policies": {"exportpolicies", "clusterroles"},
	}
	for job, resources := range want {
		var got []string
		for _, rule := range read[rbacv1.ClusterRole](t, "install/"+job+"-clusterrole.yaml").Rules {
			got = append(got, rule.Resources...)
			writes := slices.ContainsFunc(rule.Verbs, func(v string) bool { return v != "get" && v != "list" })
			if len(rule.ResourceNames) == 0 && !slices.Equal(rule.Resources, []string{"exportpolicies"}) {
				t.Errorf("%s: a rule for %v names no objects", job, rule.Resources)
			}
			if writes && slices.Contains(rule.Resources, "clusterroles") {
				t.Errorf("%s: writes ClusterRoles: %v", job, rule)
			}
		}
		if diff := cmp.Diff(resources, got); diff != "" {
			t.Errorf("%s: resources (-want +got):\n%s", job, diff)
		}
	}
}

func TestOnlyThoseWhoEditANamespaceExport(t *testing.T) {
	for role, want := range map[string][]string{
		"edit": {"rbac.authorization.k8s.io/aggregate-to-admin", "rbac.authorization.k8s.io/aggregate-to-edit"},
		"view": {"rbac.authorization.k8s.io/aggregate-to-admin", "rbac.authorization.k8s.io/aggregate-to-edit", "rbac.authorization.k8s.io/aggregate-to-view"},
	} {
		clusterRole := read[rbacv1.ClusterRole](t, "rbac/clusterrole-"+role+".yaml")
		var got []string
		for label, value := range clusterRole.Labels {
			if strings.HasPrefix(label, "rbac.authorization.k8s.io/") && value == "true" {
				got = append(got, label)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s is aggregated to (-want +got):\n%s", role, diff)
		}
		for _, rule := range clusterRole.Rules {
			writes := slices.ContainsFunc(rule.Verbs, func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) })
			if writes && (role == "view" || !slices.Equal(rule.Resources, []string{"serviceexports"})) {
				t.Errorf("%s writes: %v", role, rule)
			}
		}
	}
}

func TestNoRuleHoldsAWildcardOrLeadsToMoreRights(t *testing.T) {
	escalating := []string{"escalate", "bind", "impersonate", "approve", "sign", "deletecollection"}
	forbidden := []string{"roles", "rolebindings", "clusterroles", "clusterrolebindings", "pods", "pods/exec", "serviceaccounts/token", "nodes/proxy", "nodes/status"}
	for role, rules := range rules(t) {
		for _, rule := range rules {
			for _, words := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs} {
				for _, word := range words {
					if strings.Contains(word, "*") {
						t.Errorf("%s: %q in %v: name what is meant", role, word, rule)
					}
				}
			}
			for _, verb := range rule.Verbs {
				if slices.Contains(escalating, verb) {
					t.Errorf("%s: verb %q gives rights that nobody granted: %v", role, verb, rule)
				}
			}
			for _, resource := range rule.Resources {
				if slices.Contains(forbidden, resource) {
					t.Errorf("%s: %q is no business of the agent: %v", role, resource, rule)
				}
			}
		}
	}
}

func TestTheClusterRoleReadsNoSecretsAndWritesNoExchange(t *testing.T) {
	for _, rule := range rules(t)["ClusterRole"] {
		if slices.Contains(rule.Resources, "secrets") {
			t.Errorf("secrets of the whole cluster: %v", rule)
		}
		writes := slices.ContainsFunc(rule.Verbs, func(v string) bool {
			return !slices.Contains([]string{"get", "list", "watch"}, v)
		})
		status := slices.Equal(rule.Resources, []string{"peers/status"})
		if writes && slices.Contains(rule.APIGroups, "exchange.comity.dev") && !status {
			t.Errorf("writes records of the whole cluster, but joining grants that by namespace: %v", rule)
		}
		for _, resource := range []string{"namespaces", "nodes", "servicecidrs"} {
			if writes && slices.Contains(rule.Resources, resource) {
				t.Errorf("the agent only reads %s: %v", resource, rule)
			}
		}
	}
}

// hook is what both kinds of configuration have in common.
type hook struct {
	name       string
	client     admissionregistrationv1.WebhookClientConfig
	rules      []admissionregistrationv1.RuleWithOperations
	failure    *admissionregistrationv1.FailurePolicyType
	match      *admissionregistrationv1.MatchPolicyType
	effects    *admissionregistrationv1.SideEffectClass
	timeout    *int32
	namespaces []string
	conditions []admissionregistrationv1.MatchCondition
}

func hooks(t *testing.T) []hook {
	t.Helper()
	var all []hook
	for _, w := range read[admissionregistrationv1.MutatingWebhookConfiguration](t, "webhook/mutating.yaml").Webhooks {
		h := hook{name: w.Name, client: w.ClientConfig, rules: w.Rules, failure: w.FailurePolicy, match: w.MatchPolicy,
			effects: w.SideEffects, timeout: w.TimeoutSeconds, conditions: w.MatchConditions}
		if w.NamespaceSelector != nil {
			h.namespaces = w.NamespaceSelector.MatchExpressions[0].Values
		}
		all = append(all, h)
	}
	for _, w := range read[admissionregistrationv1.ValidatingWebhookConfiguration](t, "webhook/validating.yaml").Webhooks {
		h := hook{name: w.Name, client: w.ClientConfig, rules: w.Rules, failure: w.FailurePolicy, match: w.MatchPolicy,
			effects: w.SideEffects, timeout: w.TimeoutSeconds, conditions: w.MatchConditions}
		if w.NamespaceSelector != nil {
			h.namespaces = w.NamespaceSelector.MatchExpressions[0].Values
		}
		all = append(all, h)
	}
	return all
}

func TestWebhooksFailClosedAndNeverBlockADeletion(t *testing.T) {
	for _, h := range hooks(t) {
		t.Run(h.name, func(t *testing.T) {
			if h.failure == nil || *h.failure != admissionregistrationv1.Fail {
				t.Error("failurePolicy is not Fail")
			}
			if h.match == nil || *h.match != admissionregistrationv1.Equivalent {
				t.Error("matchPolicy is not Equivalent: another version of the object would pass unseen")
			}
			// Only the two that ask policies write events, and none on a dry run.
			effects := admissionregistrationv1.SideEffectClassNone
			if h.name == "validate.serviceexport.comity.dev" || h.name == "validate.service.comity.dev" {
				effects = admissionregistrationv1.SideEffectClassNoneOnDryRun
			}
			if h.effects == nil || *h.effects != effects {
				t.Errorf("sideEffects is not %s: dry runs would fail, or the declaration would be wrong", effects)
			}
			if h.timeout == nil || *h.timeout != 3 {
				t.Error("timeoutSeconds is not 3")
			}
			if len(h.client.CABundle) != 0 {
				t.Error("caBundle is set; it is an overlay's to set")
			}
			for _, rule := range h.rules {
				for _, op := range rule.Operations {
					if op != admissionregistrationv1.Create && op != admissionregistrationv1.Update {
						t.Errorf("operation %s", op)
					}
				}
				if *rule.Scope == admissionregistrationv1.NamespacedScope {
					if diff := cmp.Diff([]string{"kube-system", "comity-system", "cert-manager"}, h.namespaces); diff != "" {
						t.Errorf("excluded namespaces (-want +got):\n%s", diff)
					}
				}
			}
		})
	}
}

func TestWebhooksCallWhatTheProgramServes(t *testing.T) {
	service := read[corev1.Service](t, "webhook/service.yaml")
	var paths []string
	for _, h := range hooks(t) {
		paths = append(paths, *h.client.Service.Path)
		if h.client.Service.Name != service.Name || h.client.Service.Namespace != service.Namespace {
			t.Errorf("%s calls Service %s/%s, there is %s/%s", h.name, h.client.Service.Namespace, h.client.Service.Name, service.Namespace, service.Name)
		}
	}
	want := []string{webhook.PathMutateServiceExport, webhook.PathValidateServiceExport, webhook.PathValidateService, webhook.PathValidateExportPolicy}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}

	deployment := read[appsv1.Deployment](t, "manager/deployment.yaml")
	if diff := cmp.Diff(service.Spec.Selector, deployment.Spec.Template.Labels); diff != "" {
		t.Errorf("selector of the Service and labels of the Pods (-selector +labels):\n%s", diff)
	}
	named := slices.ContainsFunc(deployment.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool {
		return p.Name == service.Spec.Ports[0].TargetPort.StrVal
	})
	if !named {
		t.Errorf("no port of the container is called %s", service.Spec.Ports[0].TargetPort.StrVal)
	}
}

func TestOnlyServicesThatTurnExternalNameReachUs(t *testing.T) {
	for _, h := range hooks(t) {
		for _, rule := range h.rules {
			if slices.Contains(rule.Resources, "services") && (len(h.conditions) != 1 || !strings.Contains(h.conditions[0].Expression, "ExternalName")) {
				t.Errorf("%s: without a condition every update of every Service waits for Comity", h.name)
			}
		}
	}
}

func TestTheManagerRunsRestricted(t *testing.T) {
	deployment := read[appsv1.Deployment](t, "manager/deployment.yaml")
	pod, container := deployment.Spec.Template.Spec, deployment.Spec.Template.Spec.Containers[0]
	budget := read[policyv1.PodDisruptionBudget](t, "manager/poddisruptionbudget.yaml")
	for what, ok := range map[string]bool{
		"two replicas":                  *deployment.Spec.Replicas == 2,
		"none unavailable in a rollout": deployment.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() == 0,
		"not as root":                   *pod.SecurityContext.RunAsNonRoot && pod.SecurityContext.RunAsUser == nil, // the image or the platform names one
		"seccomp of the runtime":        pod.SecurityContext.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"no new privileges":             !*container.SecurityContext.AllowPrivilegeEscalation,
		"root file system is read-only": *container.SecurityContext.ReadOnlyRootFilesystem,
		"no capabilities":               slices.Equal(container.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}),
		"probes":                        container.LivenessProbe.HTTPGet.Path == "/healthz" && container.ReadinessProbe.HTTPGet.Path == "/readyz",
		"a memory limit":                !container.Resources.Limits.Memory().IsZero(),
		"time for --shutdown-delay and --shutdown-timeout": *pod.TerminationGracePeriodSeconds >= 5+20+5,
		"the budget covers it":                             budget.Spec.Selector.MatchLabels["app.kubernetes.io/name"] == deployment.Spec.Template.Labels["app.kubernetes.io/name"],
		"images come from the node if there":               container.ImagePullPolicy == corev1.PullIfNotPresent,
	} {
		if !ok {
			t.Errorf("not so: %s", what)
		}
	}
}

func TestEveryFileIsPartOfAKustomization(t *testing.T) {
	for dir, kustomization := range map[string]string{
		"crd": "kustomization.yml", "rbac": "kustomization.yaml", "manager": "kustomization.yaml",
		"webhook": "kustomization.yaml", "default": "kustomization.yaml", "samples": "kustomization.yaml",
		"agent": "kustomization.yaml", "install": "kustomization.yaml", "certmanager": "kustomization.yaml",
		"hub": "kustomization.yaml", "overlays/example": "kustomization.yaml",
	} {
		t.Run(dir, func(t *testing.T) {
			content := read[struct {
				APIVersion string              `json:"apiVersion"`
				Kind       string              `json:"kind"`
				Resources  []string            `json:"resources"`
				Components []string            `json:"components"`
				Patches    []map[string]string `json:"patches"`
				Images     []map[string]string `json:"images"`
			}](t, filepath.Join(dir, kustomization))
			listed := slices.Concat(content.Resources, content.Components)
			for _, patch := range content.Patches {
				listed = append(listed, patch["path"])
			}
			files, err := filepath.Glob(filepath.Join("..", dir, "*.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				name := filepath.Base(file)
				if name != kustomization && !slices.Contains(listed, name) {
					t.Errorf("%s is not in the resources", name)
				}
				if documents(t, file) != 1 {
					t.Errorf("%s does not hold one object", name)
				}
			}
			for _, resource := range listed {
				if _, err := os.Stat(filepath.Join("..", dir, resource)); err != nil {
					t.Errorf("resource %s: %v", resource, err)
				}
			}
		})
	}
}

// documents counts the objects of a file; each has a kind and an apiVersion.
func documents(t *testing.T, path string) int {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	for count := 0; ; count++ {
		object := map[string]any{}
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return count
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if object["kind"] == nil || object["apiVersion"] == nil {
			t.Errorf("%s: an object without kind or apiVersion", path)
		}
	}
}
