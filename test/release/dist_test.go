// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// checkout is a source whose files are these.
func checkout(t *testing.T, files map[string]string) Source {
	t.Helper()
	s := source(t)
	for name, content := range files {
		file := filepath.Join(s.Root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func content(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestThePluginIsPackedForEachPlatform(t *testing.T) {
	s := checkout(t, map[string]string{"LICENSE": "license"})
	var archives []archive
	for _, platform := range PluginPlatforms() {
		first, second := t.TempDir(), t.TempDir()
		a, err := s.packPlugin(first, platform, binary(t, "program", 0o755))
		if err != nil {
			t.Fatal(err)
		}
		again, err := s.packPlugin(second, platform, binary(t, "program", 0o700))
		if err != nil {
			t.Fatal(err)
		}
		if a != again || !bytes.Equal(content(t, filepath.Join(first, a.Name)), content(t, filepath.Join(second, a.Name))) {
			t.Errorf("%s: packing twice gave different archives: %v, %v", platform, a, again)
		}
		if platform.OS != "windows" {
			archives = append(archives, a)
			continue
		}
		z, err := zip.OpenReader(filepath.Join(first, a.Name))
		if err != nil || len(z.File) != 2 || z.File[1].Name != "kubectl-comity.exe" {
			t.Fatalf("%s holds %v, %v; want LICENSE and kubectl-comity.exe", a.Name, z, err)
		}
		for _, f := range z.File {
			if !f.Modified.Equal(s.Time) {
				t.Errorf("%s in %s is of %s, want the commit's time", f.Name, a.Name, f.Modified)
			}
		}
		_ = z.Close()
		archives = append(archives, a)
	}
	var b bytes.Buffer
	if err := s.writeManifest(&b, archives); err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Spec struct {
			Platforms []struct{ URI, Bin string }
		}
	}
	if err := yaml.Unmarshal(b.Bytes(), &manifest); err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, p := range manifest.Spec.Platforms {
		have = append(have, strings.TrimPrefix(p.URI, "https://github.com/comity-mcs/comity/releases/download/v1.2.3/")+" "+p.Bin)
	}
	want := []string{
		"kubectl-comity_v1.2.3_darwin_amd64.tar.gz kubectl-comity", "kubectl-comity_v1.2.3_darwin_arm64.tar.gz kubectl-comity",
		"kubectl-comity_v1.2.3_linux_amd64.tar.gz kubectl-comity", "kubectl-comity_v1.2.3_linux_arm64.tar.gz kubectl-comity",
		"kubectl-comity_v1.2.3_windows_amd64.zip kubectl-comity.exe", "kubectl-comity_v1.2.3_windows_arm64.zip kubectl-comity.exe",
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("the krew manifest names (-want +have):\n%s", diff)
	}
}

func TestTheChartIsPackedWithoutWhatHelmIgnores(t *testing.T) {
	s := checkout(t, map[string]string{
		"charts/comity/Chart.yaml":                 "apiVersion: v2\nversion: 0.1.0\nappVersion: 0.1.0\n    image: ghcr.io/comity-mcs/comity:0.1.0\n",
		"charts/comity/.helmignore":                "# not packed\n/tests/\n*.gotmpl\n.helmignore\n",
		"charts/comity/README.md.gotmpl":           "",
		"charts/comity/tests/x_test.yaml":          "",
		"charts/comity/templates/a.yaml":           "",
		"charts/comity/templates/tests/probe.yaml": "",
	})
	dist := t.TempDir()
	name, err := s.Chart(dist)
	if err != nil || name != "comity-1.2.3.tgz" {
		t.Fatalf("Chart() = %q, %v", name, err)
	}
	packed := content(t, filepath.Join(dist, name))
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	unpackTar(t, unzipped, dir)
	if diff := cmp.Diff("apiVersion: v2\nversion: 1.2.3\nappVersion: v1.2.3\n    image: ghcr.io/comity-mcs/comity:v1.2.3\n", string(content(t, filepath.Join(dir, "comity", "Chart.yaml")))); diff != "" {
		t.Errorf("Chart.yaml (-want +have):\n%s", diff)
	}
	var have []string
	for _, pattern := range []string{"*/*", "*/.*", "*/*/*", "*/*/*/*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
				have = append(have, strings.TrimPrefix(file, dir+"/"))
			}
		}
	}
	if diff := cmp.Diff([]string{"comity/Chart.yaml", "comity/templates/a.yaml", "comity/templates/tests/probe.yaml"}, have); diff != "" {
		t.Errorf("the archive holds (-want +have):\n%s", diff)
	}
	if _, err := s.Chart(dist); err != nil || !bytes.Equal(packed, content(t, filepath.Join(dist, name))) {
		t.Errorf("packing twice gave different bytes, %v", err)
	}
}

func TestTheVersionIsSemanticWithoutATag(t *testing.T) {
	s, err := Describe(t.Context(), t.TempDir(), "")
	if err != nil || s.Version != "v0.0.0-dev" || s.Revision != "" {
		t.Errorf("outside of Git: %+v, %v", s, err)
	}
	t.Setenv(epochEnv, "soon")
	if _, err := Describe(t.Context(), t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), `"soon"`) {
		t.Errorf("SOURCE_DATE_EPOCH=soon gives error %v", err)
	}
}

func TestWhatEditorsReadIsInTheRelease(t *testing.T) {
	s := checkout(t, map[string]string{"policies/capabilities.json": "1", "policies/input-export.schema.json": "2", "policies/input-import.schema.json": "3"})
	dist := t.TempDir()
	names, err := s.PolicyFiles(dist)
	if err != nil || len(names) != 3 {
		t.Fatalf("%v: %v", names, err)
	}
	for i, name := range names {
		if got := string(content(t, filepath.Join(dist, name))); got != string(rune('1'+i)) {
			t.Errorf("%s has %q", name, got)
		}
	}
}
