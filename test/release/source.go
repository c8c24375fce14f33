// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// epochEnv overrides the time of the commit, as reproducible-builds.org defines it.
const epochEnv = "SOURCE_DATE_EPOCH"

// Source is the checkout that everything is made from.
type Source struct {
	// Root is the directory with go.mod of the shipped module.
	Root string
	// Version is what the programs print. It is a semantic version with a leading v.
	Version string
	// Revision is the commit, empty outside of a Git checkout.
	Revision string
	// Time is put on every file, in place of the time at which it was written.
	Time time.Time
}

// Describe reads version, commit and time of the checkout at root. A version
// that is not empty takes the place of the one that Git gives.
func Describe(ctx context.Context, root, version string) (Source, error) {
	s := Source{Root: root, Version: version, Time: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
	inGit := false
	if revision, err := git(ctx, root, "rev-parse", "HEAD"); err == nil {
		s.Revision, inGit = revision, true
	}
	epoch := os.Getenv(epochEnv)
	if epoch == "" && inGit {
		var err error
		if epoch, err = git(ctx, root, "log", "-1", "--format=%ct"); err != nil {
			return Source{}, err
		}
	}
	if epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return Source{}, fmt.Errorf("read %s: %q is not a number of seconds since 1970: unset it, or set one", epochEnv, epoch)
		}
		s.Time = time.Unix(seconds, 0).UTC()
	}
	if s.Version == "" {
		s.Version = gitVersion(ctx, root)
	}
	return s, nil
}

// gitVersion is the tag, or the last tag and the commit. Before the first tag, and
// outside of Git, it is a pre-release of v0.0.0, as Helm and krew ask for a semantic version.
func gitVersion(ctx context.Context, root string) string {
	if version, err := git(ctx, root, "describe", "--tags", "--match", "v*", "--dirty"); err == nil {
		return version
	}
	// The letter keeps a commit of digits alone from being a number with leading zeros.
	if version, err := git(ctx, root, "describe", "--always", "--exclude", "*", "--dirty"); err == nil {
		return "v0.0.0-g" + version
	}
	return "v0.0.0-dev"
}

// git gives the output of one command of Git.
func git(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
