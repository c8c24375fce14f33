// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Command clusters brings up clusters to play with, and down again.
//
//	make clusters ARGS="--count 3"          control planes as processes: no Docker, no root
//	make clusters ARGS="--count 2 --kind"   kind clusters, in Docker
//	bin/clusters down
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/comity-mcs/comity/config/crd"
	"github.com/comity-mcs/comity/test/clusters"
	"github.com/comity-mcs/comity/test/clusters/binaries"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
	"github.com/comity-mcs/comity/test/clusters/kind"
)

// downTimeout is how long the process that holds the clusters may take to end them.
const downTimeout = 3 * time.Minute

func main() {
	count := pflag.Int("count", 3, "how many clusters up starts: a, b, c, ...")
	useKind := pflag.Bool("kind", false, "kind clusters in Docker instead of control planes as processes")
	var family clusters.Family
	pflag.Var(&family, "family", "addresses of Pods and Services: ipv4, dual, or ipv6 with --kind; by default ipv4, and dual with --kind where Docker has IPv6")
	pflag.Usage = func() {
		_, _ = fmt.Fprintf(os.Stderr, "usage: clusters up [--count N] [--kind] [--family FAMILY] | clusters down\n%s", pflag.CommandLine.FlagUsages())
	}
	pflag.Parse()
	log.SetLogger(logr.Discard()) // else controller-runtime complains after 30 s that no one did
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch command := strings.Join(pflag.Args(), " "); command {
	case "up":
		err = up(ctx, *count, *useKind, family)
	case "down":
		err = down(ctx)
	default:
		pflag.Usage()
		err = fmt.Errorf("unknown command %q: use up or down", command)
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "clusters:", err)
		os.Exit(1)
	}
}

func up(ctx context.Context, count int, useKind bool, family clusters.Family) (err error) {
	if count < 1 || count > clusters.MaxClusters {
		return fmt.Errorf("--count is %d: it must be from 1 to %d", count, clusters.MaxClusters)
	}
	dir, err := stateDir()
	if err != nil {
		return err
	}
	if s, err := readState(dir); err == nil && s.alive() {
		return fmt.Errorf("clusters are up already, held by process %d: run `clusters down` first", s.pid)
	}
	manifests, err := clusters.Files(crd.FS)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	ids := clusters.IDs(count)
	s := state{pid: os.Getpid(), kind: useKind, ids: ids}
	if err := s.write(dir); err != nil {
		return err
	}
	began := time.Now()
	all, err := start(ctx, dir, ids, useKind, family, manifests)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	explain(all, time.Since(began))
	<-ctx.Done()
	fmt.Println("\nending the clusters")
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(dir))...)
}

func start(ctx context.Context, dir string, ids []string, useKind bool, family clusters.Family, manifests [][]byte) ([]clusters.Cluster, error) {
	var all []clusters.Cluster
	if useKind {
		set, err := kind.Start(ctx, kind.Options{IDs: ids, Dir: dir, Family: family, Manifests: manifests})
		for _, c := range set {
			all = append(all, c)
		}
		return all, err
	}
	set, err := controlplane.Start(ctx, controlplane.Options{IDs: ids, Dir: dir, Family: family, Manifests: manifests})
	for _, c := range set {
		all = append(all, c)
	}
	return all, err
}

func explain(all []clusters.Cluster, took time.Duration) {
	fmt.Printf("%d clusters after %.1fs. In another terminal:\n\n", len(all), took.Seconds())
	for _, c := range all {
		fmt.Printf("  export KUBECONFIG=%s   # %s: Pods %v, Services %v, DNS %s\n",
			c.Kubeconfig(), c.ID(), c.Network().PodCIDRs[0], c.Network().ServiceCIDRs[0], c.DNSAddress())
	}
	host, port, _ := strings.Cut(all[0].DNSAddress(), ":")
	fmt.Printf("\n  kubectl get nodes,serviceimports -A\n  dig @%s -p %s kubernetes.default.svc.cluster.local\n\nCtrl-C, or `clusters down`, ends them.\n", host, port)
}

func down(ctx context.Context) error {
	dir, err := stateDir()
	if err != nil {
		return err
	}
	s, err := readState(dir)
	if err != nil {
		return fmt.Errorf("no clusters are up: %w", err)
	}
	if s.alive() {
		if err := syscall.Kill(s.pid, syscall.SIGTERM); err != nil {
			return fmt.Errorf("end process %d, which holds the clusters: %w", s.pid, err)
		}
		for deadline := time.Now().Add(downTimeout); s.alive(); {
			if time.Now().After(deadline) {
				return fmt.Errorf("process %d has not ended the clusters after %v", s.pid, downTimeout)
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(100 * time.Millisecond):
			}
		}
		return nil
	}
	// The one who held them crashed. Processes died with it, kind's containers did not.
	if s.kind {
		if err := kind.Delete(ctx, "", s.ids); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// state is what up did, for down.
type state struct {
	pid  int
	kind bool
	ids  []string
}

func stateDir() (string, error) {
	provider, err := binaries.New()
	if err != nil {
		return "", err
	}
	return filepath.Join(provider.Cache, "clusters"), nil
}

func (s state) write(dir string) error {
	text := fmt.Sprintf("%d %t %s\n", s.pid, s.kind, strings.Join(s.ids, " "))
	return os.WriteFile(filepath.Join(dir, "state"), []byte(text), 0o644)
}

func readState(dir string) (state, error) {
	text, err := os.ReadFile(filepath.Join(dir, "state"))
	if err != nil {
		return state{}, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 3 {
		return state{}, fmt.Errorf("%s is damaged: remove it", filepath.Join(dir, "state"))
	}
	pid, err := strconv.Atoi(fields[0])
	return state{pid: pid, kind: fields[1] == "true", ids: fields[2:]}, err
}

// alive reports whether the process is there and still this command: ids are reused.
func (s state) alive() bool {
	if syscall.Kill(s.pid, 0) != nil {
		return false
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.pid))
	return err != nil || strings.Contains(string(text), "clusters\x00up")
}
