// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/finding"
)

var (
	// reasonName is the name of a constant that is a reason of a condition or event, and
	// typeName that of one that is the type of a condition.
	reasonName = regexp.MustCompile(`^[rR]eason[A-Z]`)
	typeName   = regexp.MustCompile(`^(?:Type|Condition|Peer)[A-Z]`)
	// reasonAddress is the anchor of a reason: kind, type of the condition, and reason.
	reasonAddress = regexp.MustCompile(`^([a-z]+)-([a-z]+)-([a-z]+)$`)
)

// noReasons are the folders whose constants of such names are no reasons of conditions.
var noReasons = []string{
	filepath.Join("sync", "exchange", "address.go"), // why an address is left out, for a message
	filepath.Join("policies", "engine", "authoring"),
}

// elsewhere are reasons that stand in no table, since they are of no condition and no event.
var elsewhere = map[string]string{
	"ReservedKey":   "a problem of an export that its condition Ready shows in its message",
	"PolicyWarning": "a problem of an import that its condition Ready shows in its message",
}

// product calls do for each Go file of the product, with its path from the root.
func product(t *testing.T, do func(path string, file *ast.File)) {
	t.Helper()
	for _, folder := range []string{"cmd", "policies", "status", "sync", "webhook"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err == nil {
				relative, _ := filepath.Rel(root, path)
				do(relative, parsed)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// constants are the values of the package's constants that are named like that, each with
// the file that declares it.
func constants(t *testing.T, name *regexp.Regexp) map[string]string {
	t.Helper()
	found := map[string]string{}
	product(t, func(path string, file *ast.File) {
		for _, not := range noReasons {
			if strings.HasPrefix(path, not) {
				return
			}
		}
		for _, decl := range file.Decls {
			if constants, ok := decl.(*ast.GenDecl); ok && constants.Tok == token.CONST {
				for _, spec := range constants.Specs {
					valuesOf(spec.(*ast.ValueSpec), name, func(value string) { found[value] = path })
				}
			}
		}
	})
	return found
}

func valuesOf(spec *ast.ValueSpec, name *regexp.Regexp, add func(string)) {
	for i, n := range spec.Names {
		if i >= len(spec.Values) || !name.MatchString(n.Name) {
			continue
		}
		if literal, ok := spec.Values[i].(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if value, err := strconv.Unquote(literal.Value); err == nil {
				add(value)
			}
		}
	}
}

// reasonAnchors are the anchors of reasons of the two pages, by reason in lower case.
func reasonAnchors(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, page := range []string{"docs/conditions.md", "docs/peers.md"} {
		seen := map[string]bool{}
		for _, a := range anchor.FindAllStringSubmatch(read(t, page), -1) {
			parts := reasonAddress.FindStringSubmatch(a[1])
			if parts == nil {
				t.Errorf("%s: anchor %q; expected kind, type and reason", page, a[1])
				continue
			}
			if seen[a[1]] {
				t.Errorf("%s has anchor %q twice", page, a[1])
			}
			seen[a[1]] = true
			if isPeer := parts[1] == "peer"; isPeer != (page == "docs/peers.md") {
				t.Errorf("%s has anchor %q; finding.Condition expects it on the other page", page, a[1])
			}
			found[parts[3]] = append(found[parts[3]], a[1])
		}
	}
	return found
}

// declared are the reasons and the types of conditions, in lower case.
func declared(t *testing.T) (reasons, types map[string]bool) {
	t.Helper()
	reasons, types = map[string]bool{}, map[string]bool{"event": true}
	for value := range constants(t, reasonName) {
		reasons[strings.ToLower(value)] = true
	}
	for value := range constants(t, typeName) {
		types[strings.ToLower(value)] = true
	}
	for _, typ := range []mcsv1beta1.ServiceExportConditionType{
		mcsv1beta1.ServiceExportConditionValid, mcsv1beta1.ServiceExportConditionReady, mcsv1beta1.ServiceExportConditionConflict,
	} {
		types[strings.ToLower(string(typ))] = true
	}
	return reasons, types
}

func TestEveryReasonHasAnAnchor(t *testing.T) {
	anchors, reasons := reasonAnchors(t), constants(t, reasonName)
	if len(reasons) < 60 {
		t.Errorf("found only %d reasons in the code: did their names change?", len(reasons))
	}
	for reason, file := range reasons {
		if addresses := anchors[strings.ToLower(reason)]; len(addresses) == 0 && elsewhere[reason] == "" {
			t.Errorf("%s declares reason %s, for which neither docs/conditions.md nor docs/peers.md has an anchor <a id=\"kind-type-%s\"></a>",
				file, reason, strings.ToLower(reason))
		} else if of := filepath.Dir(file); of == filepath.Join("sync", "members") || of == filepath.Join("sync", "remote") {
			if !strings.HasPrefix(strings.Join(addresses, " "), "peer-") && !strings.Contains(strings.Join(addresses, " "), " peer-") {
				t.Errorf("%s declares reason %s of a Peer, for which docs/peers.md has no anchor", file, reason)
			}
		}
	}
}

// status/condition has the table of the reasons of ServiceExport and ServiceImport, and a test
// that docs/conditions.md has exactly these, each with its anchor.
func TestEveryAnchorHasAReason(t *testing.T) {
	reasons, types := declared(t)
	for reason, addresses := range reasonAnchors(t) {
		for _, address := range addresses {
			parts := strings.Split(address, "-")
			if !types[parts[1]] {
				t.Errorf("anchor %s: no condition has type %s", address, parts[1])
			}
			trueOfPeer := parts[0] == "peer" && parts[1] == reason // a condition of a Peer that is True has its type as its reason
			listed := strings.HasPrefix(parts[0], "service") && parts[1] != "event"
			if !reasons[reason] && !trueOfPeer && !listed {
				t.Errorf("anchor %s: no condition and no event has reason %s", address, reason)
			}
		}
	}
}

func TestFindingsNameAnchors(t *testing.T) {
	for _, c := range []struct{ kind, typ, reason string }{
		{"ServiceExport", "Ready", "Failed"},
		{"ServiceExport", "Conflict", "TypeConflict,PortConflict"},
		{"ServiceImport", "Event", "ExportJoined"},
		{"ExportPolicy", "Compiled", "CompileError"},
		{"Peer", "Connected", "Lost"},
		{"Peer", "Event", "StoreRestored"},
	} {
		address := finding.Condition(c.kind, c.typ, c.reason)
		page, fragment, _ := strings.Cut(strings.TrimPrefix(address, finding.Docs("")), "#")
		if !anchors(t, "docs/"+page)[fragment] {
			t.Errorf("%v: docs has no %s", c, address)
		}
	}
}

// Each literal given to finding.Docs names a page and its anchor.
func TestEveryAddressThatACommandPrintsExists(t *testing.T) {
	product(t, func(path string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			callee, ok := call.Fun.(*ast.SelectorExpr)
			literal, isLiteral := call.Args[0].(*ast.BasicLit)
			if !ok || !isLiteral || callee.Sel.Name != "Docs" {
				return true
			}
			address, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			page, fragment, hasFragment := strings.Cut(address, "#")
			if _, err := fs.Stat(rootFS, "docs/"+page); err != nil {
				t.Errorf("%s prints the address %s: %v", path, address, err)
			} else if hasFragment && !anchors(t, "docs/"+page)[fragment] {
				t.Errorf("%s prints the address %s, a heading or anchor that docs/%s does not have", path, address, page)
			}
			return true
		})
	})
}
