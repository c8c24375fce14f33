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

// read gives the YAML files of a folder and of its library, by path below it.
func read(t *testing.T, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, pattern := range []string{"*.yaml", library + "/*.yaml"} {
		paths, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(folder, path)
			if err != nil {
				t.Fatal(err)
			}
			files[name] = string(text)
		}
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
	if err := os.Mkdir(filepath.Join(into, library), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"gone.yaml", library + "/gone.yaml"} {
		if err := os.WriteFile(filepath.Join(into, gone), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
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
	modules := map[string]string{}
	for _, list := range []func() ([]policies.Baseline, error){policies.Baselines, policies.Optional} {
		found, err := list()
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range found {
			modules[b.Name] = b.Module
		}
	}
	if len(files) != len(modules) {
		t.Errorf("there are %d files of %d policies", len(files), len(modules))
	}
	for name, text := range files {
		var policy v1alpha1.ExportPolicy
		if err := yaml.UnmarshalStrict([]byte(text), &policy); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if policy.Name+".yaml" != filepath.Base(name) || policy.Spec.Rego != modules[policy.Name] || policy.Spec.Enforcement != v1alpha1.Deny {
			t.Errorf("%s holds %+v", name, policy)
		}
	}
}

// Only the baseline is installed: applying what a cluster did not ask for would refuse its exports.
func TestTheKustomizationHasTheBaselineAlone(t *testing.T) {
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	var kustomization struct{ Resources []string }
	if err := yaml.Unmarshal([]byte(files["kustomization.yaml"]), &kustomization); err != nil {
		t.Fatal(err)
	}
	want := []string{"export-scope.yaml", "namespace-sameness.yaml", "no-external-name.yaml"}
	if diff := cmp.Diff(want, kustomization.Resources); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
