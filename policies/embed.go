// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package policies holds the policies of this repository, one folder a policy, and
// the Rego library that every policy may use.
//
// A folder has policy.rego, the module; params.yaml, its parameters, if it has any;
// policy.yaml, every other field of the spec; and tests. Three of them, the baseline,
// come with Comity; the others are there to be copied. README.md is for authors,
// INPUT.md describes the input and the answer of a policy.
//
// It gives the files as they are and knows neither Rego nor a cluster: the engine
// compiles them, test/tools/manifests turns them into manifests. Tests beside a policy are left out.
package policies

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// files holds directories rather than patterns of files, so that a new file in
// one of them cannot be forgotten here.
//
//go:embed lib
//go:embed no-external-name export-scope namespace-sameness
//go:embed accepted-sources exported-labels namespace-opt-in owner-required protected-ports region-residency service-kinds
var files embed.FS

const library = "lib"

// baseline are the policies that are installed with Comity.
var baseline = []string{"export-scope", "namespace-sameness", "no-external-name"}

// Baseline is one policy of this repository, whether it comes with Comity or not.
type Baseline struct {
	// Name is the folder's, and the ExportPolicy's.
	Name string
	// Module is the Rego source.
	Module string
	// Params is YAML, a mapping; empty when the policy has no parameters.
	Params string
	// Policy is the ExportPolicy as it is applied, Module included.
	Policy v1alpha1.ExportPolicy
	// Manifest is the YAML of Policy, with the comments of its author.
	Manifest string
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

// Baselines are the policies that are installed with Comity, by name. It fails on a
// folder without policy.rego or policy.yaml, and names the field that is wrong.
func Baselines() ([]Baseline, error) {
	return read(func(name string) bool { return slices.Contains(baseline, name) })
}

// Optional are the policies that are there to be copied, by name. It fails as
// Baselines does.
func Optional() ([]Baseline, error) {
	return read(func(name string) bool { return !slices.Contains(baseline, name) })
}

func read(wanted func(name string) bool) ([]Baseline, error) {
	folders, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("list the policies: %w", err)
	}
	var found []Baseline
	for _, folder := range folders {
		name := folder.Name()
		if name == library || !wanted(name) {
			continue
		}
		policy, err := readOne(name)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", name, err)
		}
		found = append(found, policy)
	}
	return found, nil
}

func readOne(name string) (Baseline, error) {
	var parts [3]string
	for i, file := range []string{"policy.rego", "policy.yaml", "params.yaml"} {
		text, err := files.ReadFile(path.Join(name, file))
		if err != nil && (file != "params.yaml" || !errors.Is(err, fs.ErrNotExist)) {
			return Baseline{}, fmt.Errorf("%w; expected the module in policy.rego and the rest of the spec in policy.yaml", err)
		}
		parts[i] = string(text)
	}
	b := Baseline{Name: name, Module: parts[0], Params: parts[2]}
	b.Manifest = Manifest(name, parts[1], b.Params, b.Module)
	if slices.Contains(baseline, name) {
		b.Manifest = strings.Replace(b.Manifest, "\nspec:\n", "\n  labels:\n    app.kubernetes.io/part-of: comity\nspec:\n", 1)
	}
	if err := yaml.UnmarshalStrict([]byte(b.Manifest), &b.Policy); err != nil {
		return Baseline{}, fmt.Errorf("policy.yaml and params.yaml: %w; expected fields of the spec, and a mapping", err)
	}
	return b, nil
}

// Manifest is the ExportPolicy of a folder as YAML, with the comments of its files:
// policy.yaml (spec), params.yaml, which may be empty, and policy.rego. The module is a
// block: a marshaler would write it as one quoted line, because of the tabs in it, which
// is hard to review.
func Manifest(name, spec, params, module string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: %s\nkind: ExportPolicy\nmetadata:\n  name: %s\n", v1alpha1.GroupVersion, name)
	b.WriteString("spec:\n" + indented("  ", withoutLicense(spec)))
	if params != "" {
		b.WriteString("  parameters:\n" + indented("    ", withoutLicense(params)))
	}
	b.WriteString("  rego: |\n" + indented("    ", module))
	return b.String()
}

// withoutLicense is a file without its first lines, up to the first empty one.
func withoutLicense(text string) string {
	if _, rest, found := strings.Cut(text, "\n\n"); found && strings.HasPrefix(text, "# Copyright ") {
		return rest
	}
	return text
}

// indented ends in a newline unless the text is empty.
func indented(by, text string) string {
	var b strings.Builder
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	for line := range strings.Lines(text) {
		if line != "\n" {
			b.WriteString(by)
		}
		b.WriteString(line)
	}
	return b.String()
}

func isModule(name string) bool {
	return strings.HasSuffix(name, ".rego") && !strings.HasSuffix(name, "_test.rego")
}
