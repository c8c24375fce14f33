// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const module = "github.com/comity-mcs/comity"

// compileTimeout bounds one compilation: three minutes from a cold Go cache on two cores of its own.
const compileTimeout = 40 * time.Minute

// Program is a command of this module.
type Program struct {
	// Name is the file's name without .exe, and its folder below cmd.
	Name string
	// variable is the string variable that is set to the version, by import path.
	variable string
}

// Agent is what runs in a cluster, Plugin what runs beside kubectl.
var (
	Agent  = Program{Name: "comity", variable: module + "/cmd/comity/app.version"}
	Plugin = Program{Name: "kubectl-comity", variable: module + "/cmd/kubectl-comity/command.Version"}
)

// Platform is an operating system and an architecture, as Go names them.
type Platform struct{ OS, Arch string }

func (p Platform) String() string { return p.OS + "/" + p.Arch }

// file is the name of a program on the platform.
func (p Platform) file(program Program) string {
	if p.OS == "windows" {
		return program.Name + ".exe"
	}
	return program.Name
}

// Compile builds a program of the checkout into the file out.
func (s Source) Compile(ctx context.Context, program Program, platform Platform, out string) error {
	ctx, cancel := context.WithTimeout(ctx, compileTimeout)
	defer cancel()
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly",
		"-ldflags", "-s -w -X "+program.variable+"="+s.Version, "-o", out, "./cmd/"+program.Name)
	cmd.Dir = s.Root
	cmd.Env = append(append(os.Environ(), "GOMAXPROCS="), environment(platform)...) // on all processors, also for a suite that has one
	cmd.WaitDelay = 5 * time.Second
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./cmd/%s for %s: %w\n%s", program.Name, platform, err, strings.TrimSpace(string(said)))
	}
	return nil
}

// environment sets everything by which a caller's environment could change the bytes.
func environment(platform Platform) []string {
	return []string{
		"CGO_ENABLED=0", "GOOS=" + platform.OS, "GOARCH=" + platform.Arch,
		"GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off",
	}
}
