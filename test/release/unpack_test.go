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

// unpackTar writes the files of an archive below dir. Each must have the time of source, and belong to root.
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
		if !header.ModTime.Equal(source(t).Time) || header.Uid != 0 || header.Gid != 0 {
			t.Errorf("%s is of %s and belongs to %d:%d; want the commit's time and root", header.Name, header.ModTime, header.Uid, header.Gid)
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
