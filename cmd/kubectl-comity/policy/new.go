// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
	"github.com/comity-mcs/comity/policies/engine"
)

const newLong = `Write the folder of a new policy: a module that compiles, parameters, tests that pass,
and fixtures for them. An existing folder is refused; nothing is overwritten.`

// templates are the files of a new policy, with [[ ]] around what depends on its name.
//
//go:embed template
var templates embed.FS

const templateFolder = "template"

// policyName is what a policy may be called: a name of an object, of which the package can
// be made.
var policyName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// maxPolicyName is the length of the longest name of an object.
const maxPolicyName = 253

func newNew(env *command.Env) *cobra.Command {
	var folder string
	cmd := command.New("new NAME", "Write the folder of a new policy", newLong,
		"  kubectl comity policy new owner-required\n  kubectl comity policy new owner-required --dir policies",
		cobra.ExactArgs(1), func(_ context.Context, args []string) error { return runNew(env, folder, args[0]) })
	cmd.Flags().StringVar(&folder, "dir", ".", "The folder in which the folder of the policy is made")
	return cmd
}

func runNew(env *command.Env, parent, name string) error {
	if !policyName.MatchString(name) || len(name) > maxPolicyName {
		return fmt.Errorf("the name is %q; expected lower-case letters, digits and single dashes, beginning with a letter, such as owner-required", name)
	}
	folder := filepath.Join(parent, name)
	if _, err := os.Lstat(folder); err == nil {
		return fmt.Errorf("%s exists; expected another name, or --dir with another folder: nothing is overwritten", folder)
	}
	values := strings.NewReplacer("[[.Package]]", strings.ReplaceAll(name, "-", "_"), "[[.Reason]]", engine.ReasonOf(name))
	err := fs.WalkDir(templates, templateFolder, func(path string, entry fs.DirEntry, err error) error {
		into := filepath.Join(folder, filepath.FromSlash(strings.TrimSuffix(strings.TrimPrefix(path, templateFolder), ".tmpl")))
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return os.MkdirAll(into, 0o755) //nolint:gosec // a folder of sources, readable as others
		}
		text, _ := templates.ReadFile(path) // it is embedded
		env.Printf("wrote %s\n", into)
		return os.WriteFile(into, []byte(values.Replace(string(text))), 0o644) //nolint:gosec // a source file, readable as others
	})
	if err != nil {
		return command.Incomplete(err)
	}
	env.Printf("\nChange the module, then:\n  %[1]s policy check %[2]s\n  %[1]s policy test %[2]s\n", command.Name, folder)
	return nil
}
