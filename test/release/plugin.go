// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"crypto/sha256"
	_ "embed" // for the template of the krew manifest
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// Names of files in dist that users and krew ask for.
const (
	// Manifest is what `kubectl krew install --manifest-url` reads.
	Manifest = "comity.yaml"
	// Sums lists the SHA-256 of every other file of the release, in the format of sha256sum.
	Sums = "SHA256SUMS"
)

//go:embed krew.yaml.tmpl
var krewTemplate string

// PluginPlatforms are those that the plugin is made for.
func PluginPlatforms() []Platform {
	var all []Platform
	for _, system := range []string{"darwin", "linux", "windows"} {
		all = append(all, Platform{system, "amd64"}, Platform{system, "arm64"})
	}
	return all
}

// archive is one archive of the plugin.
type archive struct {
	Platform Platform
	// Name is the file's name, Program what is to be executed in it.
	Name, Program string
	SHA256        string
}

// Plugins compiles the plugin for the platforms and writes to dist an archive for
// each and the krew manifest. It gives the names of the files, in order.
func (s Source) Plugins(ctx context.Context, dist string, platforms ...Platform) ([]string, error) {
	var archives []archive
	var names []string
	for _, platform := range platforms {
		binary := filepath.Join(dist, platform.OS+"-"+platform.Arch, platform.file(Plugin))
		if err := s.Compile(ctx, Plugin, platform, binary); err != nil {
			return nil, err
		}
		a, err := s.packPlugin(dist, platform, binary)
		if err != nil {
			return nil, err
		}
		archives, names = append(archives, a), append(names, a.Name)
	}
	manifest := filepath.Join(dist, Manifest)
	return append(names, Manifest), create(manifest, func(w io.Writer) error { return s.writeManifest(w, archives) })
}

// packPlugin writes the archive for one platform: zip for Windows, tar.gz for the others.
func (s Source) packPlugin(dist string, platform Platform, binary string) (archive, error) {
	a := archive{Platform: platform, Program: platform.file(Plugin)}
	a.Name = strings.Join([]string{Plugin.Name, s.Version, platform.OS, platform.Arch}, "_")
	entries := []entry{
		{name: "LICENSE", file: filepath.Join(s.Root, "LICENSE"), mode: 0o644},
		{name: a.Program, file: binary, mode: 0o755},
	}
	write := writeTarGz
	if platform.OS == "windows" {
		a.Name += ".zip"
		write = writeZip
	} else {
		a.Name += ".tar.gz"
	}
	file := filepath.Join(dist, a.Name)
	if err := create(file, func(w io.Writer) error { return write(w, entries, s.Time) }); err != nil {
		return archive{}, err
	}
	var err error
	a.SHA256, err = sum(file)
	return a, err
}

// PolicyFiles copies to dist what `opa check` and editors read of policies: the builtins that
// a policy may call, and the JSON Schemas of its input. It gives the names of the files.
func (s Source) PolicyFiles(dist string) ([]string, error) {
	names := []string{"capabilities.json", "input-export.schema.json", "input-import.schema.json"}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(s.Root, "policies", name))
		if err != nil {
			return nil, err
		}
		if err := create(filepath.Join(dist, name), func(w io.Writer) error { _, err := w.Write(text); return err }); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// writeManifest fills the template of the krew manifest.
func (s Source) writeManifest(w io.Writer, archives []archive) error {
	t, err := template.New(Manifest).Option("missingkey=error").Parse(krewTemplate)
	if err != nil {
		return err
	}
	return t.Execute(w, map[string]any{
		"Version":  s.Version,
		"Download": "https://" + module + "/releases/download/" + s.Version,
		"Archives": archives,
	})
}

// WriteSums writes the SHA-256 of the named files of dist, in their order.
func WriteSums(dist string, names []string) error {
	return create(filepath.Join(dist, Sums), func(w io.Writer) error {
		for _, name := range names {
			digest, err := sum(filepath.Join(dist, name))
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%s  %s\n", digest, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// sum is the SHA-256 of a file, in hexadecimal.
func sum(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
