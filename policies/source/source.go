// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// The files of a folder of a policy.
const (
	ModuleFile = "policy.rego"
	ParamsFile = "params.yaml"
	SpecFile   = "policy.yaml"

	regoSuffix     = ".rego"
	fixturesFolder = "fixtures"
	// libraryFolder is that of the library of Comity, beside its policies.
	libraryFolder = "lib"
)

// Policy is one policy with what belongs to it.
type Policy struct {
	// Object is the ExportPolicy; its name is that of the folder.
	Object *v1alpha1.ExportPolicy
	// Path is the file of the module: policy.rego of a folder, or the manifest.
	Path string
	// Folder is where the policy is; empty for a manifest.
	Folder string
	// Files are the Rego sources of a folder by path, tests among them.
	Files map[string]string
	// Fixtures are the paths of the manifests for tests, sorted.
	Fixtures []string
}

// Name is that of the ExportPolicy.
func (p Policy) Name() string { return p.Object.Name }

// Read reads what the paths name: a folder of a policy, a folder of such folders, a
// manifest, or a folder of manifests. The policies come in the order of the paths,
// and within a folder in that of their names. It is an error if a path has none.
func Read(paths ...string) (all []Policy, _ error) {
	for _, path := range paths {
		found, _, err := ReadAll(path)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("%s: no policy is here; expected a folder with %s, or a manifest of ExportPolicies (.yaml, .yml or .json)", path, ModuleFile)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// ReadAll reads the policies and the other manifests that the paths name, but not those in hidden
// folders and in folders of policies. It is an error if a path has neither.
func ReadAll(paths ...string) (policies []Policy, others []Document, _ error) {
	for _, root := range paths {
		before := len(policies) + len(others)
		entries := root
		if info, err := os.Stat(root); err != nil {
			return nil, nil, fmt.Errorf("%w; expected a folder of a policy, or a file or folder of manifests", err)
		} else if info.IsDir() {
			entries += string(filepath.Separator) // has a link to a folder followed
		}
		err := filepath.WalkDir(entries, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case !entry.IsDir() && (isManifest(path) || path == root && filepath.Ext(path) != regoSuffix):
				found, more, err := readManifests(path)
				policies, others = append(policies, found...), append(others, more...)
				return err
			case !entry.IsDir():
				return nil
			case path != entries && strings.HasPrefix(entry.Name(), "."):
				return fs.SkipDir
			}
			path = filepath.Clean(path)
			rego, err := filepath.Glob(filepath.Join(path, "*"+regoSuffix))
			switch {
			case err != nil || len(rego) == 0:
				return err
			case entry.Name() == libraryFolder && !slices.Contains(rego, filepath.Join(path, ModuleFile)):
				return fs.SkipDir
			}
			policy, err := readFolder(path, rego)
			policies = append(policies, policy)
			return cmp.Or(err, fs.SkipDir)
		})
		if err != nil {
			return nil, nil, err
		}
		if len(policies)+len(others) == before {
			return nil, nil, fmt.Errorf("%s: no policy is here, and no manifest; expected a folder with %s, or files with the suffix .yaml, .yml or .json", root, ModuleFile)
		}
	}
	return policies, others, nil
}

// readFolder reads the folder of one policy, which has these Rego sources.
func readFolder(folder string, rego []string) (Policy, error) {
	absolute, err := filepath.Abs(folder)
	if err != nil {
		return Policy{}, err
	}
	name := filepath.Base(absolute)
	policy := Policy{Folder: folder, Path: filepath.Join(folder, ModuleFile), Files: map[string]string{}}
	for _, path := range rego {
		text, err := os.ReadFile(path)
		if err != nil {
			return Policy{}, err
		}
		policy.Files[path] = string(text)
	}
	fixtures, err := filepath.Glob(filepath.Join(folder, fixturesFolder, "*"))
	if err != nil {
		return Policy{}, err
	}
	policy.Fixtures = slices.DeleteFunc(fixtures, func(path string) bool { return !isManifest(path) })
	module, has := policy.Files[policy.Path]
	if !has {
		return Policy{}, fmt.Errorf("%s: the folder has Rego and no %s; expected the module of policy %s there", folder, ModuleFile, name)
	}
	policy.Object, err = object(folder, name, module)
	return policy, err
}

// object is the ExportPolicy that the files of a folder are.
func object(folder, name, module string) (*v1alpha1.ExportPolicy, error) {
	policy := &v1alpha1.ExportPolicy{}
	path := filepath.Join(folder, SpecFile)
	spec, err := optional(path)
	if err == nil {
		err = decode(spec, &policy.Spec)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; expected fields of the spec of an ExportPolicy", path, err)
	}
	if policy.Spec.Rego != "" || policy.Spec.Parameters != nil {
		return nil, fmt.Errorf("%s: expected no rego and no parameters: these are in %s and %s", path, ModuleFile, ParamsFile)
	}
	path = filepath.Join(folder, ParamsFile)
	params, err := optional(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; expected a mapping, the parameters of the policy", path, err)
	}
	if string(params) != "null" {
		policy.Spec.Parameters = &apiextensionsv1.JSON{Raw: params}
	}
	policy.APIVersion, policy.Kind = v1alpha1.GroupVersion.String(), Kind
	policy.Name, policy.Spec.Rego = name, module
	return policy, nil
}

// optional is the content of a YAML file as JSON; null if there is none.
func optional(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return yaml.YAMLToJSONStrict(text)
}

// isManifest reports whether a file has the name of a manifest.
func isManifest(path string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path))
}
