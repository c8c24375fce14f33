// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package arrows enforces the import graph of the project: each rule is a
// sentence, and a broken one fails with that sentence and the packages at fault.
package arrows

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/comity-mcs/comity"

// The folders of both modules: of what ships, and of what tests it.
var shipped, tests = filepath.Join("..", ".."), ".."

// pkg is what `go list` tells of one package of the project.
type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

// name is the path inside the module, "" for its root.
func (p pkg) name() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

// rule forbids imports; reaches are import path prefixes.
type rule struct {
	sentence string
	// from selects the packages that the rule binds, by path inside the module.
	from func(name string) bool
	// forbidden tells whether a dependency breaks the rule.
	forbidden func(dep string) bool
	// direct limits the rule to what the package itself imports.
	direct bool
}

var pure = []string{
	"policies/decision", "sync/model", "sync/merge", "sync/decide", "sync/plan",
	"sync/remote/budget",
	"status/condition", "status/compute", "webhook/admit",
}

func rules() []rule {
	return []rule{
		{
			sentence: "a pure package reaches no client and no metric",
			from:     among(pure...),
			forbidden: reaches("k8s.io/client-go", "sigs.k8s.io/controller-runtime",
				"github.com/prometheus", "github.com/open-policy-agent"),
		},
		{
			sentence:  "a pure package is handed no context, logger or randomness",
			from:      among(pure...),
			forbidden: reaches("context", "log", "github.com/go-logr", "k8s.io/klog", "math/rand", "crypto/rand", "net/http", "os"),
			direct:    true,
		},
		{
			sentence:  "policies imports nothing else of Comity",
			from:      func(n string) bool { return under("policies")(n) && n != "policies/controller" },
			forbidden: oursExcept("policies"),
		},
		{
			sentence:  "policies/controller imports of Comity only policies and sync/model, which bounds what it writes",
			from:      among("policies/controller"),
			forbidden: oursExcept("policies", "sync/model"),
		},
		{
			sentence:  "policies/decision is the root of the graph: it imports nothing of Comity",
			from:      among("policies/decision"),
			forbidden: oursExcept("policies/decision"),
		},
		{
			sentence: "only policies/engine knows OPA, and the benchmark that compares it with other ways to use OPA",
			from: func(n string) bool {
				return !among("policies/engine", "policies/engine/authoring", "test/bench/admission")(n)
			},
			forbidden: reaches("github.com/open-policy-agent"),
			direct:    true,
		},
		{
			sentence:  "the agent does not carry the test runner of policies",
			from:      among("cmd/comity"),
			forbidden: reaches(module+"/policies/engine/authoring", "github.com/open-policy-agent/opa/v1/tester"),
		},
		{
			sentence:  "webhook imports of Comity only itself, sync/model and policies/decision",
			from:      func(n string) bool { return under("webhook")(n) && n != "webhook/conflict" },
			forbidden: oursExcept("webhook", "sync/model", "policies/decision", "policies/v1alpha1"),
		},
		{
			sentence:  "webhook/conflict knows how an import is decided, and nothing else of Comity",
			from:      among("webhook/conflict"),
			forbidden: oursExcept("webhook/conflict", "sync/decide", "sync/plan", "sync/merge", "sync/exchange", "sync/model", "policies/decision"),
		},
		{
			sentence:  "status imports of Comity only itself, sync/model, sync/notify and policies/decision",
			from:      under("status"),
			forbidden: oursExcept("status", "sync/model", "sync/notify", "policies/decision"),
		},
		{
			sentence:  "sync imports of Comity only itself and policies/decision",
			from:      under("sync"),
			forbidden: oursExcept("sync", "policies/decision"),
		},
		{
			sentence:  "sync/decide takes plain values: it reaches no controller, no cache and no connection",
			from:      among("sync/decide"),
			forbidden: oursExcept("sync/decide", "sync/plan", "sync/merge", "sync/exchange", "sync/model", "policies/decision"),
		},
		{
			sentence:  "only sync/apply writes: sync/controllers hands actions to it, and nothing else of sync reaches it",
			from:      func(n string) bool { return under("sync")(n) && !among("sync/apply", "sync/controllers")(n) },
			forbidden: reaches(module + "/sync/apply"),
		},
		{
			sentence:  "only sync/controllers reads the cache of objects and decides with it: no other package of sync reaches sync/decide",
			from:      func(n string) bool { return under("sync")(n) && !among("sync/decide", "sync/controllers")(n) },
			forbidden: reaches(module + "/sync/decide"),
		},
		{
			sentence:  "sync/notify knows no other part of Comity",
			from:      among("sync/notify"),
			forbidden: oursExcept("sync/notify"),
		},
		{
			sentence:  "sync/model imports nothing else of Comity",
			from:      among("sync/model"),
			forbidden: oursExcept("sync/model"),
		},
		{
			sentence:  "the agent cannot join clusters: comity must not reach sync/join",
			from:      under("cmd/comity"),
			forbidden: reaches(module + "/sync/join"),
		},
		{
			sentence:  "what installs definitions and policies knows them, the model, and no part of the agent",
			from:      among("cmd/comity/install"),
			forbidden: oursExcept("cmd/comity/install", "config/crd", "policies/source", "policies/v1alpha1", "sync/model"),
		},
		{
			sentence:  "probes and test traffic need no Kubernetes API: they reach no client and no part of the agent",
			from:      among("cmd/comity/probe", "cmd/comity/traffic"),
			forbidden: reaches(module+"/sync", module+"/status", module+"/webhook", module+"/policies", "k8s.io"),
		},
		{
			sentence:  "the agent knows nothing of the kubectl plugin",
			from:      under("cmd/comity"),
			forbidden: reaches(module + "/cmd/kubectl-comity"),
		},
		{
			sentence: "only cmd/comity/app joins the parts: nothing but cmd reaches cmd, the agent with short waits, and what documents the commands",
			from: func(n string) bool {
				return !under("cmd")(n) && n != "test/install/agent" && n != "test/tools/reference"
			},
			forbidden: reaches(module + "/cmd"),
		},
		{
			sentence:  "what ships must not reach what tests it",
			from:      func(n string) bool { return !under("test")(n) },
			forbidden: reaches(module+"/test", "github.com/onsi"),
		},
	}
}

