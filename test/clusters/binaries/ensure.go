// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/comity-mcs/comity/test/clusters/progress"
)

const (
	// AssetsEnv is controller-runtime's variable: a directory with etcd, kube-apiserver and kubectl.
	AssetsEnv = "KUBEBUILDER_ASSETS"
	// CacheEnv overrides the cache directory, by default .cache in the project's root.
	CacheEnv = "COMITY_CACHE"
	// KubernetesEnv chooses the version of Kubernetes: newest, the default, or oldest, the
	// oldest that Comity supports. Programs that AssetsEnv names have the version that they have.
	KubernetesEnv = "COMITY_KUBERNETES"

	// lockTimeout bounds the wait for another process that fetches or builds: a cold build of all takes 15 minutes.
	lockTimeout = 45 * time.Minute
)

// Provider finds, fetches or builds programs. Use New.
type Provider struct {
	// Cache holds bin/<name>-<version> and assets/<version>.
	Cache string
	// Root is the project's root, where builds run.
	Root string
	// Assets is the directory that AssetsEnv names, or empty.
	AssetsDir string
	// Out receives one line per step.
	Out io.Writer

	// kubernetes is the version of its programs.
	kubernetes   string
	sources      sources
	client       *http.Client
	goos, goarch string
	// build compiles p into the file out.
	build func(ctx context.Context, p program, out string) error
	// reachable remembers which hosts answered, so that one run probes once.
	reachable map[string]bool
	start     time.Time
}

// New reads AssetsEnv, CacheEnv and KubernetesEnv and finds the project's root above the
// working directory. It fails outside of the project when no cache is named.
func New() (*Provider, error) {
	root, err := ProjectRoot()
	cache := os.Getenv(CacheEnv)
	if cache == "" {
		if err != nil {
			return nil, fmt.Errorf("%w; or set %s to a directory that has the programs", err, CacheEnv)
		}
		cache = filepath.Join(root, ".cache")
	}
	cache, err = filepath.Abs(cache)
	if err != nil {
		return nil, fmt.Errorf("find the cache: %w", err)
	}
	p := &Provider{
		Cache: cache, Root: root, AssetsDir: os.Getenv(AssetsEnv), Out: os.Stderr,
		kubernetes: newestKubernetes, sources: publicSources(), client: http.DefaultClient,
		goos: runtime.GOOS, goarch: runtime.GOARCH,
		reachable: map[string]bool{}, start: time.Now(),
	}
	p.build = p.goBuild
	switch which := os.Getenv(KubernetesEnv); which {
	case "", "newest":
	case "oldest":
		p.kubernetes = oldestKubernetes
	default:
		return nil, fmt.Errorf("%s is %q, expected newest or oldest: set one of them, or unset it", KubernetesEnv, which)
	}
	return p, nil
}

// Kubernetes is the version that KubernetesEnv chose.
func (p *Provider) Kubernetes() string { return p.kubernetes }

// clock says what goes on.
func (p *Provider) clock() progress.Clock { return progress.Clock{Out: p.Out, Start: p.start} }

// Ensure gives the absolute path of each program named, fetching or building
// what is nowhere to be found. It is safe to call from several processes at once.
func (p *Provider) Ensure(ctx context.Context, names ...string) (map[string]string, error) {
	found := map[string]string{}
	var missing []program
	for _, name := range names {
		prog, err := p.lookup(name)
		if err != nil {
			return nil, err
		}
		if path := p.find(prog); path != "" {
			found[name] = path
			continue
		}
		missing = append(missing, prog)
	}
	if len(missing) == 0 {
		return found, nil
	}
	unlock, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, prog := range missing {
		path := p.find(prog) // the one who held the lock may have made it
		if path == "" {
			if path, err = p.make(ctx, prog); err != nil {
				return nil, fmt.Errorf("provide %s: %w", prog, err)
			}
		}
		found[prog.name] = path
	}
	return found, nil
}

