// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const (
	probeTimeout = 10 * time.Second
	loadTimeout  = 5 * time.Minute
)

// ErrNoEngine says that no Docker engine answers here.
var ErrNoEngine = errors.New("no Docker engine answers")

// Images compiles the agent for all platforms, as dist/<os>-<arch>/comity, and
// packs them into dist/comity-<version>.oci.tar, whose name it gives.
func (s Source) Images(ctx context.Context, dist string) (archive string, err error) {
	images := map[Platform]v1.Image{}
	for _, platform := range imagePlatforms() {
		if images[platform], err = s.compileImage(ctx, dist, platform); err != nil {
			return "", err
		}
	}
	archive = filepath.Join(dist, "comity-"+s.Version+".oci.tar")
	reference := Repository + ":" + s.Version
	return archive, create(archive, func(w io.Writer) error { return s.writeOCI(w, s.index(images), reference) })
}

// LoadImage compiles and packs the agent for the platform of the Docker engine,
// and loads it there under the reference. Without an engine it is ErrNoEngine.
func (s Source) LoadImage(ctx context.Context, reference string) error {
	platform, err := enginePlatform(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "comity-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	img, err := s.compileImage(ctx, dir, platform)
	if err != nil {
		return err
	}
	return load(ctx, img, reference)
}

func (s Source) compileImage(ctx context.Context, dist string, platform Platform) (v1.Image, error) {
	binary := filepath.Join(dist, platform.OS+"-"+platform.Arch, platform.file(Agent))
	if err := s.Compile(ctx, Agent, platform, binary); err != nil {
		return nil, err
	}
	return s.image(binary, platform)
}

// enginePlatform is what the containers of the Docker engine run on.
func enginePlatform(ctx context.Context) (Platform, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Os}} {{.Server.Arch}}").Output()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) != 2 {
		return Platform{}, fmt.Errorf("%w to `docker version`: start one, or set DOCKER_HOST", ErrNoEngine)
	}
	return Platform{OS: fields[0], Arch: fields[1]}, nil
}

// load hands an image to the Docker engine in the format of `docker save`, which every version reads.
func load(ctx context.Context, img v1.Image, reference string) error {
	tag, err := name.NewTag(reference)
	if err != nil {
		return fmt.Errorf("load the image: %q is not the name of an image: %w", reference, err)
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	read, write := io.Pipe()
	go func() { _ = write.CloseWithError(tarball.Write(tag, img, write)) }()
	cmd := exec.CommandContext(ctx, "docker", "load", "--quiet")
	cmd.Stdin = read
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		_ = read.CloseWithError(err)
		return fmt.Errorf("docker load %s: %w\n%s", reference, err, strings.TrimSpace(string(out)))
	}
	return nil
}
