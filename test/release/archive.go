// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// entry is one file of an archive.
type entry struct {
	// name is its path in the archive, with slashes; file is where its content is now.
	name, file string
	// data is its content when file is empty.
	data []byte
	mode fs.FileMode
}

func (e entry) content() ([]byte, error) {
	if e.file == "" {
		return e.data, nil
	}
	return os.ReadFile(e.file)
}

// writeTar writes the entries in their order, owned by root, all of the same time.
func writeTar(w io.Writer, entries []entry, at time.Time) error {
	t := tar.NewWriter(w)
	for _, e := range entries {
		content, err := e.content()
		if err != nil {
			return err
		}
		err = t.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: e.name, Mode: int64(e.mode.Perm()), Size: int64(len(content)), ModTime: at, Format: tar.FormatUSTAR,
		})
		if err != nil {
			return fmt.Errorf("add %s: %w", e.name, err)
		}
		if _, err := t.Write(content); err != nil {
			return fmt.Errorf("add %s: %w", e.name, err)
		}
	}
	return t.Close()
}

// writeTarGz is writeTar, compressed; gzip's header holds no time and no name.
func writeTarGz(w io.Writer, entries []entry, at time.Time) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(z, entries, at), z.Close())
}

// writeZip is what Windows opens without another program.
func writeZip(w io.Writer, entries []entry, at time.Time) error {
	z := zip.NewWriter(w)
	for _, e := range entries {
		content, err := e.content()
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: at}
		header.SetMode(e.mode.Perm())
		f, err := z.CreateHeader(header)
		if err != nil {
			return fmt.Errorf("add %s: %w", e.name, err)
		}
		if _, err := f.Write(content); err != nil {
			return fmt.Errorf("add %s: %w", e.name, err)
		}
	}
	return z.Close()
}

// create writes a file by way of a temporary one, so that a file of that name is always complete.
func create(name string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if err := errors.Join(write(f), f.Chmod(0o644), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return os.Rename(f.Name(), name)
}
