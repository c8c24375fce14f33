// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/policies/source"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// read gives the YAML files of a folder and of its library, by path below it.
func TestFilesAreExportPolicies(t *testing.T) {
	files := map[string]string{}
	if err := addPolicies("../../../policies", files); err != nil {
		t.Fatal(err)
	}
	modules := map[string]string{}
	found, err := source.Read("../../../policies")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range found {
		modules[b.Name()] = b.Object.Spec.Rego
	}
	seen := 0
	for name, text := range files {
		if !strings.HasPrefix(name, policyFolder) || strings.HasSuffix(name, "kustomization.yaml") {
			continue
		}
		seen++
		var policy v1alpha1.ExportPolicy
		if err := yaml.UnmarshalStrict([]byte(text), &policy); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if policy.Name+".yaml" != filepath.Base(name) || policy.Spec.Rego != modules[policy.Name] || policy.Spec.Enforcement != v1alpha1.Deny {
			t.Errorf("%s holds %+v", name, policy)
		}
	}
	if seen != len(modules) {
		t.Errorf("there are %d files of %d policies", seen, len(modules))
	}
}

// Only the baseline is installed: applying what a cluster did not ask for would refuse its exports.
func TestTheKustomizationHasTheBaselineAlone(t *testing.T) {
	files := map[string]string{}
	if err := addPolicies("../../../policies", files); err != nil {
		t.Fatal(err)
	}
	var kustomization struct{ Resources []string }
	if err := yaml.Unmarshal([]byte(files[policyFolder+"/kustomization.yaml"]), &kustomization); err != nil {
		t.Fatal(err)
	}
	want := []string{"export-scope.yaml", "namespace-sameness.yaml", "no-external-name.yaml"}
	if diff := cmp.Diff(want, kustomization.Resources); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
