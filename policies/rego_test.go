// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"
)

// sources are the Rego files of this folder, tests and all, by path.
func sources(t *testing.T) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".rego" {
			return err
		}
		text, err := os.ReadFile(path)
		found[path] = text
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 7 {
		t.Fatalf("found %d Rego files, expected the library and three policies with their tests", len(found))
	}
	return found
}

func TestRegoFilesAreFormatted(t *testing.T) {
	for path, text := range sources(t) {
		formatted, err := format.SourceWithOpts(path, text, format.Opts{RegoVersion: ast.RegoV1})
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if diff := cmp.Diff(string(text), string(formatted)); diff != "" {
			t.Errorf("%s is not as opa fmt writes it (-is +should):\n%s", path, diff)
		}
	}
}

func TestRegoTestsPass(t *testing.T) {
	modules := map[string]*ast.Module{}
	for path, text := range sources(t) {
		module, err := ast.ParseModuleWithOpts(path, string(text), ast.ParserOptions{RegoVersion: ast.RegoV1, ProcessAnnotation: true})
		if err != nil {
			t.Fatal(err)
		}
		modules[path] = module
	}
	store := inmem.New()
	txn := storage.NewTransactionOrDie(t.Context(), store)
	defer store.Abort(t.Context(), txn)
	results, err := tester.NewRunner().
		SetCompiler(ast.NewCompiler().WithStrict(true)).
		RaiseBuiltinErrors(true).
		SetStore(store).
		SetModules(modules).
		RunTests(t.Context(), txn)
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string]int{}
	for result := range results {
		ran[strings.TrimSuffix(result.Package, "_test")]++
		t.Run(result.Package+"/"+result.Name, func(t *testing.T) {
			if !result.Pass() {
				t.Errorf("%s: failed: %v", result.Location, result.Error)
			}
		})
	}
	for path, module := range modules {
		name := strings.TrimSuffix(module.Package.Path.String(), "_test")
		if strings.HasPrefix(name, "data.comity.policies.") && ran[name] == 0 {
			t.Errorf("%s: no test of %s ran", path, name)
		}
	}
}
