// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/comity-mcs/comity/test/clusters/binaries"
)

// Build builds the agent from this checkout, as the file out.
func Build(ctx context.Context, out string) error { return build(ctx, Root(), out, "./cmd/comity") }

// BuildForTests builds the agent with short waits (see test/install/agent), as the file out.
// All suites share one build, which is linked again only if the code has changed: out is a
// link to it, so that a suite keeps the program that it began with.
func BuildForTests(ctx context.Context, out string) error {
	dir := filepath.Join(Root(), "bin", "for-tests")
	unlock, err := binaries.Lock(ctx, dir, func() {})
	if err != nil {
		return fmt.Errorf("lock the directory of the agent for tests: %w", err)
	}
	defer unlock()
	built := filepath.Join(dir, "comity")
	if err := build(ctx, filepath.Join(Root(), "test"), built, "./install/agent"); err != nil {
		return err
	}
	if os.Link(built, out) == nil {
		return nil
	}
	return os.Symlink(built, out) // out is on another file system
}

// build builds a program of the module in dir as a release is built, with which it shares what is compiled.
func build(ctx context.Context, dir, out, program string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, program)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOMAXPROCS=") // on all processors, also for a suite that has one
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", program, err, said)
	}
	return nil
}

// Kubectl is the program that renders manifests, fetched or built if it is not there yet.
func Kubectl(ctx context.Context) (string, error) {
	provider, err := binaries.New()
	if err != nil {
		return "", err
	}
	paths, err := provider.Ensure(ctx, binaries.Kubectl)
	return paths[binaries.Kubectl], err
}
