// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"strings"
	"testing"
)

// head and rego are a document's parts that are right.
const (
	head = "apiVersion: policy.comity.dev/v1alpha1\nkind: ExportPolicy\n"
	rego = "metadata:\n  name: one\nspec:\n  rego: package comity.policies.one\n"
)

func TestDecodeNamesDocumentAndField(t *testing.T) {
	for _, tc := range []struct {
		name, manifest string
		want           []string
	}{
		{"a misspelled field", head + rego + "  enforcment: Warn\n", []string{"f.yaml, document 1", "ExportPolicy one", `unknown field "spec.enforcment"`}},
		{"a misspelled field of the second document", head + rego + "---\n" + head + strings.ReplaceAll(rego, "one", "two") + "  matches: {}\n",
			[]string{"document 2", "ExportPolicy two", "spec.matches"}},
		{"a field of the wrong type", head + rego + "  enforcement: [Warn]\n", []string{"document 1", "spec.enforcement"}},
		{"a field that is given twice", head + rego + "  rego: again\n", []string{"document 1", `"rego" already set`}},
		{"another kind", "apiVersion: v1\nkind: ConfigMap\n" + rego, []string{"document 1", `"ConfigMap"`, `expected "policy.comity.dev/v1alpha1" and "ExportPolicy"`}},
		{"no kind", rego, []string{"document 1", "apiVersion and kind"}},
		{"no name", head + "spec:\n  rego: x\n", []string{"document 1", "metadata.name: missing"}},
		{"a namespace", head + strings.Replace(rego, "name: one", "name: one\n  namespace: shop", 1), []string{"metadata.namespace", `"shop"`, "whole cluster"}},
		{"one name twice", head + rego + "---\n# nothing\n---\n" + head + rego, []string{"document 3", `"one"`, "document 1"}},
		{"no YAML", head + "spec: {\n", []string{"document 1"}},
		{"no object", "- a\n", []string{"document 1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := decode([]byte(tc.manifest), "f.yaml")
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
	got, err := decode([]byte("# a comment\n---\n"+head+rego+"---\n---\n"+head+strings.ReplaceAll(rego, "one", "two")+"---\n"), "f.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].GetName() != "one" || got[1].GetName() != "two" {
		t.Errorf("got %v, want one and two", got)
	}
	if got, err := decode(nil, "f.yaml"); err != nil || len(got) != 0 {
		t.Errorf("of an empty file got %v and %v, want nothing", got, err)
	}
}
