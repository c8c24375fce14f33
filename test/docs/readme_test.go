// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package docs checks that what the documents promise is there.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	root   = filepath.Join("..", "..")
	rootFS = os.DirFS(root)
	// step is one link of "Follow one ServiceExport": [`Name`](file.go).
	step = regexp.MustCompile("\\[`([A-Za-z.]+)`\\]\\(([^)]+\\.go)\\)")
	// link is a relative link: the file, empty for the page itself, and the heading.
	link = regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)\s]*))?\)`)
	// block is a block of code, in which no link and no heading is.
	block = regexp.MustCompile("(?ms)^\\s*```.*?^\\s*```")
	// heading is the text of a heading.
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	// anchor is an address within a page that is no heading, such as that of a row.
	anchor = regexp.MustCompile(`<a id="([^"]*)"></a>`)
	// dropped is what anchors do not have of a heading.
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
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

// pages are the documents that users read.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md"}
	for _, pattern := range []string{".github/*.md", "docs/*.md", "policies/*.md", "charts/*/*.md"} {
		found, err := fs.Glob(rootFS, pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

// anchors are the headings of a page, as GitHub names them in links, and the anchors
// that it has beside them.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	found, text := map[string]bool{}, block.ReplaceAllString(read(t, page), "")
	for _, a := range anchor.FindAllStringSubmatch(text, -1) {
		found[a[1]] = true
	}
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		found[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return found
}

func TestEveryRelativeLinkLeadsSomewhere(t *testing.T) {
	followed := 0
	for _, page := range pages(t) {
		for _, l := range link.FindAllStringSubmatch(block.ReplaceAllString(read(t, page), ""), -1) {
			target := page
			if l[1] != "" {
				target = path.Join(path.Dir(page), l[1])
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(target))); err != nil {
				t.Errorf("%s links %s: %v", page, l[1], err)
			} else if l[2] != "" && !anchors(t, target)[l[2]] {
				t.Errorf("%s links #%s, a heading that %s does not have", page, l[2], target)
			}
			followed++
		}
	}
	if followed < 100 {
		t.Errorf("found %d links; expected at least 100: did their form change?", followed)
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
