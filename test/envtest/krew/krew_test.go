// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package krew

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/comity-mcs/comity/test/clusters/binaries"
	"github.com/comity-mcs/comity/test/release"
)

const version = "v9.8.7"

// manifest is what krew reads of a plugin's manifest.
type manifest struct {
	APIVersion, Kind string
	Metadata         struct{ Name string }
	Spec             struct {
		Version, ShortDescription string
		Platforms                 []platform
	}
}

type platform struct {
	Selector         struct{ MatchLabels map[string]string }
	URI, SHA256, Bin string
	Files            []struct{ From, To string }
}

func TestThePluginIsInstalledFromItsArchiveAndRunByKubectl(t *testing.T) {
	dist := t.TempDir()
	source, err := release.Describe(t.Context(), filepath.Join("..", "..", ".."), version)
	if err != nil {
		t.Fatal(err)
	}
	here := release.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH}
	names, err := source.Plugins(t.Context(), dist, here)
	if err != nil {
		t.Fatal(err)
	}
	if want := "kubectl-comity_v9.8.7_" + here.OS + "_" + here.Arch + ".tar.gz comity.yaml"; strings.Join(names, " ") != want {
		t.Errorf("files %v, want %s", names, want)
	}
	bin := install(t, dist, readManifest(t, dist))
	run := kubectl(t, bin)

	if out, code := run("comity", "version"); code != 0 || out != "Plugin: "+version+"\n" {
		t.Errorf("kubectl comity version: exit code %d, printed %q; want 0 and the version %s", code, out, version)
	}
	if out, code := run("plugin", "list"); code != 0 || !strings.Contains(out, filepath.Join(bin, "kubectl-comity")) {
		t.Errorf("kubectl plugin list: exit code %d, printed %q; want the plugin", code, out)
	}
	// The plugin reads kubectl's kubeconfig, and kubectl passes its exit code on.
	if out, code := run("comity", "status", "unreachable"); code != 1 || !strings.Contains(out, "unreachable") {
		t.Errorf("kubectl comity status unreachable: exit code %d, printed %q; want 1 and the context", code, out)
	}

	script := "#!/bin/sh\nexec kubectl-comity __complete \"$@\"\n" // as docs/install.md has it
	if err := os.WriteFile(filepath.Join(bin, "kubectl_complete-comity"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, _ := run("__complete", "comity", "vers"); !strings.HasPrefix(out, "version") {
		t.Errorf("kubectl completes `kubectl comity vers` to %q, want version", out)
	}
}

// readManifest reads the krew manifest, strictly: krew's own index refuses unknown fields.
func readManifest(t *testing.T, dist string) manifest {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dist, release.Manifest))
	if err != nil {
		t.Fatal(err)
	}
	var m manifest
	if err := yaml.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	if m.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || m.Kind != "Plugin" || m.Metadata.Name != "comity" || m.Spec.Version != version {
		t.Errorf("manifest %s/%s of %s %s", m.APIVersion, m.Kind, m.Metadata.Name, m.Spec.Version)
	}
	if n := len(m.Spec.ShortDescription); n == 0 || n > 50 {
		t.Errorf("shortDescription has %d characters, want 1 to 50: %q", n, m.Spec.ShortDescription)
	}
	return m
}

// install does what `kubectl krew install` does, with the archive from dist in place
// of a download, and gives the directory that belongs on the PATH.
func install(t *testing.T, dist string, m manifest) (bin string) {
	t.Helper()
	for _, p := range m.Spec.Platforms {
		if p.Selector.MatchLabels["os"] != runtime.GOOS || p.Selector.MatchLabels["arch"] != runtime.GOARCH {
			continue
		}
		if !strings.HasPrefix(p.URI, "https://github.com/comity-mcs/comity/releases/download/"+version+"/") {
			t.Errorf("the archive's address is %s", p.URI)
		}
		archive := filepath.Join(dist, path.Base(p.URI))
		content, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != p.SHA256 {
			t.Fatalf("%s has SHA-256 %x, the manifest says %s", archive, sum, p.SHA256)
		}
		unpacked, store, bin := t.TempDir(), t.TempDir(), t.TempDir()
		unpack(t, archive, unpacked)
		for _, f := range p.Files {
			if err := os.Rename(filepath.Join(unpacked, f.From), filepath.Join(store, f.To, filepath.Base(f.From))); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(filepath.Join(store, p.Bin), filepath.Join(bin, "kubectl-"+m.Metadata.Name)); err != nil {
			t.Fatal(err)
		}
		return bin
	}
	t.Fatalf("the manifest has no platform for %s/%s", runtime.GOOS, runtime.GOARCH)
	return ""
}

// unpack writes the files of a tar.gz archive, with their modes, into dir.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(header.Name)), content, header.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
	}
}

// kubectl gives a function that runs kubectl with bin on its PATH, and a kubeconfig
// whose only context names a server that does not answer.
func kubectl(t *testing.T, bin string) func(args ...string) (out string, code int) {
	t.Helper()
	provider, err := binaries.New()
	if err != nil {
		t.Fatal(err)
	}
	paths, err := provider.Ensure(t.Context(), binaries.Kubectl)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "config")
	text := `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: unreachable, context: {cluster: c, user: u}}]
current-context: unreachable
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(args ...string) (string, int) {
		cmd := exec.CommandContext(t.Context(), paths[binaries.Kubectl], args...)
		cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "KUBECONFIG="+config)
		out, err := cmd.Output()
		exit := (*exec.ExitError)(nil)
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
}
