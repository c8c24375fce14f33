// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/policies/v1alpha1"
)

// Manifest is the ExportPolicy of a folder as YAML, with the comments of its files. The
// module is a block: a marshaler would write it as one quoted line, because of the tabs in
// it, which is hard to review.
func (p Policy) Manifest() (string, error) {
	if p.Folder == "" {
		return "", fmt.Errorf("%s: it is a manifest already; expected the folder of a policy", p.Path)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\nmetadata:\n  name: %s\nspec:\n", v1alpha1.GroupVersion, Kind, p.Name())
	for _, part := range []struct{ file, head, indent string }{{SpecFile, "", "  "}, {ParamsFile, "  parameters:\n", "    "}} {
		text, err := os.ReadFile(filepath.Join(p.Folder, part.file))
		if err == nil {
			b.WriteString(part.head + indented(part.indent, withoutLicense(string(text))))
		} else if !os.IsNotExist(err) {
			return "", err
		}
	}
	b.WriteString("  rego: |\n" + indented("    ", p.Object.Spec.Rego))
	var read v1alpha1.ExportPolicy
	if err := yaml.UnmarshalStrict([]byte(b.String()), &read); err != nil || !reflect.DeepEqual(read.Spec, p.Object.Spec) {
		return "", fmt.Errorf("%s: %s and %s cannot be joined; expected mappings with a key on each line, not in braces", p.Folder, SpecFile, ParamsFile)
	}
	return b.String(), nil
}

// withoutLicense is a file without its first lines, up to the first empty one.
func withoutLicense(text string) string {
	if _, rest, found := strings.Cut(text, "\n\n"); found && strings.HasPrefix(text, "# Copyright ") {
		return rest
	}
	return text
}

// notEmpty is the beginning of each line that is not empty.
var notEmpty = regexp.MustCompile(`(?m)^.`)

// indented ends in a newline.
func indented(by, text string) string {
	return notEmpty.ReplaceAllString(strings.TrimSuffix(text, "\n"), by+"$0") + "\n"
}
