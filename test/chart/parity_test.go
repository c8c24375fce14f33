// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/comity-mcs/comity/test/clusters/binaries"
)

// What differs between the chart and config/overlays/example, and may:
//
//	object, field                   only in   why
//	Namespace comity-system         config    Helm makes the namespace, or does not
//	Pod comity-test                 chart     `helm test` runs it
//	labels instance, version, …     chart     they name the release and the chart
//	annotations helm.sh/…           chart     hooks
//	annotation checksum/config      chart     config's ConfigMap has no hash in its name either
//	hash in the name of a Job       chart     Kustomize has no function for it
//	args of the Deployment          both      as text; the flags that they set must not differ
//	port of a webhook's Service     chart     443 is what the API server assumes

var (
	chartLabels = []string{"app.kubernetes.io/instance", "app.kubernetes.io/part-of", "app.kubernetes.io/version",
		"app.kubernetes.io/managed-by", "helm.sh/chart"}
	jobHash = regexp.MustCompile(`-[0-9a-f]{8}$`)
)

// comparable removes from an object what may differ.
func comparable(object *unstructured.Unstructured) *unstructured.Unstructured {
	object = object.DeepCopy()
	if object.GetKind() == "Job" {
		object.SetName(jobHash.ReplaceAllString(object.GetName(), ""))
	}
	if object.GetKind() == "Deployment" {
		containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		delete(containers[0].(map[string]any), "args")
		_ = unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec", "containers")
	}
	strip(object.Object)
	return object
}

// strip goes through maps and lists, as labels also select.
func strip(value any) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			strip(item)
		}
	case map[string]any:
		if value["app.kubernetes.io/name"] != nil {
			maps.DeleteFunc(value, func(key string, _ any) bool { return slices.Contains(chartLabels, key) })
		}
		if service, found := value["service"].(map[string]any); found && service["path"] != nil {
			delete(service, "port")
		}
		if annotations, found := value["annotations"].(map[string]any); found {
			maps.DeleteFunc(annotations, func(key string, _ any) bool {
				return strings.HasPrefix(key, "helm.sh/") || key == "checksum/config"
			})
			if len(annotations) == 0 {
				delete(value, "annotations")
			}
		}
		for _, field := range value {
			strip(field)
		}
	}
}

// byKey sorts out objects by what identifies them.
func byKey(t *testing.T, objects []*unstructured.Unstructured) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, object := range objects {
		object := comparable(object)
		key := object.GetAPIVersion() + " " + object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		if all[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		all[key] = object.Object
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func kustomized(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	stdout, stderr, err := run(t, binaries.Kubectl, "kustomize", root+"/"+folder)
	if err != nil {
		t.Fatalf("kubectl kustomize %s: %v: %s", folder, err, stderr)
	}
	return decode(t, stdout)
}

func TestTheChartAndKustomizeInstallTheSame(t *testing.T) {
	fromChart, fromConfig := byKey(t, rendered(t)), byKey(t, kustomized(t, "config/overlays/example"))
	delete(fromConfig, "v1 Namespace /comity-system")
	delete(fromChart, "v1 Pod comity-system/comity-test")
	if diff := cmp.Diff(slices.Sorted(maps.Keys(fromConfig)), slices.Sorted(maps.Keys(fromChart))); diff != "" {
		t.Fatalf("objects (-config +chart):\n%s", diff)
	}
	if len(fromChart) < 25 {
		t.Errorf("only %d objects are compared", len(fromChart))
	}
	for key, want := range fromConfig {
		if diff := cmp.Diff(want, fromChart[key]); diff != "" {
			t.Errorf("%s (-config +chart):\n%s", key, diff)
		}
	}
}

func TestTheChartAndKustomizeSetTheSameFlags(t *testing.T) {
	all := map[string]map[string]string{}
	for name, objects := range map[string][]*unstructured.Unstructured{
		"chart": rendered(t), "config": kustomized(t, "config/overlays/example"),
	} {
		all[name] = map[string]string{}
		agentFlags(t, objects).VisitAll(func(f *pflag.Flag) { all[name][f.Name] = f.Value.String() })
	}
	if diff := cmp.Diff(all["config"], all["chart"]); diff != "" {
		t.Errorf("flags (-config +chart):\n%s", diff)
	}
}

func TestAHubIsReachedInTheSameWay(t *testing.T) {
	inChart := typed[appsv1.Deployment](t, find(t, rendered(t, "exchange.hub=true"), "Deployment", release)).Spec.Template.Spec
	inConfig := typed[appsv1.Deployment](t, decode(t, read(t, "config/hub/deployment.yaml"))[0]).Spec.Template.Spec
	volume, mount := inConfig.Volumes[0], inConfig.Containers[0].VolumeMounts[0]
	if !slices.ContainsFunc(inChart.Volumes, func(v corev1.Volume) bool { return cmp.Equal(v, volume) }) {
		t.Errorf("the chart has volumes %v; expected %v among them", inChart.Volumes, volume)
	}
	if !slices.ContainsFunc(inChart.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return cmp.Equal(m, mount) }) {
		t.Errorf("the chart mounts %v; expected %v among them", inChart.Containers[0].VolumeMounts, mount)
	}
}

func TestPoliciesAreThoseOfConfig(t *testing.T) {
	data, _, err := unstructured.NestedString(find(t, rendered(t), "ConfigMap", release+"-policies").Object, "data", "policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, want := byKey(t, decode(t, data)), byKey(t, kustomized(t, "config/policies"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("policies (-config +chart):\n%s", diff)
	}
}

// Argo CD ignores these kinds unless it is configured otherwise, so an Application with one of them never becomes healthy.
func TestNoManifestIsOfAKindThatArgoCDExcludes(t *testing.T) {
	excluded := []string{"Endpoints", "EndpointSlice", "Lease", "CertificateRequest", "TokenReview", "SubjectAccessReview"}
	for _, object := range slices.Concat(rendered(t), kustomized(t, "config/overlays/example")) {
		if slices.Contains(excluded, object.GetKind()) {
			t.Errorf("%s %s: expected no object of this kind", object.GetKind(), object.GetName())
		}
	}
}
