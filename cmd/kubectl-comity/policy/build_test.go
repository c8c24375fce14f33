// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/policies/source"
)

// repository is the folder of the policies of this repository.
const repository = "../../../policies"

func build(paths ...string) (out, errOut string, err error) {
	var o, e bytes.Buffer
	env := command.NewEnv(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &o, ErrOut: &e})
	cmd := newBuild(env)
	cmd.SetArgs(paths)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.Execute()
	return o.String(), e.String(), err
}

// TestBuildPrintsTheShippedManifest: what a user builds of a folder of this repository
// is what config/policies has, but for a label of those that are installed.
func TestBuildPrintsTheShippedManifest(t *testing.T) {
	found, err := source.Read(repository)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range found {
		out, errOut, err := build(filepath.Join(repository, b.Name()))
		if err != nil {
			t.Errorf("%s: %v\n%s", b.Name(), err, errOut)
		}
		if want, err := b.Manifest(); err != nil || out != want {
			t.Errorf("%s: expected the manifest of package policies, got:\n%s", b.Name(), out)
		}
	}
}

func TestBuildRefusesWhatKubectlCouldNotApply(t *testing.T) {
	const module = "package comity.policies.one\n\ndeny contains {\"msg\": \"no\"} if input.published\n"
	tests := map[string]struct {
		files map[string]string
		want  string // in the error or the findings; empty if it is printed
	}{
		"a module alone":                 {map[string]string{"policy.rego": module}, ""},
		"parameters without a last line": {map[string]string{"policy.rego": module, "params.yaml": "a: 1", "policy.yaml": "existing: Keep"}, ""},
		"a module that does not compile": {map[string]string{"policy.rego": strings.Replace(module, "input.published", "input.srevice", 1)}, "policy.rego:3:"},
		"a module that is not formatted": {map[string]string{"policy.rego": strings.Replace(module, " if ", "  if ", 1)}, "is not formatted"},
		"a field that no spec has":       {map[string]string{"policy.rego": module, "policy.yaml": "enforcment: Warn\n"}, "enforcment"},
		"a spec in braces":               {map[string]string{"policy.rego": module, "policy.yaml": "{enforcement: Warn}\n"}, "not in braces"},
		"a character that nobody sees":   {map[string]string{"policy.rego": "# \u202eon\n" + module}, "line 7 of the ExportPolicy has a character that nobody sees"},
		"no module":                      {map[string]string{"policy.yaml": "enforcement: Warn\n"}, "policy.rego"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "one")
			if err := os.Mkdir(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			for name, text := range test.files {
				if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, errOut, err := build(folder)
			switch {
			case test.want == "" && (err != nil || !strings.Contains(out, "  name: one\n")):
				t.Errorf("got %v\n%s\n%s", err, errOut, out)
			case test.want != "" && (err == nil || !slices.ContainsFunc([]string{err.Error(), errOut}, func(s string) bool { return strings.Contains(s, test.want) })):
				t.Errorf("got %v\n%s; expected %q", err, errOut, test.want)
			case test.want != "" && out != "":
				t.Errorf("it printed:\n%s", out)
			}
		})
	}
}
