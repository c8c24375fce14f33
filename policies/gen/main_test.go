// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/policies"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// read gives the YAML files of a folder by name.
func read(t *testing.T, folder string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(path)] = string(text)
	}
	return files
}

func TestFilesAreUpToDate(t *testing.T) {
	want, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, read(t, "../../"+folder)); diff != "" {
		t.Errorf("%s is not up to date; run make generate (-want +got):\n%s", folder, diff)
	}
}

func TestWriteRemovesWhatIsNoPolicysAnyMore(t *testing.T) {
	into := t.TempDir()
	if err := os.WriteFile(filepath.Join(into, "gone.yaml"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(into); err != nil {
		t.Fatal(err)
	}
	want, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, read(t, into)); diff != "" {
		t.Error(diff)
	}
}

func TestFilesAreExportPolicies(t *testing.T) {
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	delete(files, "kustomization.yaml")
	baselines, err := policies.Baselines()
	if err != nil {
		t.Fatal(err)
	}
	modules := map[string]string{}
	for _, b := range baselines {
		modules[b.Name] = b.Module
	}
	for name, text := range files {
		var policy v1alpha1.ExportPolicy
		if err := yaml.UnmarshalStrict([]byte(text), &policy); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if policy.Name+".yaml" != name || policy.Spec.Rego != modules[policy.Name] || policy.Spec.Enforcement != v1alpha1.Deny {
			t.Errorf("%s holds %+v", name, policy)
		}
	}
}
