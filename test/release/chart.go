// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	chartVersion = regexp.MustCompile(`(?m)^version:.*$`)
	appVersion   = regexp.MustCompile(`(?m)^appVersion:.*$`)
	// imageTag is that of the image in an annotation, which Artifact Hub scans.
	imageTag = regexp.MustCompile(`(?m)(^ +image: ghcr\.io/comity-mcs/comity:).*$`)
)

// Chart packs charts/comity into dist as `helm package` would, but for the times of
// its files, and gives the archive's name. The chart's version has no leading v, as
// Helm asks; its appVersion is the tag of the image.
func (s Source) Chart(dist string) (string, error) {
	version := strings.TrimPrefix(s.Version, "v")
	name := "comity-" + version + ".tgz"
	entries, err := chartEntries(filepath.Join(s.Root, "charts", "comity"))
	if err != nil {
		return "", fmt.Errorf("read the chart: %w", err)
	}
	for i, e := range entries {
		if e.name != "comity/Chart.yaml" {
			continue
		}
		text, err := os.ReadFile(e.file)
		if err != nil {
			return "", err
		}
		if !chartVersion.Match(text) || !appVersion.Match(text) {
			return "", fmt.Errorf("%s has no line that begins with version: or none with appVersion: at its top level; add both", e.file)
		}
		text = chartVersion.ReplaceAllLiteral(text, []byte("version: "+version))
		text = appVersion.ReplaceAllLiteral(text, []byte("appVersion: "+s.Version))
		text = imageTag.ReplaceAll(text, []byte("${1}"+s.Version))
		entries[i] = entry{name: e.name, data: text, mode: e.mode}
	}
	return name, create(filepath.Join(dist, name), func(w io.Writer) error { return writeTarGz(w, entries, s.Time) })
}

// chartEntries lists the files of a chart that .helmignore does not exclude. Helm reads Chart.yaml first.
func chartEntries(dir string) ([]entry, error) {
	patterns, err := ignored(filepath.Join(dir, ".helmignore"))
	if err != nil {
		return nil, err
	}
	entries := []entry{{name: "comity/Chart.yaml", file: filepath.Join(dir, "Chart.yaml"), mode: 0o644}}
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil || name == "." || name == "Chart.yaml" {
			return err
		}
		name = filepath.ToSlash(name)
		switch excluded := excludes(patterns, name, d.IsDir()); {
		case excluded && d.IsDir():
			return fs.SkipDir
		case !excluded && !d.IsDir():
			entries = append(entries, entry{name: path.Join("comity", name), file: file, mode: 0o644})
		}
		return nil
	})
	return entries, err
}

// ignored reads the patterns of a .helmignore file. It refuses those that excludes does not know.
func ignored(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var patterns []string
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.HasPrefix(line, "!") || strings.Contains(line, "**") {
			return nil, fmt.Errorf("%s: pattern %q: neither ! nor ** is supported; name the files", file, line)
		}
		patterns = append(patterns, line)
	}
	return patterns, nil
}

// excludes applies Helm's rules: a pattern with a slash before its end is relative to the
// chart, another one matches a name anywhere, and a slash at the end restricts it to directories.
func excludes(patterns []string, name string, dir bool) bool {
	for _, pattern := range patterns {
		trimmed := strings.TrimSuffix(pattern, "/")
		if trimmed != pattern && !dir {
			continue
		}
		have := path.Base(name)
		if strings.Contains(trimmed, "/") {
			have, trimmed = name, strings.TrimPrefix(trimmed, "/")
		}
		if matched, err := path.Match(trimmed, have); err == nil && matched {
			return true
		}
	}
	return false
}
