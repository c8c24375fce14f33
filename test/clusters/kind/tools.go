// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/comity-mcs/comity/test/clusters/binaries"
)

// tools are the commands that are run, and where progress goes.
type tools struct {
	kind, docker string

	mu    sync.Mutex
	out   io.Writer
	start time.Time
}

// findTools finds docker and a Docker engine that answers, and kind: on the PATH, else fetched or built.
func findTools(ctx context.Context, out io.Writer) (*tools, error) {
	t := &tools{out: out, start: time.Now()}
	var err error
	if t.docker, err = exec.LookPath("docker"); err != nil {
		return nil, errors.New("kind clusters need the docker command on the PATH and a Docker engine")
	}
	probe, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if _, err := t.run(probe, t.docker, nil, "version", "--format", "{{.Server.Version}}"); err != nil {
		return nil, fmt.Errorf("kind clusters need a Docker engine; is it running, and DOCKER_HOST right? %w", err)
	}
	if t.kind, err = exec.LookPath("kind"); err == nil {
		return t, nil
	}
	provider, err := binaries.New()
	if err != nil {
		return nil, err
	}
	paths, err := provider.Ensure(ctx, binaries.Kind)
	if err != nil {
		return nil, err
	}
	t.kind = paths[binaries.Kind]
	return t, nil
}

// run runs a command and gives its standard output. The error has the end of what it printed.
func (t *tools) run(ctx context.Context, command string, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Stdin = stdin
	cmd.WaitDelay = 5 * time.Second
	var stdout, both bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&stdout, &both), &both
	err := cmd.Run()
	if err == nil {
		return stdout.String(), nil
	}
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	lines := strings.Split(strings.TrimSpace(both.String()), "\n")
	return "", fmt.Errorf("%s %s: %w:\n%s", command, strings.Join(args, " "), err, strings.Join(lines[max(0, len(lines)-15):], "\n"))
}

// hasIPv6 finds out whether nodes get IPv6 addresses from Docker, and says it if
// they do not. kind makes its network once and with IPv6 wherever Docker can;
// before that, a network of our own shows whether it can.
func (t *tools) hasIPv6(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	network := os.Getenv("KIND_EXPERIMENTAL_DOCKER_NETWORK")
	if network == "" {
		network = "kind"
	}
	names, err := t.run(ctx, t.docker, nil, "network", "ls", "--format", "{{.Name}}")
	if err != nil {
		return false, err
	}
	if slices.Contains(strings.Fields(names), network) {
		enabled, err := t.run(ctx, t.docker, nil, "network", "inspect", "--format", "{{.EnableIPv6}}", network)
		if err != nil {
			return false, err
		}
		if strings.TrimSpace(enabled) == "true" {
			return true, nil
		}
		t.say("kind: NO IPv6: Docker's network %s is for IPv4 alone, so the clusters are as well; `docker network rm %s` lets kind make another", network, network)
		return false, nil
	}
	// Several processes may ask at once, and no two networks have the same subnet.
	probe, subnet := fmt.Sprintf("comity-probe-%d", os.Getpid()), fmt.Sprintf("fd00:300:0:%x::/64", os.Getpid()&0xffff)
	if _, err := t.run(ctx, t.docker, nil, "network", "create", "--ipv6", "--subnet", subnet, probe); err != nil {
		t.say("kind: NO IPv6: the clusters are for IPv4 alone, because: %v", err)
		return false, nil
	}
	_, err = t.run(ctx, t.docker, nil, "network", "rm", probe)
	return err == nil, err
}

// say prints one line of progress.
func (t *tools) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = fmt.Fprintf(t.out, "[%4ds] %s\n", int(time.Since(t.start).Seconds()), fmt.Sprintf(format, args...))
}

// refuseExisting fails if a cluster of one of the names is there: it may be someone's.
func (t *tools) refuseExisting(ctx context.Context, set string, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	existing, err := t.run(ctx, t.kind, nil, "get", "clusters")
	if err != nil {
		return err
	}
	for _, id := range ids {
		if name := nameOf(set, id); slices.Contains(strings.Fields(existing), name) {
			return fmt.Errorf("kind cluster %s exists already: delete it with `kind delete cluster --name %s`", name, name)
		}
	}
	return nil
}
