// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// sources are the Rego files of this folder, tests and all, by path. Format and Rego tests
// are those of `kubectl comity policy`: TestThePoliciesOfThisRepository in its package.
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
	if len(found) < 23 {
		t.Fatalf("found %d Rego files, expected the library and ten policies with their tests", len(found))
	}
	return found
}
