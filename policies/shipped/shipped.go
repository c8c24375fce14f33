// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package shipped gives tests the policies of this repository.
//
// It reads the folders as `kubectl comity policy` does. It fails on a folder that is no
// policy.
package shipped

import (
	"path/filepath"
	"runtime"
	"slices"

	"github.com/comity-mcs/comity/policies/source"
)

// Baselines are the policies that are installed with Comity, by name.
func Baselines() ([]source.Policy, error) { return read(true) }

// Optional are the policies that are there to be copied, by name.
func Optional() ([]source.Policy, error) { return read(false) }

// baseline is that of test/tools/manifests, which has a test for it.
var baseline = []string{"export-scope", "namespace-sameness", "no-external-name"}

func read(installed bool) ([]source.Policy, error) {
	_, here, _, _ := runtime.Caller(0)
	found, err := source.Read(filepath.Join(filepath.Dir(here), ".."))
	return slices.DeleteFunc(found, func(one source.Policy) bool { return slices.Contains(baseline, one.Name()) != installed }), err
}
