// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/test/demo/world"
)

func TestStepsHaveNamesOfTheirOwn(t *testing.T) {
	for _, kind := range []world.Kind{world.ControlPlanes, world.InDocker} {
		seen := map[string]bool{}
		for _, step := range Steps(kind) {
			if seen[step.Name] || strings.ContainsAny(step.Name, " ,") || step.Play == nil || step.Title == "" {
				t.Errorf("%s: step %q is there twice, has no function or title, or a name that is no word", kind, step.Name)
			}
			seen[step.Name] = true
		}
		if seen["reach"] != (kind == world.InDocker) {
			t.Errorf("%s: step reach is there: %t; it needs Pods in which something runs", kind, seen["reach"])
		}
	}
}

// The how-to prints the scope as a label, which Kubernetes would refuse: the
// demo must not make it easier for itself.
func TestTheScopeIsWrittenAsUsersWriteIt(t *testing.T) {
	for _, object := range manifest(t, "internal-api.yaml") {
		if object.GetKind() != "ServiceExport" {
			continue
		}
		if got := object.GetLabels()[model.LabelExportTo]; got != "cluster-2,cluster-3" {
			t.Errorf("label %s is %q, want it as printed in the how-to", model.LabelExportTo, got)
		}
		if len(object.GetAnnotations()) > 0 {
			t.Errorf("annotations are %v, want none: the webhook makes the one", object.GetAnnotations())
		}
		return
	}
	t.Error("internal-api.yaml has no ServiceExport")
}

func TestEveryExportHasItsManifest(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "manifests", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	found := map[string]bool{}
	for _, file := range files {
		for _, object := range manifest(t, filepath.Base(file)) {
			if object.GetKind() == "ServiceExport" {
				found[object.GetNamespace()+"/"+object.GetName()] = true
			}
		}
	}
	for _, e := range exports() {
		if !found[e.String()] {
			t.Errorf("ServiceExport %s is in no manifest", e)
		}
		for _, source := range e.Sources() {
			if !e.Reaches(source) {
				t.Errorf("ServiceExport %s does not reach %s, which exports it", e, source)
			}
		}
	}
	if internal.Reaches("cluster-4") || !web.Reaches("cluster-4") {
		t.Error("a scope reaches a cluster outside, or no scope does not reach every cluster")
	}
}

func manifest(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "manifests", name))
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); err != nil {
			return objects
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}