func TestImportsFollowTheArrows(t *testing.T) {
	packages := list(t)
	for _, r := range rules() {
		t.Run(r.sentence, func(t *testing.T) {
			bound := 0
			for _, p := range packages {
				if !r.from(p.name()) {
					continue
				}
				bound++
				deps := p.Deps
				if r.direct {
					deps = p.Imports
				}
				for _, dep := range deps {
					if r.forbidden(dep) {
						t.Errorf("%s: but %s reaches %s", r.sentence, p.name(), dep)
					}
				}
			}
			if bound == 0 {
				t.Errorf("no package is bound by %q: the rule names one that is gone", r.sentence)
			}
		})
	}
}

// TestPurePackagesExist keeps the list of pure packages from rotting.
func TestPurePackagesExist(t *testing.T) {
	var names []string
	for _, p := range list(t) {
		names = append(names, p.name())
	}
	for _, want := range pure {
		if !slices.Contains(names, want) {
			t.Errorf("pure package %s does not exist", want)
		}
	}
}

// TestPurePackagesAskNoClock finds what an import list cannot show.
func TestPurePackagesAskNoClock(t *testing.T) {
	for _, name := range pure {
		files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(name), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, call := range []string{"time.Now(", "time.Since(", "metav1.Now("} {
				if bytes.Contains(text, []byte(call)) {
					t.Errorf("a pure package asks no clock: but %s calls %s)", f, call)
				}
			}
		}
	}
}

// TestSyncFolderHoldsNoGoFile lets the identifier sync mean the standard
// library's everywhere.
func TestSyncFolderHoldsNoGoFile(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "sync", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) > 0 {
		t.Errorf("sync/ must hold no Go file of its own, but has %v", files)
	}
}

// TestTestsUseTheVersionsThatShip keeps what only tests need from choosing another
// version of a module than the one that ships.
func TestTestsUseTheVersionsThatShip(t *testing.T) {
	ours, theirs := versions(t, shipped), versions(t, tests)
	if len(ours) < 50 {
		t.Errorf("go.mod requires %d modules: was all of it read?", len(ours))
	}
	for path, version := range ours {
		if other, has := theirs[path]; has && other != version {
			t.Errorf("go.mod requires %s %s, but test/go.mod requires %s: require the newer one in both", path, version, other)
		}
	}
}

// versions are those of the modules that the module in a folder requires.
func versions(t *testing.T, dir string) map[string]string {
	t.Helper()
	var file struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(run(t, dir, "mod", "edit", "-json"), &file); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, r := range file.Require {
		out[r.Path] = r.Version
	}
	return out
}

// list asks the go command for every package of both modules, test files left out.
func list(t *testing.T) []pkg {
	t.Helper()
	ours := map[string]pkg{}
	for _, dir := range []string{shipped, tests} {
		for dec := json.NewDecoder(bytes.NewReader(run(t, dir, "list", "-deps", "-json=ImportPath,Imports,Deps", "./..."))); ; {
			var p pkg
			if err := dec.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if p.ImportPath == module || strings.HasPrefix(p.ImportPath, module+"/") {
				ours[p.ImportPath] = p
			}
		}
	}
	return slices.SortedFunc(maps.Values(ours), func(a, b pkg) int { return strings.Compare(a.ImportPath, b.ImportPath) })
}

// run gives what the go command prints in a folder.
func run(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s in %s: %v\n%s", args[0], dir, err, stderr.String())
	}
	return out
}

func among(names ...string) func(string) bool {
	return func(n string) bool { return slices.Contains(names, n) }
}

func under(roots ...string) func(string) bool {
	return func(n string) bool {
		return slices.ContainsFunc(roots, func(r string) bool { return n == r || strings.HasPrefix(n, r+"/") })
	}
}

func reaches(prefixes ...string) func(string) bool { return under(prefixes...) }

// oursExcept forbids every package of the project that is not under one of the roots.
func oursExcept(roots ...string) func(string) bool {
	allowed := under(roots...)
	return func(dep string) bool {
		name, ours := strings.CutPrefix(dep, module+"/")
		return ours && !allowed(name)
	}
}
