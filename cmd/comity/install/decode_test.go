// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// head and rego are a document's parts that are right.
const (
	head = "apiVersion: policy.comity.dev/v1alpha1\nkind: ExportPolicy\n"
	rego = "metadata:\n  name: one\nspec:\n  rego: package comity.policies.one\n"
)

// file is a file with a text.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDecodeNamesDocumentAndField(t *testing.T) {
	for _, tc := range []struct {
		name, manifest string
		want           []string
	}{
		{"a misspelled field", head + rego + "  enforcment: Warn\n", []string{"f.yaml: ExportPolicy", `unknown field "spec.enforcment"`}},
		{"a misspelled field of the second document", head + rego + "---\n" + head + strings.ReplaceAll(rego, "one", "two") + "  matches: {}\n",
			[]string{"f.yaml, document 2: ExportPolicy", "spec.matches"}},
		{"a field of the wrong type", head + rego + "  enforcement: [Warn]\n", []string{"f.yaml: ExportPolicy", "enforcement"}},
		{"a field that is given twice", head + rego + "  rego: again\n", []string{"f.yaml: ", `"rego" already set`}},
		{"another kind", "apiVersion: v1\nkind: ConfigMap\n" + rego, []string{"f.yaml: ", `"ConfigMap"`, "expected ExportPolicy"}},
		{"another version", strings.Replace(head, "v1alpha1", "v1", 1) + rego, []string{"f.yaml: ", `"policy.comity.dev/v1"`, "expected policy.comity.dev/v1alpha1"}},
		{"no kind", rego, []string{"f.yaml: ", `kind is ""`}},
		{"no name", head + "spec:\n  rego: x\n", []string{"f.yaml: ", "metadata.name is not set"}},
		{"a namespace", head + strings.Replace(rego, "name: one", "name: one\n  namespace: shop", 1), []string{"metadata.namespace", `"shop"`, "whole cluster"}},
		{"one name twice", head + rego + "---\n# nothing\n---\n" + head + rego, []string{"f.yaml, document 3", `"one"`, "f.yaml; "}},
		{"no YAML", head + "spec: {\n", []string{"f.yaml: "}},
		{"no object", "- a\n", []string{"f.yaml: "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := decode(file(t, tc.manifest))
			if err == nil {
				t.Fatalf("got %v and no error", got)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got %q, want it to say %q", err, part)
				}
			}
		})
	}
}

func TestDecodeReadsDocumentsInOrderAndSkipsEmptyOnes(t *testing.T) {
	got, err := decode(file(t, "# a comment\n---\n"+head+rego+"---\n---\n"+head+strings.ReplaceAll(rego, "one", "two")+"---\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].GetName() != "one" || got[1].GetName() != "two" {
		t.Errorf("got %v, want one and two", got)
	}
	if got, err := decode(file(t, "")); err != nil || len(got) != 0 {
		t.Errorf("of an empty file got %v and %v, want nothing", got, err)
	}
}
