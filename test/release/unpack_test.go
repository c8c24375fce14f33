// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// unpackTar writes the files of an archive below dir.
func unpackTar(t *testing.T, from io.Reader, dir string) {
	t.Helper()
	for r := tar.NewReader(from); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, header.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, content, header.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
	}
}
