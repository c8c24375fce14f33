// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"testing"

	"go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Artifact Hub shows what these annotations of Chart.yaml list, and scans the image.
func TestArtifactHubListsTheImageAndDefinitions(t *testing.T) {
	var metadata struct {
		Annotations map[string]string `yaml:"annotations"`
	}
	var images []struct {
		Image string `yaml:"image"`
	}
	var definitions []struct {
		Name    string `yaml:"name"`
		Version string `yaml:"version"`
		Kind    string `yaml:"kind"`
	}
	unmarshal := func(text string, into any) {
		t.Helper()
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	unmarshal(read(t, "charts/comity/Chart.yaml"), &metadata)
	unmarshal(metadata.Annotations["artifacthub.io/images"], &images)
	unmarshal(metadata.Annotations["artifacthub.io/crds"], &definitions)

	deployment := typed[appsv1.Deployment](t, find(t, rendered(t), "Deployment", release))
	if want := deployment.Spec.Template.Spec.Containers[0].Image; len(images) != 1 || images[0].Image != want {
		t.Errorf("images are %v; expected %s", images, want)
	}
	if len(definitions) == 0 {
		t.Error("there are no definitions")
	}
	crds := kustomized(t, "config/crd")
	for _, d := range definitions {
		spec := find(t, crds, "CustomResourceDefinition", d.Name).Object["spec"]
		kind, _, _ := unstructured.NestedString(spec.(map[string]any), "names", "kind")
		versions, _, _ := unstructured.NestedSlice(spec.(map[string]any), "versions")
		served := false
		for _, version := range versions {
			served = served || version.(map[string]any)["name"] == d.Version
		}
		if kind != d.Kind || !served {
			t.Errorf("%s: kind %s in version %s is not that of config/crd", d.Name, d.Kind, d.Version)
		}
	}
}
