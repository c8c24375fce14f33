// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/comity-mcs/comity/policies"
)

// stored gives the generated files of the repository at root.
func stored(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	add := func(file string) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.ToSlash(name)] = string(text)
	}
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(file string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				add(file)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	add(filepath.Join(root, configMap))
	add(filepath.Join(root, capabilities))
	for stage := range inputs {
		add(filepath.Join(root, "policies", policies.InputSchemaFile(string(stage))))
	}
	return files
}

func TestFilesAreUpToDate(t *testing.T) {
	want, err := generate("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, stored(t, "../../..")); diff != "" {
		t.Errorf("run make generate (-want +got):\n%s", diff)
	}
}

func TestWriteRemovesWhatHasNoSource(t *testing.T) {
	root := t.TempDir()
	for _, folder := range []string{"config", "policies"} {
		if err := os.CopyFS(filepath.Join(root, folder), os.DirFS("../../../"+folder)); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{chartFolder + "/policies", policyFolder, policyFolder + "/" + library} {
		gone := filepath.Join(root, folder, "gone.yaml")
		if err := os.MkdirAll(filepath.Dir(gone), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(gone, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := write(root); err != nil {
		t.Fatal(err)
	}
	want, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, stored(t, root)); diff != "" {
		t.Error(diff)
	}
}
