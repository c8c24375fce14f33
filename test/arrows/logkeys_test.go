// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package arrows

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logKeys are the keys of the agent's log. Those that are labels of metrics, too, have the same
// name there. The id of another cluster is peer, never cluster.
var logKeys = []string{
	"peer", "namespace", "name", "policy", "reason", "error", "message", // also labels, or of every line
	"answers", "clusterset", "condition", "count", "definition", "digest", "fields", "kind", "policies", "self", "status", "version",
	"outcome", "operation", "user", "dryRun", "requestID", "webhook", // of requests
}

func TestLogKeysAreThoseOfTheList(t *testing.T) {
	calls := 0
	for _, folder := range []string{"cmd/comity", "policies", "status", "sync", "webhook"} {
		err := filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, is := n.(*ast.CallExpr)
				if !is {
					return true
				}
				keys, logs := keysOf(call)
				if logs {
					calls++
				}
				for _, key := range keys {
					if !slices.Contains(logKeys, key) {
						t.Errorf("%s: the log has the key %q; use one of %v, or add it", files.Position(call.Pos()), key, logKeys)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if calls < 40 {
		t.Errorf("found only %d calls that log", calls)
	}
}

// keysOf are the literal keys of a call that logs; false if it is none.
func keysOf(call *ast.CallExpr) (keys []string, logs bool) {
	method, is := call.Fun.(*ast.SelectorExpr)
	if !is {
		return nil, false
	}
	first, known := map[string]int{"Info": 1, "Error": 2, "WithValues": 0}[method.Sel.Name]
	if from, is := method.X.(*ast.Ident); !known || len(call.Args) < first || is && from.Name == "http" {
		return nil, false
	}
	if _, isText := literal(call, first-1); first > 0 && !isText {
		return nil, false
	}
	for i := first; i < len(call.Args); i += 2 {
		if key, is := literal(call, i); is {
			keys = append(keys, key)
		}
	}
	return keys, len(call.Args) > 0
}

func literal(call *ast.CallExpr, i int) (string, bool) {
	if i < 0 {
		return "", false
	}
	text, is := call.Args[i].(*ast.BasicLit)
	if !is || text.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(text.Value)
	return value, err == nil
}
