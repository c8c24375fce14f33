// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package docs checks that what README promises is there.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	root = filepath.Join("..", "..")
	// step is one link of "Follow one ServiceExport": [`Name`](file.go).
	step = regexp.MustCompile("\\[`([A-Za-z.]+)`\\]\\(([^)]+\\.go)\\)")
	// link is any relative link.
	link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	// target is a make target that the text tells to run: in a code block or in backquotes.
	target = regexp.MustCompile("(?m)(?:^|`)make ([a-z0-9-]+)")
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestFollowOneServiceExportLinksTenFunctions(t *testing.T) {
	_, section, found := strings.Cut(read(t, "README.md"), "## Follow one ServiceExport\n")
	if !found {
		t.Fatal("README has no section \"Follow one ServiceExport\"")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	steps := step.FindAllStringSubmatch(section, -1)
	if len(steps) != 10 {
		t.Errorf("expected ten links to functions, found %d", len(steps))
	}
	for _, s := range steps {
		if name, file := s[1], s[2]; !declares(t, filepath.Join(root, filepath.FromSlash(file)), name) {
			t.Errorf("README links %s in %s, which does not declare it", name, file)
		}
	}
}

// declares reports whether file has a function Name or package.Name, or a method Type.Name.
func declares(t *testing.T, file, name string) bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Errorf("parse: %v", err)
		return false
	}
	for _, d := range parsed.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if ok && (qualified(fn) == name || fn.Recv == nil && parsed.Name.Name+"."+fn.Name.Name == name) {
			return true
		}
	}
	return false
}

func qualified(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	receiver := fn.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if ident, ok := receiver.(*ast.Ident); ok {
		return ident.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}

func TestEveryRelativeLinkLeadsSomewhere(t *testing.T) {
	for _, l := range link.FindAllStringSubmatch(read(t, "README.md"), -1) {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(l[1]))); err != nil {
			t.Errorf("README links %s: %v", l[1], err)
		}
	}
}

func TestEveryMakeTargetExists(t *testing.T) {
	makefile := read(t, "Makefile")
	for _, m := range target.FindAllStringSubmatch(read(t, "README.md"), -1) {
		if !strings.Contains(makefile, "\n"+m[1]+":") {
			t.Errorf("README tells to run make %s, which the Makefile does not have", m[1])
		}
	}
}
