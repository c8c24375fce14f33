// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/comity-mcs/comity/policies/decision"
)

// TestInputIsDocumented holds INPUT.md and the JSON of decision.Input, and of
// decision.ImportInput, together:
// every field of ours has a row, and every row a field. Kubernetes types are
// documented by Kubernetes.
func TestInputIsDocumented(t *testing.T) {
	text, err := os.ReadFile("INPUT.md")
	if err != nil {
		t.Fatal(err)
	}
	for heading, input := range map[string]reflect.Type{
		"The input":                     reflect.TypeFor[decision.Input](),
		"The input of an import policy": reflect.TypeFor[decision.ImportInput](),
	} {
		if diff := cmp.Diff(paths(input, "input"), documented(section(t, string(text), heading))); diff != "" {
			t.Errorf("section %q of INPUT.md and decision.%s differ (-fields, in order +documented):\n%s", heading, input.Name(), diff)
		}
	}
}

// section is the text of a document below a heading, up to the next one.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("INPUT.md has no section %q", heading)
	}
	own, _, _ := strings.Cut(rest, "\n## ")
	return own
}

// documented are the paths in the first column of the tables in the text.
func documented(text string) (paths []string) {
	for _, row := range regexp.MustCompile("(?m)^\\| `(input\\.[^`]+)` \\|").FindAllStringSubmatch(text, -1) {
		paths = append(paths, row[1])
	}
	return paths
}

// paths are the JSON paths below a type of package decision, in order.
func paths(t reflect.Type, prefix string) []string {
	switch t.Kind() {
	case reflect.Pointer:
		return paths(t.Elem(), prefix)
	case reflect.Map:
		return paths(t.Elem(), prefix+"[id]")
	case reflect.Slice:
		return paths(t.Elem(), prefix)
	case reflect.Struct:
	default:
		return nil
	}
	if t.PkgPath() != reflect.TypeFor[decision.Input]().PkgPath() {
		return nil
	}
	var all []string
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" {
			continue // policies do not see it
		}
		all = append(all, prefix+"."+name)
		all = append(all, paths(field.Type, prefix+"."+name)...)
	}
	return all
}

func TestPathsKnowAMap(t *testing.T) {
	if all := paths(reflect.TypeFor[decision.Input](), "input"); !slices.Contains(all, "input.peers[id].namespace.presence") {
		t.Errorf("got %q", all)
	}
}
