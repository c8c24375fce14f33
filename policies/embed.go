// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package policies holds the policies that Comity ships, one folder a policy,
// and the Rego library that every policy may use.
//
// It gives the files as they are and knows neither Rego nor a cluster: the
// engine compiles them, gen turns them into ExportPolicies. Tests beside a
// policy are left out. INPUT.md describes the input and the answer of a policy.
package policies

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// files holds directories rather than patterns of files, so that a new file in
// one of them cannot be forgotten here.
//
//go:embed lib no-external-name export-scope namespace-sameness
var files embed.FS

const library = "lib"

// Baseline is one policy that Comity ships.
type Baseline struct {
	// Name is the folder's, and the ExportPolicy's.
	Name string
	// Module is the Rego source.
	Module string
	// Params is YAML, a mapping; empty when the policy has no parameters.
	Params string
}

// Library is the Rego source of every library module by file name.
func Library() map[string]string {
	modules := map[string]string{}
	err := fs.WalkDir(files, library, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !isModule(name) {
			return err
		}
		text, err := files.ReadFile(name)
		modules[name] = string(text)
		return err
	})
	if err != nil {
		// Nothing but the compiler fills files.
		panic(fmt.Sprintf("policies: embedded library: %v", err))
	}
	return modules
}

// Baselines are the policies that Comity ships, by name. It fails on a folder
// without policy.rego.
func Baselines() ([]Baseline, error) {
	folders, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("list the baseline policies: %w", err)
	}
	var baselines []Baseline
	for _, folder := range folders {
		name := folder.Name()
		if name == library {
			continue
		}
		module, err := files.ReadFile(path.Join(name, "policy.rego"))
		if err != nil {
			return nil, fmt.Errorf("baseline policy %s: %w; expected the module in policy.rego", name, err)
		}
		params, err := files.ReadFile(path.Join(name, "params.yaml"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("baseline policy %s: %w", name, err)
		}
		baselines = append(baselines, Baseline{Name: name, Module: string(module), Params: string(params)})
	}
	return baselines, nil
}

func isModule(name string) bool {
	return strings.HasSuffix(name, ".rego") && !strings.HasSuffix(name, "_test.rego")
}
