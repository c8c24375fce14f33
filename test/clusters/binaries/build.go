// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// buildTimeout bounds one build: kube-apiserver takes 7 minutes from a cold Go cache on two cores.
const buildTimeout = 40 * time.Minute

// goBuild compiles with the version list of the program's own modfile, so that
// tools put nothing into the project's go.mod.
func (p *Provider) goBuild(ctx context.Context, prog program, out string) error {
	if p.Root == "" {
		return errors.New("building needs the project's sources: run inside the project")
	}
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	modfile := filepath.Join("test", "tools", prog.modfile+".mod")
	cmd := exec.CommandContext(ctx, "go", "build", "-modfile="+modfile, "-mod=readonly", "-buildvcs=false", "-trimpath",
		"-tags="+prog.tags, "-ldflags", "-s -w"+prog.ldflags, "-o", out, prog.pkg)
	cmd.Dir = p.Root
	// Static, and the same for everyone: the caller's GOFLAGS and workspace must not choose other versions.
	// On all processors, also for a suite that has one: it takes minutes.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOMAXPROCS=", "GOOS="+p.goos, "GOARCH="+p.goarch)
	cmd.WaitDelay = 5 * time.Second
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build -modfile=%s %s: %w\n%s", modfile, prog.pkg, err, tail(string(output), 20))
	}
	return nil
}

// tail gives the last n lines of text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
