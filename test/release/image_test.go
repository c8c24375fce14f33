// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// source is a checkout of a version that does not exist.
func source(t *testing.T) Source {
	t.Helper()
	return Source{Root: t.TempDir(), Version: "v1.2.3", Revision: "0123abc", Time: time.Unix(1_700_000_000, 0).UTC()}
}

// binary writes a file in place of a program, with the time of its writing and rights of its own.
func binary(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "comity")
	if err := os.WriteFile(name, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return name
}

// pack gives the OCI archive of the content for both platforms.
func pack(t *testing.T, s Source, content string, mode os.FileMode) []byte {
	t.Helper()
	images := map[Platform]v1.Image{}
	for _, platform := range imagePlatforms() {
		img, err := s.image(binary(t, content+platform.Arch, mode), platform)
		if err != nil {
			t.Fatal(err)
		}
		images[platform] = img
	}
	var b bytes.Buffer
	if err := s.writeOCI(&b, s.index(images), Repository+":"+s.Version); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTheSameBinaryGivesTheSameArchive(t *testing.T) {
	s := source(t)
	first := pack(t, s, "program", 0o755)
	if second := pack(t, s, "program", 0o700); !bytes.Equal(first, second) {
		t.Error("packing the same binary twice gave different bytes")
	}
	if other := pack(t, s, "another", 0o755); bytes.Equal(first, other) {
		t.Error("another binary gave the same bytes")
	}
	s.Time = s.Time.Add(time.Second)
	if later := pack(t, s, "program", 0o755); bytes.Equal(first, later) {
		t.Error("another commit's time gave the same bytes")
	}
}

func TestTheArchiveIsAnIndexOfBothPlatforms(t *testing.T) {
	s := source(t)
	dir := t.TempDir()
	unpackTar(t, bytes.NewReader(pack(t, s, "program", 0o755)), dir)
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(outer); err != nil {
		t.Errorf("the archive is not valid: %v", err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("the layout lists %v, %v; want one index", manifest, err)
	}
	if name := manifest.Manifests[0].Annotations["io.containerd.image.name"]; name != "ghcr.io/comity-mcs/comity:v1.2.3" {
		t.Errorf("containerd finds the name %q", name)
	}
	inner, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err = inner.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, d := range manifest.Manifests {
		platforms = append(platforms, d.Platform.String())
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, platforms); diff != "" {
		t.Errorf("platforms (-want +have):\n%s", diff)
	}
	if manifest.Annotations["org.opencontainers.image.revision"] != "0123abc" {
		t.Errorf("the index has annotations %v, want the revision among them", manifest.Annotations)
	}
}

func TestTheImageHoldsTheBinaryAndNothingElse(t *testing.T) {
	s := source(t)
	img, err := s.image(binary(t, "program", 0o600), Platform{"linux", "arm64"})
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != "arm64" || config.Config.User != "65532:65532" || !cmp.Equal(config.Config.Entrypoint, []string{"/comity"}) {
		t.Errorf("configuration %+v", config)
	}
	if config.Config.Labels["org.opencontainers.image.version"] != "v1.2.3" || !config.Created.Equal(s.Time) {
		t.Errorf("labels %v, created %s", config.Config.Labels, config.Created)
	}
	dir := t.TempDir()
	unpackTar(t, mutate.Extract(img), dir)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("the image holds %v, %v; want comity alone", files, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "comity")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("comity: %v, %v; want mode 0755", info, err)
	}
}
