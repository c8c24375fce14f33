// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/policies"
	"github.com/comity-mcs/comity/policies/source"
	"github.com/comity-mcs/comity/policies/v1alpha1"
)

const buildLong = `Print the ExportPolicies that folders of policies are, for kubectl apply -f -.

Comments in params.yaml and policy.yaml are kept. The policies are compiled first; the
exit code is 1, and nothing is printed, if one does not compile or is not formatted.`

func newBuild(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "build PATH...",
		Short:   "Print the ExportPolicies of folders of policies",
		Long:    buildLong,
		Example: "  kubectl comity policy build owner-required | kubectl apply --dry-run=server -f -",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return runBuild(env, args) },
	}
}

func runBuild(env *command.Env, paths []string) error {
	all, err := source.Read(paths...)
	if err != nil {
		return err
	}
	found, err := Check(all)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		_, _ = fmt.Fprintln(env.ErrOut, lines(found))
		return command.Printed(command.ExitProblem)
	}
	separator := ""
	for _, policy := range all {
		if policy.Library() {
			continue
		}
		text, err := manifestOf(policy)
		if err != nil {
			return err
		}
		env.Printf("%s%s", separator, text)
		separator = "---\n"
	}
	return nil
}

// manifestOf is the ExportPolicy as YAML: of a folder, with the comments of its files.
func manifestOf(policy source.Policy) (string, error) {
	if policy.Folder == "" {
		return "", fmt.Errorf("%s: it is a manifest already; expected the folder of a policy", policy.Path)
	}
	var parts [2]string
	for i, file := range []string{source.SpecFile, source.ParamsFile} {
		text, err := os.ReadFile(filepath.Join(policy.Folder, file))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		parts[i] = string(text)
	}
	text := policies.Manifest(policy.Name(), parts[0], parts[1], policy.Object.Spec.Rego)
	var read v1alpha1.ExportPolicy
	if err := yaml.UnmarshalStrict([]byte(text), &read); err != nil || !reflect.DeepEqual(read.Spec, policy.Object.Spec) {
		return "", fmt.Errorf("%s: %s and %s cannot be joined; expected mappings with a key on each line, not in braces", policy.Folder, source.SpecFile, source.ParamsFile)
	}
	return text, nil
}
