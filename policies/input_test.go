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

// TestInputIsDocumented holds INPUT.md and the JSON of decision.Input together:
// every field of ours has a row, and every row a field. Kubernetes types are
// documented by Kubernetes.
func TestInputIsDocumented(t *testing.T) {
	text, err := os.ReadFile("INPUT.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(input\\.[^`]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, row[1])
	}
	fields := paths(reflect.TypeFor[decision.Input](), "input")
	if diff := cmp.Diff(fields, documented); diff != "" {
		t.Errorf("INPUT.md and decision.Input differ (-fields, in order +documented):\n%s", diff)
	}
}

// paths are the JSON paths below a type of package decision, in order.
func paths(t reflect.Type, prefix string) []string {
	switch t.Kind() {
	case reflect.Pointer:
		return paths(t.Elem(), prefix)
	case reflect.Map:
		return paths(t.Elem(), prefix+"[id]")
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
