// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package shipped gives tests the policies of this repository.
//
// It reads the folders as `kubectl comity policy` does. It fails on a folder that is no
// policy.
package shipped

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/comity-mcs/comity/policies/source"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// Policy is one policy of this repository.
type Policy struct {
	Name string
	// Module is the Rego source, Params the content of params.yaml; empty if there is none.
	Module, Params string
	// Policy is the ExportPolicy, Manifest the YAML of it with the comments of its author.
	Policy   v1alpha1.ExportPolicy
	Manifest string
}

// Baselines are the policies that are installed with Comity, by name.
func Baselines() ([]Policy, error) {
	return read(func(name string) bool { return slices.Contains(baseline, name) })
}

// Optional are the policies that are there to be copied, by name.
func Optional() ([]Policy, error) {
	return read(func(name string) bool { return !slices.Contains(baseline, name) })
}

// baseline is that of test/tools/manifests, which has a test for it.
var baseline = []string{"export-scope", "namespace-sameness", "no-external-name"}

func read(wanted func(name string) bool) (all []Policy, err error) {
	_, here, _, _ := runtime.Caller(0)
	found, err := source.Read(filepath.Join(filepath.Dir(here), ".."))
	if err != nil {
		return nil, err
	}
	for _, one := range found {
		if !wanted(one.Name()) {
			continue
		}
		params, err := os.ReadFile(filepath.Join(one.Folder, source.ParamsFile))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		manifest, err := one.Manifest()
		if err != nil {
			return nil, err
		}
		all = append(all, Policy{Name: one.Name(), Module: one.Object.Spec.Rego, Params: string(params), Policy: *one.Object, Manifest: manifest})
	}
	return all, nil
}