// Assets ensures etcd, kube-apiserver and kubectl and gives one directory that
// has them under these names, fit for KUBEBUILDER_ASSETS.
func (p *Provider) Assets(ctx context.Context) (string, error) {
	names := []string{Etcd, APIServer, Kubectl}
	paths, err := p.Ensure(ctx, names...)
	if err != nil {
		return "", err
	}
	if p.AssetsDir != "" && filepath.Dir(paths[Etcd]) == filepath.Clean(p.AssetsDir) &&
		filepath.Dir(paths[APIServer]) == filepath.Dir(paths[Etcd]) && filepath.Dir(paths[Kubectl]) == filepath.Dir(paths[Etcd]) {
		return p.AssetsDir, nil
	}
	dir := filepath.Join(p.Cache, "assets", p.kubernetes)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the assets directory: %w", err)
	}
	for _, name := range names {
		if err := link(paths[name], filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("fill the assets directory: %w", err)
		}
	}
	return dir, nil
}

// find gives the path of a program that is there already, or "".
func (p *Provider) find(prog program) string {
	candidates := []string{filepath.Join(p.Cache, "bin", prog.file())}
	if p.AssetsDir != "" {
		switch prog.name {
		case Etcd, APIServer, Kubectl:
			candidates = append([]string{filepath.Join(p.AssetsDir, prog.name)}, candidates...)
		}
	}
	for _, path := range candidates {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// make fetches or builds into a temporary file of the cache, then renames it.
func (p *Provider) make(ctx context.Context, prog program) (string, error) {
	bin := filepath.Join(p.Cache, "bin")
	target := filepath.Join(bin, prog.file())
	temp := filepath.Join(bin, "."+prog.file()+".partial") // one name: we hold the lock, and leave no litter
	defer func() { _ = os.Remove(temp) }()

	err := p.fetch(ctx, prog, temp)
	if err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if !errors.Is(err, errNoRelease) {
			p.clock().Say("%s is not fetched: %v", prog, err)
		}
		err = p.clock().Step("build "+prog.String(), func() error { return p.build(ctx, prog, temp) })
	}
	if err != nil {
		return "", err
	}
	if err := os.Chmod(temp, 0o755); err != nil {
		return "", err
	}
	return target, os.Rename(temp, target)
}

// lock serializes processes that fetch or build into one cache.
func (p *Provider) lock(ctx context.Context) (unlock func(), err error) {
	unlock, err = Lock(ctx, filepath.Join(p.Cache, "bin"), func() { p.clock().Say("waiting for another process that fills %s", p.Cache) })
	if err != nil {
		return nil, fmt.Errorf("lock the cache: %w (set %s to a directory that you may write)", err, CacheEnv)
	}
	return unlock, nil
}

// Lock serializes processes that write in dir, which is made if it is not there. It calls
// waiting once if another process holds the lock, and gives up after lockTimeout.
func Lock(ctx context.Context, dir string, waiting func()) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, ".lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(lockTimeout)
	for told := false; ; told = true {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return func() { _ = f.Close() }, nil // closing releases it
		}
		if !told {
			waiting()
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			_ = f.Close()
			return nil, fmt.Errorf("another process holds %s since %v: %w", path, lockTimeout, err)
		}
	}
}

// link makes name a symbolic link to target, atomically, unless it is one already.
func link(target, name string) error {
	if have, err := os.Readlink(name); err == nil && have == target {
		return nil
	}
	temp := fmt.Sprintf("%s.%d", name, os.Getpid())
	if err := os.Symlink(target, temp); err != nil {
		return err
	}
	return os.Rename(temp, name)
}

// ProjectRoot is the folder of the project's checkout: the nearest one with its go.mod, in or above the working directory.
func ProjectRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module github.com/comity-mcs/comity\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod of github.com/comity-mcs/comity in or above the working directory: run inside the project")
		}
		dir = parent
	}
}
