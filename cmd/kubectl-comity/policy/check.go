// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/config/crd"
	"github.com/comity-mcs/comity/policies/engine"
	"github.com/comity-mcs/comity/policies/engine/authoring"
	"github.com/comity-mcs/comity/policies/engine/child"
	"github.com/comity-mcs/comity/policies/source"
	"github.com/comity-mcs/comity/sync/model"
)

const checkLong = `Compile policies as the agent does, and compare their format with that of opa fmt.

A path is a folder of a policy, a folder of such folders, or a manifest of
ExportPolicies. The exit code is 1 if there are findings, and 2 if a path cannot be read.`

// Findings is what the command prints with -o json.
type Findings struct {
	Checked int `json:"checked"`
	// Findings are what is wrong, each with the file, and the row and column if they are known.
	Findings []string `json:"findings"`
	// Formatted are the files that --write has formatted.
	Formatted []string `json:"formatted,omitempty"`
}

func newCheck(env *command.Env) *cobra.Command {
	var output command.Output
	var write bool
	cmd := command.New("check PATH...", "Compile policies and check their format", checkLong,
		"  kubectl comity policy check policies/\n  kubectl comity policy check --write policies/owner-required",
		cobra.MinimumNArgs(1), func(_ context.Context, args []string) error {
			policies, err := source.Read(args...)
			if err != nil {
				return err
			}
			result, err := Check(policies, write)
			if err != nil {
				return err
			}
			return output.Conclude(env.Out, "PolicyFindings", result, len(result.Findings) == 0, func() {
				for _, file := range result.Formatted {
					env.Printf("formatted %s\n", file)
				}
				for _, finding := range result.Findings {
					env.Printf("%s\n", finding)
				}
				env.Printf("policies: %d, findings: %d\n", result.Checked, len(result.Findings))
			})
		})
	output.AddFlags(cmd)
	cmd.Flags().BoolVar(&write, "write", false, "Format the Rego files of folders that are not formatted")
	return cmd
}

// findings are what an API server, or the engine of the agent, says is wrong with policies. The
// engine has them in use then.
func findings(agent *child.Client, policies ...source.Policy) (found []string) {
	for i, result := range agent.Load(model.Map(policies, compiled)) {
		found = slices.Concat(found, validate(policies[i]), located(policies[i], result.Err))
	}
	return slices.Compact(found)
}

// load has the engine use policies. The error is what is wrong with them.
func load(agent *child.Client, policies ...source.Policy) error {
	if found := findings(agent, policies...); len(found) > 0 {
		return fmt.Errorf("the policies cannot be used:\n%s", strings.Join(found, "\n"))
	}
	return nil
}

// Check compiles policies, alone and together, and their tests, and checks the format
// of files; with write it formats those of folders. It gives what is wrong, in the order
// of the policies.
func Check(policies []source.Policy, write bool) (Findings, error) {
	result := Findings{Checked: len(policies), Findings: []string{}}
	agent := child.New(engine.Options{})
	defer agent.Close()
	var together []source.Policy
	for _, policy := range policies {
		if err := result.checkFiles(policy, write); err != nil {
			return result, command.Incomplete(err)
		}
		if slices.ContainsFunc(together, func(other source.Policy) bool { return other.Name() == policy.Name() }) {
			// Once as a folder and once as a manifest, say: they are not in use together.
			result.Findings = append(result.Findings, findings(agent, policy)...)
			continue
		}
		together = append(together, policy)
	}
	result.Findings = append(result.Findings, findings(agent, together...)...)
	return result, nil
}

// compiled is a policy for the engine, with the exceptions that are in force today.
func compiled(policy source.Policy) engine.Policy {
	return engine.FromObject(policy.Object, time.Now())
}

// checkFiles checks the files of a folder: the format of all, and that the tests can
// be read. The engine compiles the module. With write it formats what can be read.
func (f *Findings) checkFiles(policy source.Policy, write bool) error {
	for _, path := range slices.Sorted(maps.Keys(policy.Files)) {
		text := policy.Files[path]
		formatted := ""
		_, err := engine.Parse(path, text)
		if err == nil {
			formatted, err = authoring.Format(path, text)
		}
		switch {
		case err != nil && path == policy.Path: // the engine reports it
		case err != nil:
			f.Findings = append(f.Findings, located(policy, engine.Described(err))...)
		case formatted == text:
		case !write:
			f.Findings = append(f.Findings, path+": it is not formatted as opa fmt formats it; run "+command.Name+" policy check --write")
		default:
			if err := os.WriteFile(path, []byte(formatted), 0o644); err != nil { //nolint:gosec // a source file, readable as others
				return err
			}
			f.Formatted = append(f.Formatted, path)
			if path == policy.Path {
				policy.Object.Spec.Rego = formatted
			}
		}
	}
	return nil
}

// inFile is a line of the engine that begins with <policy>.rego:row, with the file that the user
// has; another line as it is.
func inFile(line string, policies ...source.Policy) string {
	for _, policy := range policies {
		switch row, is := strings.CutPrefix(line, policy.Name()+".rego:"); {
		case is && policy.Folder == "":
			return policy.Path + ", spec.rego:" + row
		case is:
			return policy.Path + ":" + row
		}
	}
	return line
}

// located are the lines of an error of the engine, each with the file that it is about.
func located(policy source.Policy, err error) (found []string) {
	if err == nil {
		return nil
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		place := policy.Path
		switch {
		case policy.Folder == "":
		case strings.HasPrefix(line, "spec.parameters.") || strings.HasPrefix(line, "spec.parameters:"):
			place = filepath.Join(policy.Folder, source.ParamsFile)
		case strings.HasPrefix(line, "spec."):
			place = filepath.Join(policy.Folder, source.SpecFile)
		}
		placed := inFile(line, policy)
		file, _, _ := strings.Cut(line, ".rego:")
		if _, isTest := policy.Files[file+".rego"]; placed == line && !isTest {
			placed = place + ": " + line
		}
		found = append(found, placed)
	}
	return found
}

// The limits of an API server on the cost of rules.
const (
	callCost = 1_000_000
	ruleCost = 10 * callCost
)

// validate is what an API server says of a policy by its CustomResourceDefinition, before any
// webhook sees it.
func validate(policy source.Policy) (found []string) {
	var embedded apiextensionsv1.CustomResourceDefinition
	text, errRead := crd.FS.ReadFile("policy.comity.dev_exportpolicies.yaml")
	errDecode := yaml.Unmarshal(text, &embedded)
	props, structural, errStructural := engine.Structural(embedded.Spec.Versions[0].Schema.OpenAPIV3Schema)
	schema, _, errSchema := validation.NewSchemaValidator(props)
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(policy.Object)
	utilruntime.Must(cmp.Or(errRead, errDecode, errStructural, errSchema, err)) // not reached: the definition is embedded, and the policy was decoded
	defaulting.Default(object, structural)
	errs := validation.ValidateCustomResource(nil, object, schema)
	if len(errs) == 0 { // as an API server: rules may rely on the schema
		errs, _ = cel.NewValidator(structural, true, callCost).Validate(context.Background(), nil, nil, object, nil, ruleCost)
	}
	for _, e := range errs {
		found = append(found, located(policy, e)...)
	}
	return found
}
