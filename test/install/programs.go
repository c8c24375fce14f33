// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/comity-mcs/comity/test/clusters/binaries"
)

// Build builds the agent from this checkout, as the file out.
func Build(ctx context.Context, out string) error { return build(ctx, out, "./cmd/comity") }

// BuildForTests builds the agent with short waits (see test/install/agent).
func BuildForTests(ctx context.Context, out string) error {
	return build(ctx, out, "./test/install/agent")
}

func build(ctx context.Context, out, program string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", out, program)
	cmd.Dir = Root()
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
