// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Repository is where the image is published.
const Repository = "ghcr.io/comity-mcs/comity"

// nobody is a user that no system has: by number, so that the kubelet can see that it is not root.
const nobody = "65532:65532"

// imagePlatforms are those that the image is made for.
func imagePlatforms() []Platform { return []Platform{{"linux", "amd64"}, {"linux", "arm64"}} }

// image packs the agent's binary. Nothing else is in it: the agent is static,
// trusts only the CAs that its peers' Secrets hold, and writes no files.
func (s Source) image(binary string, platform Platform) (v1.Image, error) {
	layer, err := fileLayer(binary, Agent.Name, s.Time)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", binary, err)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := v1.Time{Time: s.Time}
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Arch, Created: created,
		Config: v1.Config{User: nobody, Entrypoint: []string{"/" + Agent.Name}, WorkingDir: "/", Labels: s.labels()},
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, fmt.Errorf("write the image's configuration: %w", err)
	}
	img, err = mutate.Append(img, mutate.Addendum{
		Layer: layer, History: v1.History{Created: created, CreatedBy: "make image", Comment: "the agent, static"},
	})
	if err != nil {
		return nil, fmt.Errorf("add the layer: %w", err)
	}
	annotated, ok := mutate.Annotations(img, s.labels()).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("annotate the image: %T is not an image", img)
	}
	return annotated, nil
}

// labels describe the image by the keys of the OCI image specification.
func (s Source) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":       "comity",
		"org.opencontainers.image.description": "Policy and status for Kubernetes Multi-Cluster Services",
		"org.opencontainers.image.source":      "https://" + module,
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     s.Version,
		"org.opencontainers.image.created":     s.Time.Format(time.RFC3339),
	}
	if s.Revision != "" {
		labels["org.opencontainers.image.revision"] = s.Revision
	}
	return labels
}

// index joins the images of several platforms under one digest.
func (s Source) index(images map[Platform]v1.Image) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range imagePlatforms() {
		img, ok := images[platform]
		if !ok {
			continue
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: platform.OS, Architecture: platform.Arch}},
		})
	}
	annotated, _ := mutate.Annotations(index, s.labels()).(v1.ImageIndex)
	return annotated
}

// fileLayer is a layer with one executable file, owned by root: who runs it cannot change it.
func fileLayer(file, name string, at time.Time) (v1.Layer, error) {
	var b bytes.Buffer
	if err := writeTar(&b, []entry{{name: name, file: file, mode: 0o755}}, at); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// writeOCI writes an image index as an archive in the layout of the OCI image
// specification, named as containerd and others look for the name.
func (s Source) writeOCI(w io.Writer, index v1.ImageIndex, reference string) error {
	dir, err := os.MkdirTemp("", "comity-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	if err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": s.Version,
		"io.containerd.image.name":          reference,
	})); err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	var entries []entry
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error { // in lexical order
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		entries = append(entries, entry{name: filepath.ToSlash(name), file: file, mode: 0o644})
		return err
	})
	if err != nil {
		return err
	}
	return writeTar(w, entries, s.Time)
}
